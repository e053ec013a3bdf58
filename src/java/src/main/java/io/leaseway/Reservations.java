package io.leaseway;

import io.leaseway.internal.limiter.JointBudgets.Amounts;
import io.leaseway.internal.limiter.Promise;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Permits and amounts of several limits for work whose cost is known only at its end. All of them are used unless they
 * are settled. They have to be settled or closed: until then they keep their resources open.
 */
public final class Reservations implements AutoCloseable {
    private final Limits limits;
    private final Amounts amounts;
    private final Promise[] promises;
    private final AtomicBoolean isSettled = new AtomicBoolean();

    Reservations(Limits limits, Amounts amounts, Promise[] promises) {
        this.limits = limits;
        this.amounts = amounts;
        this.promises = promises;
    }

    /** Returns the number of permits, or the amount, taken of each limit. */
    public double[] reserved() {
        return limits.numbers();
    }

    /**
     * Settles for what was used. Each rate or budget gets back what was not used, or is charged for the excess, see
     * {@link Reservation#settle} and {@link BudgetReservation#settle}. The permits of gauges are returned; their numbers
     * are ignored. Only the first call counts.
     *
     * @param used one number for each limit, in order; those of rates are whole
     * @throws DebtExceededException if the maximum debt of a rate is exceeded; it names the first one, and all are
     *     settled
     */
    public void settle(double... used) {
        limits.check(used);
        if (isSettled.compareAndSet(false, true)) {
            limits.settle(amounts, promises, used);
        }
    }

    /** Settles for nothing. */
    public void cancel() {
        settle(new double[promises.length]);
    }

    /** Settles for everything that was reserved, unless they were settled already. */
    @Override
    public void close() {
        settle(reserved());
    }
}
