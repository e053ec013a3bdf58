package io.leaseway;

import java.time.Duration;

/** A resource without a limiter: its user has to respect the capacity. */
public final class Share extends Resource {
    Share(ResourceState opened) {
        super(opened);
    }

    /**
     * Sets the wants. A change by more than a tenth is sent at once, a smaller one with the next refresh.
     *
     * @param wants the capacity to ask for, from 0 to 10^15
     */
    public void setWants(double wants) {
        fixWants(wants);
    }

    /**
     * Reports usage since the last call. In a pool (PRIORITY_POOL) the server bills the units, and a client that never
     * reports is assumed to use everything. Outside of pools nothing is sent.
     *
     * @param units the units used
     * @param busy the time in which the capacity was in use
     */
    public void reportUse(long units, Duration busy) {
        opened.reportUse(Checks.count(units), Nanos.of(busy));
    }

    /**
     * Sets the amount that may be in use. While that exceeds the lease, the client reports it, and the server gives it
     * to nobody else. Infinity stands for everything held for this client. For owners that forward their leases and
     * cannot revoke them.
     *
     * @param inUse the amount
     */
    public void hold(double inUse) {
        if (Double.isNaN(inUse)) {
            throw new IllegalArgumentException("leaseway: an amount in use that is not a number");
        }
        if (opened.hold(inUse)) {
            opened.client.demandChanged(opened);
        }
    }
}
