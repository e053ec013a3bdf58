package io.leaseway.internal.session;

import io.leaseway.PoolStanding;

/**
 * The state of a client in a pool (PRIORITY_POOL).
 *
 * @param standing the standing of the client
 * @param assigned the assignment of the client; 0 if it has none
 * @param minCapacity the minimum useful capacity: a client has nothing, or at least this much
 * @param reason why it has nothing, or empty
 * @param burst how much capacity a rate may save up, as time at full capacity; negative if the server does not say
 */
public record Pool(PoolStanding standing, double assigned, double minCapacity, String reason, long burst) {
    /** The maximum burst of a pool. */
    public static final long MAX_BURST = 3600 * Times.SECOND;
}
