package io.leaseway.internal.limiter;

/**
 * Permits that were taken for a waiter or a reservation, and may come back.
 *
 * @param n the number of permits
 * @param era the period in which it was made, as the meter counts periods
 */
public record Promise(long n, long era) {}
