package io.leaseway.internal.session;

/**
 * What the lease of a budget says besides its capacity, which is what may be spent in the period, in all.
 *
 * @param start the start of the period in Unix seconds
 * @param end the end of the period in Unix seconds, or null if the budget is spent once
 * @param startsOver all that this incarnation had counts as spent: the client continues as another one
 */
public record BudgetLease(long start, Long end, boolean startsOver) {}
