package io.leaseway.internal.limiter;

/**
 * The state of a rate.
 *
 * @param available the permits available now, even if others wait for them; infinite if unlimited, negative if there is
 *     debt
 * @param burst the maximum that can be saved up
 * @param capacity permits per second
 */
public record Standing(double available, double burst, double capacity) {}
