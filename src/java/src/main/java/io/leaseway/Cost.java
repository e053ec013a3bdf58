package io.leaseway;

import io.leaseway.internal.limiter.BudgetBook;
import io.leaseway.internal.limiter.JointBudgets.Need;

/** What an operation costs at one limit: see {@link Rate#of}, {@link Gauge#of} and {@link Budget#of}. */
public final class Cost {
    final ResourceState opened;
    private final long permits;
    private final double amount;

    private Cost(ResourceState opened, long permits, double amount) {
        this.opened = opened;
        this.permits = permits;
        this.amount = amount;
    }

    static Cost permits(ResourceState opened, long n) {
        return new Cost(opened, Checks.count(n), 0);
    }

    static Cost amount(ResourceState opened, double amount) {
        return new Cost(opened, 0, BudgetBook.check(amount));
    }

    /** Returns the cost of another number of permits or another amount at this limit. */
    Cost with(double number) {
        return isBudget() ? amount(opened, number) : permits(opened, Checks.wholeCount(number));
    }

    boolean isBudget() {
        return opened.spender != null;
    }

    Need need() {
        return new Need(opened.limiter(), permits, opened.spender, amount);
    }

    /** Returns the name of the resource. */
    public String resource() {
        return opened.id;
    }

    /** Returns the number of permits, or the amount of a budget. */
    public double number() {
        return isBudget() ? amount : permits;
    }
}
