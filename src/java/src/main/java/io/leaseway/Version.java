package io.leaseway;

final class Version {
    private Version() {}

    static final String VERSION = "0.1.0";
}
