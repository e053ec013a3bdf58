package io.leaseway.internal.session;

/**
 * One lease of an answer.
 *
 * @param id the name of the resource
 * @param length the length of the lease, counted from when the request was sent
 * @param refresh the refresh interval
 * @param token the name of the lease; 0 if it has none
 * @param wire the fields that requests echo
 * @param safe the safe capacity, or null
 * @param budget the period of a budget, or null
 */
public record Given(
        String id, long length, long refresh, long token, Lease.Wire wire, Double safe, BudgetLease budget) {
    /** Returns this lease as one of another resource. */
    public Given named(String other) {
        return new Given(other, length, refresh, token, wire, safe, budget);
    }
}
