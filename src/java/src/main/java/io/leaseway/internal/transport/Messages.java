package io.leaseway.internal.transport;

import io.leaseway.internal.session.Ask;
import io.leaseway.internal.session.BudgetUse;
import io.leaseway.internal.session.Lease;
import io.leaseway.internal.session.Release;
import io.leaseway.internal.session.StreamRequest;
import io.leaseway.internal.wire.Entry;
import io.leaseway.internal.wire.GetCapacityRequest;
import io.leaseway.internal.wire.Range;
import io.leaseway.internal.wire.ReleaseCapacityRequest;
import io.leaseway.internal.wire.RenewRequest;
import io.leaseway.internal.wire.ResourceRequest;
import io.leaseway.internal.wire.Spent;
import io.leaseway.internal.wire.Usage;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** The requests of a client. */
final class Messages {
    /** The maximum amount of servers. */
    private static final double MAX_AMOUNT = 1e15;

    private Messages() {}

    static GetCapacityRequest askRequest(String client, List<Ask> asks) {
        // See the rule of the session for late answers.
        var request = GetCapacityRequest.newBuilder().setClientId(client).setDropsLate(true);
        for (Ask ask : asks) {
            request.addResource(resourceRequest(ask));
        }
        return request.build();
    }

    private static ResourceRequest resourceRequest(Ask ask) {
        var demand = ask.demand();
        var resource = ResourceRequest.newBuilder()
                .setResourceId(ask.id())
                .setPriority(demand.priority())
                .setWants(demand.amount());
        if (demand.spent() != null) {
            Lease newest = ask.has() == null ? ask.had() : ask.has();
            if (newest != null
                    && newest.token() != 0
                    && newest.token() == demand.spent().token()) {
                resource.setHas(allowance(newest, demand.spent()));
            }
            resource.setSpent(spent(demand.spent()));
        } else {
            if (ask.has() != null) {
                resource.setHas(echo(ask.has()));
            }
            if (ask.had() != null) {
                resource.setHad(echo(ask.had()));
            }
        }
        double beyond = beyondLease(demand.outstanding(), ask.has());
        if (beyond > 0) {
            resource.setOutstanding(beyond);
        }
        if (demand.usage() != null) {
            resource.setUsage(Usage.newBuilder()
                    .setRechargingFraction(demand.usage().recharging())
                    .setRequestCost(demand.usage().units())
                    .setIntervalMs(TimeUnit.NANOSECONDS.toMillis(demand.usage().interval())));
        }
        return resource.build();
    }

    /** Returns a message on a stream of renewals. */
    static RenewRequest renewRequest(String client, StreamRequest message) {
        var request = RenewRequest.newBuilder().setSequence(message.sequence());
        if (message.sequence() == 1) {
            request.setClientId(client);
        }
        for (StreamRequest.Stated stated : message.stated()) {
            request.addEntry(Entry.newBuilder().setIndex(stated.index()).setRequest(resourceRequest(stated.ask())));
        }
        for (StreamRequest.Range range : message.renewed()) {
            request.addRenew(Range.newBuilder().setFirst(range.first()).setCount(range.count()));
        }
        return request.build();
    }

    /**
     * Returns the amount in use beyond the echoed lease, which is what the protocol has. The maximum amount stands for
     * everything held.
     */
    private static double beyondLease(double outstanding, Lease has) {
        return has == null || outstanding >= MAX_AMOUNT ? outstanding : outstanding - has.capacity();
    }

    /** Returns a lease exactly as it was received. */
    private static io.leaseway.internal.wire.Lease echo(Lease lease) {
        var echo = io.leaseway.internal.wire.Lease.newBuilder()
                .setExpiryTime(lease.wire().expiryTime())
                .setRefreshInterval(lease.wire().refreshInterval())
                .setCapacity(lease.wire().capacity());
        if (lease.token() != 0) {
            echo.setToken(lease.token());
        }
        return echo.build();
    }

    /**
     * Returns the lease that gave the allowance of a budget, even if it has expired. A smaller allowance than what was
     * spent meanwhile counts as what was spent.
     */
    private static io.leaseway.internal.wire.Lease allowance(Lease lease, BudgetUse use) {
        return echo(lease).toBuilder()
                .setCapacity(Math.max(lease.wire().capacity(), use.spent()))
                .build();
    }

    private static Spent spent(BudgetUse use) {
        var spent = Spent.newBuilder()
                .setAmount(use.spent())
                .setPeriod(use.period())
                .setIncarnation(use.incarnation());
        if (use.need() > 0) {
            spent.setNeed(use.need());
        }
        return spent.build();
    }

    static ReleaseCapacityRequest releaseRequest(String client, List<Release> releases) {
        var request = ReleaseCapacityRequest.newBuilder().setClientId(client);
        boolean hasBudgets = releases.stream().anyMatch(release -> release.spent() != null);
        for (Release release : releases) {
            // A token of 0 stands for no name, because tokens and reports are matched to resources by position.
            request.addResourceId(release.id()).addToken(release.token());
            if (hasBudgets) {
                request.addSpent(release.spent() == null ? Spent.getDefaultInstance() : spent(release.spent()));
            }
        }
        return request.build();
    }

    /** Returns the peers that an answer names, without malformed addresses. */
    static List<String> peers(List<String> named) {
        List<String> addresses = new ArrayList<>();
        for (String peer : named) {
            Endpoint endpoint = endpoint(peer);
            if (endpoint != null && endpoint.scheme() != Endpoint.Scheme.TLS) {
                addresses.add(endpoint.address());
            }
        }
        return addresses;
    }

    /** Parses an address that a server has sent. Returns null if it is malformed. */
    static Endpoint endpoint(String text) {
        try {
            return Endpoint.parse(text);
        } catch (RuntimeException e) {
            return null;
        }
    }
}
