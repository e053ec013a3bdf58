package io.leaseway;

/** Where a capacity comes from. */
public enum Basis {
    /** There was neither an answer nor a failure yet. Nothing may be used. */
    UNKNOWN("unknown"),
    /** There is a live lease. */
    LEASED("lease"),
    /** The lease has expired, or none could be obtained: the {@link Mode} decides. */
    FALLBACK("fallback");

    private final String text;

    Basis(String text) {
        this.text = text;
    }

    /** Returns the name of the basis in lower case. */
    @Override
    public String toString() {
        return text;
    }
}
