package io.leaseway.internal.transport;

import static io.leaseway.internal.session.Times.MILLISECOND;
import static io.leaseway.internal.session.Times.SECOND;

import io.grpc.Status;
import io.leaseway.PoolStanding;
import io.leaseway.internal.session.BudgetLease;
import io.leaseway.internal.session.Given;
import io.leaseway.internal.session.Lease.Wire;
import io.leaseway.internal.session.Pool;
import io.leaseway.internal.session.StreamReply;
import io.leaseway.internal.wire.GetCapacityResponse;
import io.leaseway.internal.wire.Grant;
import io.leaseway.internal.wire.Lease;
import io.leaseway.internal.wire.Mastership;
import io.leaseway.internal.wire.PoolState;
import io.leaseway.internal.wire.Problem;
import io.leaseway.internal.wire.ReleaseCapacityResponse;
import io.leaseway.internal.wire.RenewResponse;
import io.leaseway.internal.wire.ResourceResponse;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntFunction;

/** The answer of a server to a request. */
public final class Answer {
    /** Bounds lease lengths, so that they can be added to any time. */
    private static final long MAX_LEASE_SECONDS = 10L * 365 * 86_400;

    private boolean isRedirect;
    private String master;
    private int leftOut;
    private String why = "";
    private final List<Given> given = new ArrayList<>();
    private final List<String> malformed = new ArrayList<>();
    private final Map<String, Pool> pools = new HashMap<>();
    private final Map<String, Long> priorities = new HashMap<>();

    private StreamReply renewed;
    /** The answered resources of a stream of renewals, by index. */
    private final Map<Integer, ResourceResponse> resources = new HashMap<>();

    private Answer() {}

    /** Returns whether the server is not the master. */
    public boolean isRedirect() {
        return isRedirect;
    }

    /** Returns the master that a redirect names, as HOST:PORT, or null if the server knows of none. */
    public String master() {
        return master;
    }

    /** Returns the answer on a stream of renewals, or null. */
    public StreamReply renewed() {
        return renewed;
    }

    /** Returns new leases; those on a stream of renewals only after nameRenewed. */
    public List<Given> given() {
        return given;
    }

    /** Returns the names of the resources of malformed leases. */
    public List<String> malformed() {
        return malformed;
    }

    /** Returns the states of the answered resources that are pools. */
    public Map<String, Pool> pools() {
        return pools;
    }

    /** Returns the priorities at which the server counts this client, where the answer has them. */
    public Map<String, Long> priorities() {
        return priorities;
    }

    /** Returns the number of resources that were left out for a reason that lasts. */
    public int leftOut() {
        return leftOut;
    }

    /** Returns the first such reason. */
    public String why() {
        return why;
    }

    /**
     * Reads the answer to a request for capacity, which was sent at a time. If everything was refused, because the
     * request is invalid or a limit was reached, the answer is an error.
     */
    static Answer of(int asked, GetCapacityResponse response, Instant sent) {
        Problem problem = lastingProblem(response.getProblemList());
        if (problem != null && response.getResponseCount() == 0) {
            boolean isInvalid = problem.getReason().equals("bad_value")
                    || problem.getReason().equals("bad_id");
            throw (isInvalid ? Status.INVALID_ARGUMENT : Status.RESOURCE_EXHAUSTED)
                    .withDescription(problem.getMessage())
                    .asRuntimeException();
        }
        var answer = new Answer();
        if (response.hasMastership()) {
            answer.redirect(response.getMastership());
            return answer;
        }
        for (ResourceResponse resource : response.getResponseList()) {
            String id = resource.getResourceId();
            Given lease = readLease(resource, sent);
            if (lease == null) {
                answer.malformed.add(id);
            } else {
                answer.add(id, lease, resource);
            }
        }
        if (problem != null && asked > response.getResponseCount()) {
            answer.leftOut = asked - response.getResponseCount();
            answer.why = problem.getMessage();
        }
        return answer;
    }

    /** Reads the answer on a stream of renewals to a message, which was sent at a time. */
    static Answer ofRenewal(RenewResponse response, Instant sent) {
        var answer = new Answer();
        if (response.hasMastership()) {
            answer.redirect(response.getMastership());
            return answer;
        }
        List<StreamReply.Grant> granted = new ArrayList<>();
        List<Integer> leftOut = new ArrayList<>(response.getLeftOutList());
        for (Grant grant : response.getGrantList()) {
            Given lease = readLease(grant.getResponse(), sent);
            if (lease == null) {
                leftOut.add(grant.getIndex());
                answer.malformed.add("resource " + grant.getIndex() + " of the stream");
                continue;
            }
            granted.add(new StreamReply.Grant(grant.getIndex(), lease));
            answer.resources.put(grant.getIndex(), grant.getResponse());
        }
        Problem problem = lastingProblem(response.getProblemList());
        if (problem != null) {
            answer.leftOut = response.getLeftOutCount();
            answer.why = problem.getMessage();
        }
        answer.renewed = new StreamReply(response.getUnixTime(), granted, leftOut, response.hasRestart());
        return answer;
    }

    /** Adds what the answer on a stream of renewals says about resources. names returns their names, or null. */
    public void nameRenewed(IntFunction<String> names) {
        for (StreamReply.Grant grant : renewed.granted()) {
            String id = names.apply(grant.index());
            if (id != null) {
                add(id, grant.given().named(id), resources.get(grant.index()));
            }
        }
    }

    /** Reads the answer to a release. */
    static Answer ofRelease(ReleaseCapacityResponse response) {
        var answer = new Answer();
        if (response.hasMastership()) {
            answer.redirect(response.getMastership());
        }
        return answer;
    }

    private void redirect(Mastership mastership) {
        isRedirect = true;
        Endpoint endpoint = Messages.endpoint(mastership.getMasterAddress());
        master = endpoint == null ? null : endpoint.address();
    }

    private void add(String id, Given lease, ResourceResponse resource) {
        given.add(lease);
        if (resource.hasPool()) {
            pools.put(id, readPool(resource.getPool()));
        }
        if (resource.hasPriority()) {
            priorities.put(id, resource.getPriority());
        }
    }

    /** Reads the lease of a response. Returns null if it is malformed. */
    private static Given readLease(ResourceResponse resource, Instant sent) {
        Lease gets = resource.getGets();
        boolean isComplete = resource.hasGets()
                && gets.hasExpiryTime()
                && gets.hasRefreshInterval()
                && gets.hasCapacity()
                && Double.isFinite(gets.getCapacity());
        if (!isComplete) {
            return null;
        }
        boolean hasSafe = resource.hasSafeCapacity() && !Double.isNaN(resource.getSafeCapacity());
        return new Given(
                resource.getResourceId(),
                leaseLength(gets, sent),
                clamp(gets.getRefreshInterval(), MAX_LEASE_SECONDS) * SECOND,
                gets.getToken(),
                new Wire(gets.getExpiryTime(), gets.getRefreshInterval(), gets.getCapacity()),
                hasSafe ? Double.valueOf(resource.getSafeCapacity()) : null,
                resource.hasBudget() ? readBudget(resource.getBudget()) : null);
    }

    /** Reads the period of a budget. Returns null if it is malformed. */
    private static BudgetLease readBudget(io.leaseway.internal.wire.BudgetLease budget) {
        return budget.hasPeriodStart()
                ? new BudgetLease(
                        budget.getPeriodStart(),
                        budget.hasPeriodEnd() ? Long.valueOf(budget.getPeriodEnd()) : null,
                        budget.getStartsOver())
                : null;
    }

    /** Returns the first problem that is not transient, or null. */
    private static Problem lastingProblem(List<Problem> problems) {
        for (Problem problem : problems) {
            if (!problem.getReason().equals("too_soon") && !problem.getReason().equals("not_yet")) {
                return problem;
            }
        }
        return null;
    }

    /**
     * Returns the length of a lease, counted from when its request was sent. A server of the original protocol sends
     * the expiry by its own clock, so the result is off by the difference of the clocks.
     */
    private static long leaseLength(Lease lease, Instant sent) {
        if (lease.hasRemainingMs()) {
            return clamp(lease.getRemainingMs(), MAX_LEASE_SECONDS * 1000) * MILLISECOND;
        }
        if (lease.getExpiryTime() < 0) {
            return 0;
        }
        long seconds = clamp(lease.getExpiryTime() - sent.getEpochSecond(), MAX_LEASE_SECONDS);
        return Math.max(seconds * SECOND - sent.getNano(), 0);
    }

    private static long clamp(long number, long most) {
        return Math.min(Math.max(number, 0), most);
    }

    /** Reads the state of a pool. Malformed numbers count as 0, because they are informational. */
    private static Pool readPool(PoolState pool) {
        long burst = -1;
        if (pool.hasBurstSeconds() && pool.getBurstSeconds() >= 0) {
            burst = (long) (Math.min(pool.getBurstSeconds(), Pool.MAX_BURST / 1e9) * 1e9);
        }
        return new Pool(
                switch (pool.getState()) {
                    case WAITING -> PoolStanding.WAITING;
                    case FREE -> PoolStanding.FREE;
                    case PRIORITY -> PoolStanding.PRIORITY;
                    case REVOKING -> PoolStanding.REVOKING;
                },
                finite(pool.getAssigned()),
                finite(pool.getMinCapacity()),
                pool.getReason(),
                burst);
    }

    private static double finite(double number) {
        return Double.isFinite(number) ? number : 0;
    }
}
