package io.leaseway.internal.session;

/**
 * The demand of a client for one resource.
 *
 * @param amount the capacity to ask for
 * @param priority the claimed priority, whose meaning depends on the resource
 * @param outstanding the amount in use if that exceeds the lease, else 0; for gauges
 * @param usage the usage of the lease that is echoed with this demand, or null; for pools
 * @param spent what was spent, or null; for budgets
 */
public record Wants(double amount, long priority, double outstanding, Usage usage, BudgetUse spent) {
    /** The relative change of demand that is sent at once. */
    private static final double CHANGE_THRESHOLD = 0.1;

    public Wants(double amount) {
        this(amount, 0, 0, null);
    }

    public Wants(double amount, long priority, double outstanding, Usage usage) {
        this(amount, priority, outstanding, usage, null);
    }

    /** Returns this demand of a budget with another report. */
    Wants reporting(BudgetUse report) {
        return new Wants(amount, priority, outstanding, usage, report);
    }

    /** Returns whether this differs so much from what was last asked for that it should not wait for a refresh. */
    boolean isUrgent(Wants asked) {
        if (spent != null) {
            return asked.spent == null || spent.isUrgent(asked.spent);
        }
        return changed(amount, asked.amount) || changed(outstanding, asked.outstanding) || priority != asked.priority;
    }

    /**
     * Returns whether a renewal stands for a request with this demand. What is outstanding, was used or was spent is
     * reported with each request.
     */
    boolean isSame(Wants asked) {
        return amount == asked.amount && priority == asked.priority && isPlain() && asked.isPlain();
    }

    private boolean isPlain() {
        return outstanding == 0 && usage == null && spent == null;
    }

    private static boolean changed(double is, double was) {
        return Math.abs(is - was) > was * CHANGE_THRESHOLD;
    }
}
