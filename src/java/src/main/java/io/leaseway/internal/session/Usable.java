package io.leaseway.internal.session;

import io.leaseway.Basis;

/**
 * What may be used of a resource.
 *
 * @param capacity not negative and not NaN; infinite if there is no limit
 * @param basis where the capacity comes from
 * @param until when then replaces capacity, unless the lease is refreshed before; NEVER without a lease
 * @param then the fallback capacity that may be used from until on
 */
public record Usable(double capacity, Basis basis, long until, double then) {
    /** Nothing is known yet. */
    public static final Usable UNKNOWN = new Usable(0, Basis.UNKNOWN, Times.NEVER, 0);

    /** Compares what may be used now. It ignores when that ends. */
    public boolean hasSameValue(Usable other) {
        return capacity == other.capacity && basis == other.basis;
    }

    /** Returns what may be used at now, whether or not the session has run since. */
    public Usable at(long now) {
        return now < until ? this : new Usable(then, Basis.FALLBACK, Times.NEVER, 0);
    }

    /** Returns the capacity that servers guarantee. */
    public double leased() {
        return basis == Basis.LEASED ? capacity : 0;
    }
}
