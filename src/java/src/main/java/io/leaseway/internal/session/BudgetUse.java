package io.leaseway.internal.session;

/**
 * The report of a client of a budget.
 *
 * @param spent all that this incarnation has spent in the period
 * @param period the start of the period in Unix seconds; 0 before the first lease
 * @param incarnation the random number of the incarnation
 * @param need the smallest useful slice
 * @param token the name of the lease that gave the allowance, or 0; requests name no other
 * @param isShort whether a larger allowance is needed soon
 */
public record BudgetUse(double spent, long period, long incarnation, double need, long token, boolean isShort) {
    /** Returns whether this differs so much from the report that was sent last that it should not wait for a refresh. */
    boolean isUrgent(BudgetUse sent) {
        boolean hasGrown = spent > sent.spent || need > sent.need;
        return incarnation != sent.incarnation || period != sent.period || isShort && hasGrown;
    }
}
