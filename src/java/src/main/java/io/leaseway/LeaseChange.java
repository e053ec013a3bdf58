package io.leaseway;

import java.time.Instant;

/**
 * A change of leased capacity, until the next change of the same resource.
 *
 * @param at when it changed
 * @param client the id of the client
 * @param resource the name of the resource
 * @param capacity the leased capacity; 0 once a lease has expired, because no server guarantees a fallback
 */
public record LeaseChange(Instant at, String client, String resource, double capacity) {}
