package io.leaseway;

import io.leaseway.internal.limiter.Refusal;
import java.time.Duration;
import java.util.Optional;

/**
 * A limit refuses a request for several, see {@link Limits}. Nothing was taken from any of them. It is no error of the
 * program, so it has no stack trace.
 */
public final class RefusedException extends LeasewayException {
    private static final long serialVersionUID = 1;

    private final int index;
    private final String resource;
    /** In nanoseconds; negative if unknown. */
    private final long retryAfter;

    RefusedException(Cost cost, Refusal refusal) {
        super("`" + cost.resource() + "`: " + reason(cost, refusal));
        index = refusal.index();
        resource = cost.resource();
        retryAfter = refusal.retryAfter();
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }

    private static String reason(Cost cost, Refusal refusal) {
        if (refusal.burst() != 0) {
            return "more than the " + refusal.burst() + " that can be available at once";
        }
        return cost.isBudget() ? "the allowance does not cover the amount now" : "no permit is free now";
    }

    /** Returns the index of the limit. If several refuse, it is the one whose permits will be available last. */
    public int index() {
        return index;
    }

    /** Returns the name of its resource. */
    public String resource() {
        return resource;
    }

    /**
     * Returns when to try again: the permits of all limits will be available after this time, if nothing changes. It is
     * empty if that is unknown, or never at the current capacity.
     */
    public Optional<Duration> retryAfter() {
        return retryAfter < 0 ? Optional.empty() : Optional.of(Duration.ofNanos(retryAfter));
    }
}
