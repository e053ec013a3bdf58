package io.leaseway.internal.session;

import io.leaseway.Basis;
import io.leaseway.Mode;
import io.leaseway.internal.session.RenewalStream.Place;

/** The state of one resource. */
final class Entry {
    /**
     * Resources join a message of others on a stream if they are due within this part of their refresh interval: jitter
     * spreads refreshes over a tenth of it.
     */
    private static final long JOINS_PART = 5;

    Wants demand;
    Mode mode;
    /** The demand in the last request, or null. */
    Wants asked;
    /** The newest lease, or null. */
    Lease lease;
    /** The length of the lease, counted from when its request was sent. */
    long length;
    /** Its place on a stream of renewals. */
    Place place = Place.NONE;
    /** The request in flight that renews the lease by its index on a stream; 0 if there is none. */
    long renewedBy;
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

    /** Returns whether the last request was one of another incarnation of this client of a budget. */
    boolean isOfOtherIncarnation() {
        BudgetUse report = demand.spent();
        BudgetUse sent = asked == null ? null : asked.spent();
        return report != null && (sent == null || sent.incarnation() != report.incarnation());
    }

    Lease liveLease(long now) {
        return lease != null && lease.isLive(now) ? lease : null;
    }

    /**
     * Returns whether it is due, or soon enough to join a message of others on a stream. In a steady state all
     * resources are, once per refresh interval. If one is due early, as after a cut or a hint, it does not renew all
     * others.
     */
    boolean joins(long now) {
        long ahead = lease == null ? 0 : lease.refresh() / JOINS_PART;
        return due != Times.NEVER && due <= Times.after(now, ahead) && notBefore <= now;
    }

    /** Returns whether its index on this stream stands for a request that names its lease and its demand. */
    boolean isRenewable(long stream, long now) {
        return place.stream() == stream
                && place.isKnown()
                && liveLease(now) != null
                && asked != null
                && demand.isSame(asked);
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
