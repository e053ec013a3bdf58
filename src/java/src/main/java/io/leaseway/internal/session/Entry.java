package io.leaseway.internal.session;

import io.leaseway.Basis;
import io.leaseway.Mode;

/** The state of one resource. */
final class Entry {
    Wants demand;
    Mode mode;
    /** The demand in the last request, or null. */
    Wants asked;
    /** The newest lease, or null. */
    Lease lease;
    /** The expiry of the lease that the last request named, or NEVER if it named none. */
    long namedUntil = Times.NEVER;
    /** The safe capacity that was last received, or null. */
    Double safe;
    /** A request has failed since the last lease was received. */
    boolean hasFailed;

    long due;
    /** The earliest time of the next request, even together with others. */
    long notBefore;
    /** A release was sent: the lease must not be used any more, even if the release is lost. */
    boolean isGivenBack;
    /** The last value given to Session.changes, or null. */
    Usable reported;

    Entry(Wants demand, Mode mode, long now) {
        this.demand = demand;
        this.mode = mode;
        this.due = now;
    }

    void schedule(long at) {
        due = Math.min(due, Math.max(at, notBefore));
    }

    Lease liveLease(long now) {
        return lease != null && lease.isLive(now) ? lease : null;
    }

    Usable usable(long now) {
        Lease live = liveLease(now);
        if (live != null) {
            return new Usable(live.capacity(), Basis.LEASED, live.end(), fallback());
        }
        if (lease == null && !hasFailed) {
            return Usable.UNKNOWN;
        }
        return new Usable(fallback(), Basis.FALLBACK, Times.NEVER, 0);
    }

    private double fallback() {
        return switch (mode) {
            case SAFE -> safe == null ? 0 : Lease.safe(safe);
            case PESSIMISTIC -> 0;
            case OPTIMISTIC -> Lease.granted(demand.amount());
        };
    }
}
