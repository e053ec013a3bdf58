package io.leaseway.internal.session;

/**
 * One resource of a request for capacity.
 *
 * @param id the name of the resource
 * @param demand the demand
 * @param has the newest lease while it is live, or null
 * @param had the newest lease once it has expired, or null: a new master may still find it among the stored promises
 */
public record Ask(String id, Wants demand, Lease has, Lease had) {}
