package io.leaseway;

/** A resource is open as another kind already. All handles of a resource have the same kind. */
public final class KindException extends LeasewayException {
    private static final long serialVersionUID = 1;

    KindException(String resource, String is, String asked) {
        super("resource \"" + resource + "\" is open already, as a " + is + "; it cannot be a " + asked + " as well");
    }
}
