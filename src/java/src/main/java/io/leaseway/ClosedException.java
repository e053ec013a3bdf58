package io.leaseway;

/** The client, or the last handle of the resource, was closed. Nothing was taken. */
public final class ClosedException extends LeasewayException {
    private static final long serialVersionUID = 1;

    /** Creates the exception. */
    public ClosedException() {
        super("the limiter was closed");
    }
}
