package io.leaseway;

/** The superclass of the exceptions of this library. */
public class LeasewayException extends RuntimeException {
    private static final long serialVersionUID = 1;

    LeasewayException(String message) {
        super("leaseway: " + message);
    }

    LeasewayException(String message, Throwable cause) {
        super("leaseway: " + message, cause);
    }
}
