package io.leaseway;

/** The standing of a client in a pool. */
public enum PoolStanding {
    /** It has nothing, and is queued. */
    WAITING,
    /** It has what clients without an assignment get. */
    FREE,
    /** It has its assignment. */
    PRIORITY,
    /** Its capacity is being revoked. */
    REVOKING
}
