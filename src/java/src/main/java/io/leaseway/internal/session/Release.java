package io.leaseway.internal.session;

/**
 * One resource to release.
 *
 * @param id the name of the resource
 * @param token the name of the newest lease; 0 if the lease has no name
 * @param spent the last report of a budget, or null
 */
public record Release(String id, long token, BudgetUse spent) {}
