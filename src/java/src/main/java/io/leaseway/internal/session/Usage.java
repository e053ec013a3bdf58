package io.leaseway.internal.session;

/**
 * The usage of a lease.
 *
 * @param recharging the fraction of the time in which the capacity was in use; for gauges the largest fraction of the
 *     capacity in use
 * @param units the units used
 * @param interval the length of the measured interval in nanoseconds
 * @param counters the reading at its end, where the next interval starts once the server has this one
 */
public record Usage(double recharging, long units, long interval, Counters counters) {
    /**
     * What a limiter has let through so far.
     *
     * @param at the time of the reading
     * @param taken the units used so far
     * @param recharging the total time in which the capacity was in use, for rates
     */
    public record Counters(long at, long taken, long recharging) {}
}
