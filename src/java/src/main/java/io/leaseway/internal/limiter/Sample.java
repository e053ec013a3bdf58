package io.leaseway.internal.limiter;

/**
 * A reading of a limiter. All but count are for rates.
 *
 * @param count the permits requested so far. For gauges it is the peak of permits in use, which includes waiting
 *     callers and permits that came and went.
 * @param freely the permits requested so far while no caller waited
 * @param refunded the permits returned unused so far
 * @param waiting the permits waited for or owed now
 * @param queued the total time in which callers were waiting
 * @param capacity the current capacity
 */
public record Sample(long count, long freely, long refunded, long waiting, long queued, double capacity) {
    /** The reading of a gauge. */
    public static Sample ofPeak(long peak) {
        return new Sample(peak, 0, 0, 0, 0, 0);
    }

    /** Returns count without returned permits. */
    long netCount() {
        return Math.max(count - refunded, 0);
    }

    /** Returns freely without returned permits. It is unknown when those had arrived: it is reduced in proportion. */
    long netFreely() {
        return refunded == 0 ? freely : (long) ((double) freely * netCount() / Math.max(count, 1));
    }
}
