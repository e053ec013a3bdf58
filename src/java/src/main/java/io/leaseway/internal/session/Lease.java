package io.leaseway.internal.session;

/**
 * A lease as its holder knows it.
 *
 * @param capacity the amount that may be used: finite and not negative
 * @param end the expiry, counted from when the request was sent: never later than the server believes
 * @param refresh the refresh interval
 * @param token the name of the lease; 0 if the server speaks only the original protocol
 * @param wire the fields that requests echo
 * @param budget the period of a budget, or null
 */
public record Lease(double capacity, long end, long refresh, long token, Wire wire, BudgetLease budget) {
    /** Returns whether the lease has not expired at now. */
    public boolean isLive(long now) {
        return now < end;
    }

    /** Returns this lease with another expiry, which is expiryTime on the wire. */
    Lease renewed(long newEnd, long expiryTime) {
        var renewed = new Wire(expiryTime, wire.refreshInterval, wire.capacity);
        return new Lease(capacity, newEnd, refresh, token, renewed, budget);
    }

    /**
     * The fields of a lease that requests echo exactly as they were received.
     *
     * @param expiryTime seconds since the epoch
     * @param refreshInterval seconds
     * @param capacity the granted amount
     */
    public record Wire(long expiryTime, long refreshInterval, double capacity) {}

    /** Turns a granted amount into a capacity. Negative numbers and NaN count as 0: they must not open a limiter. */
    static double granted(double amount) {
        return amount > 0 ? amount : 0;
    }

    /** Turns a safe capacity as sent by a server into a capacity. A negative number means unlimited. */
    static double safe(double amount) {
        return amount < 0 ? Double.POSITIVE_INFINITY : granted(amount);
    }
}
