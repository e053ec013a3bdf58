package io.leaseway.internal.session;

import static io.leaseway.internal.session.Times.MILLISECOND;
import static io.leaseway.internal.session.Times.SECOND;

import java.util.SplittableRandom;

/**
 * The timeouts and intervals of a session, in nanoseconds.
 *
 * @param deadline the timeout of a request
 * @param refreshMin the minimum refresh interval, whatever the server says. Hints and changes of demand are exempt.
 *     Less than 100 ms counts as 100 ms, here and below, so that no setting makes a client hammer a server.
 * @param backoffFirst the pause after the first failure. Each further failure makes it 1.6 times as long.
 * @param backoffMax the maximum pause. It is also bounded such that all endpoints are tried once per refresh interval.
 * @param masterlessMax the maximum pause while servers answer that they have no master, because they will elect one
 *     soon
 * @param ahead selects the resources that are asked for together: those that are due within this time
 */
public record Pace(long deadline, long refreshMin, long backoffFirst, long backoffMax, long masterlessMax, long ahead) {
    private static final double BACKOFF_GROWTH = 1.6;

    /** The refresh interval assumed without a lease: the default of servers. */
    static final long DEFAULT_REFRESH = 5 * SECOND;

    /**
     * The minimum time between requests outside the refresh interval: hints, changes of demand and early confirmations.
     */
    static final long MIN_REQUEST_GAP = 100 * MILLISECOND;

    /** The settings that all clients of Leaseway share. */
    public static final Pace DEFAULT =
            new Pace(3 * SECOND, SECOND, 100 * MILLISECOND, 15 * SECOND, SECOND, Times.NEVER);

    /**
     * Returns the maximum time between two attempts. Each endpoint is tried within refresh, the shortest interval of
     * the known leases, so the session notices within one interval that a server is back.
     */
    long longestRetry(long refresh, int endpoints) {
        return Math.max(refresh, refreshMin) / Math.max(endpoints, 1);
    }

    /**
     * Returns the pause after a number of failures in a row, the last of which took some time. Attempts are sent at
     * most longest apart. The pause is a random part, at least half, of the computed one, so that clients that failed
     * together do not retry together.
     */
    long backoff(int failures, long longest, long took, SplittableRandom random) {
        double apart = Math.min(backoffFirst * Math.pow(BACKOFF_GROWTH, Math.max(failures - 1, 0)), longest);
        return (long) (Math.max(apart - took, MIN_REQUEST_GAP) * (0.5 + random.nextDouble() / 2));
    }

    /**
     * Returns the time until the next refresh: a little less than the interval, so that clients drift apart, and always
     * while a third of the lease is left, so that one lost answer costs nothing.
     */
    long refresh(long interval, long left, SplittableRandom random) {
        long least = Math.max(refreshMin, MIN_REQUEST_GAP);
        long next = (long) (Math.max(interval, least) * (0.9 + random.nextDouble() / 10));
        return Math.max(Math.min(next, left / 3 * 2), Math.min(least, next));
    }
}
