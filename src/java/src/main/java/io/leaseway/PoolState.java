package io.leaseway;

/**
 * The state of a client in a pool (PRIORITY_POOL).
 *
 * @param standing the standing of the client
 * @param assigned the assignment of the client; 0 if it has none
 * @param minCapacity the minimum useful capacity: a client has nothing, or at least this much
 * @param reason why it has nothing, if the server says so, else empty
 */
public record PoolState(PoolStanding standing, double assigned, double minCapacity, String reason) {}
