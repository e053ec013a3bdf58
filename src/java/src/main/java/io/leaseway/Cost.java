package io.leaseway;

/** What an operation costs at one limit: see {@link Rate#of} and {@link Gauge#of}. */
public final class Cost {
    final Opened opened;
    private final long permits;

    Cost(Opened opened, long permits) {
        this.opened = opened;
        this.permits = Checks.count(permits);
    }

    /** Returns the name of the resource. */
    public String resource() {
        return opened.id;
    }

    /** Returns the number of permits. */
    public long permits() {
        return permits;
    }
}
