package io.leaseway;

import java.time.Duration;

/**
 * The state of an open resource.
 *
 * @param name the name of the resource
 * @param capacity the capacity that may be used now
 * @param basis where the capacity comes from
 * @param leaseLeft the time until the lease expires; zero without a live lease
 * @param wants the demand that was computed last
 * @param arrived permits requested so far; for rates and gauges
 * @param taken permits that were taken and not returned; for rates and gauges
 * @param waiting permits that callers wait for now
 * @param inUse permits of a gauge in use
 * @param debt the debt of a rate in permits
 */
public record ResourceStats(
        String name,
        double capacity,
        Basis basis,
        Duration leaseLeft,
        double wants,
        long arrived,
        long taken,
        long waiting,
        long inUse,
        long debt) {}
