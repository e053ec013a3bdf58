package io.leaseway;

import io.leaseway.internal.limiter.Promise;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Permits of several limits for work whose cost is known only at its end. They have to be settled or cancelled: they keep
 * their resources open, and until then all of them count as used.
 */
public final class Reservations {
    private final Limits limits;
    private final Promise[] promises;
    private final AtomicBoolean isSettled = new AtomicBoolean();

    Reservations(Limits limits, Promise[] promises) {
        this.limits = limits;
        this.promises = promises;
    }

    /** Returns the number of permits taken of each limit. */
    public long[] reserved() {
        return limits.permits();
    }

    /**
     * Settles for the permits that were used. Each rate gets its unused permits back, or is charged for the excess, see
     * {@link Reservation#settle}. The permits of gauges are returned; their numbers are ignored. Only the first call
     * counts.
     *
     * @param used one number for each limit
     * @throws DebtExceededException if the maximum debt of a rate is exceeded; it names the first one, and all are
     *     settled
     */
    public void settle(long... used) {
        limits.check(used);
        if (isSettled.compareAndSet(false, true)) {
            limits.settle(promises, used);
        }
    }

    /** Settles for no permits. */
    public void cancel() {
        settle(new long[promises.length]);
    }
}
