package io.leaseway;

import io.leaseway.internal.limiter.Refusal;
import java.time.Duration;
import java.util.Optional;

/** A limit refuses a request for permits of several, see {@link Limits}. Nothing was taken from any of them. */
public final class RefusedException extends LeasewayException {
    private static final long serialVersionUID = 1;

    private final int index;
    private final String resource;
    /** In nanoseconds; negative if unknown. */
    private final long retryAfter;

    RefusedException(String resource, Refusal refusal) {
        super("`" + resource + "`: "
                + (refusal.burst() == 0
                        ? "no permit is free now"
                        : "more than the " + refusal.burst() + " that can be available at once"));
        index = refusal.index();
        this.resource = resource;
        retryAfter = refusal.retryAfter();
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
