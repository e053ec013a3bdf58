package io.leaseway;

/** A resource is open as another kind already. All handles of a resource have the same kind. */
public final class KindException extends LeasewayException {
    private static final long serialVersionUID = 1;

    KindException(String resource, String is, String asked) {
        super("resource \"" + resource + "\" is already open as a " + is + ": it cannot also be opened as a " + asked);
    }
}
