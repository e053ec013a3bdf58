package io.leaseway;

import io.leaseway.internal.limiter.BudgetBook;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * An amount of a budget for work whose cost is known only at its end. All of it is spent unless it is settled. It has to
 * be settled or closed: until then it keeps its budget open.
 */
public final class BudgetReservation implements AutoCloseable {
    private final Budget budget;
    private final double reserved;
    private final long era;
    private final AtomicBoolean isSettled = new AtomicBoolean();

    BudgetReservation(Budget budget, double reserved, long era) {
        this.budget = budget;
        this.reserved = reserved;
        this.era = era;
    }

    /** Returns the amount reserved. */
    public double reserved() {
        return reserved;
    }

    /**
     * Settles for what was used. Takes back what is left of the reservation, unless its period has ended. Usage beyond
     * the reservation is charged, see {@link Budget#charge}. Only the first call counts.
     *
     * @param used the amount used
     */
    public void settle(double used) {
        BudgetBook.check(used);
        if (isSettled.compareAndSet(false, true)) {
            budget.settle(reserved, used, era);
        }
    }

    /** Settles for nothing. */
    public void cancel() {
        settle(0);
    }

    /** Settles for everything that was reserved, unless it was settled already. */
    @Override
    public void close() {
        settle(reserved);
    }
}
