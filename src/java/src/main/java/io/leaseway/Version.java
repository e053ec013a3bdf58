package io.leaseway;

/** The version of this library. */
final class Version {
    static final String VERSION = "0.1.0";

    private Version() {}
}
