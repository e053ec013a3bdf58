package io.leaseway;

import io.leaseway.internal.limiter.Burst;
import io.leaseway.internal.limiter.RateLimiter;
import java.time.Duration;
import java.util.Objects;

/**
 * The settings of a resource. All handles of a resource share the settings of the first one. Others may leave them out,
 * or repeat them.
 */
public final class ResourceOptions {
    private final Mode modeOfClient;
    /** null means that it was not set, here and below. */
    private Double wants;

    private Long priority;
    private Mode mode;
    private Burst burst;
    private Long maxDebt;

    ResourceOptions(Mode modeOfClient) {
        this.modeOfClient = modeOfClient;
    }

    /** Returns the wants, or null if they are estimated. */
    Double wants() {
        return wants;
    }

    long priority() {
        return priority == null ? 0 : priority;
    }

    Mode mode() {
        return mode == null ? modeOfClient : mode;
    }

    Burst burst() {
        return burst == null ? Burst.SMOOTH : burst;
    }

    long maxDebt() {
        return maxDebt == null ? RateLimiter.DEFAULT_MAX_DEBT : maxDebt;
    }

    /**
     * Checks the settings of another handle of a resource that these have opened. wantsNow are its wants if they were
     * changed since, or null.
     */
    void checkOther(ResourceOptions other, Double wantsNow) {
        if (other.wants != null && !other.wants.equals(wantsNow)) {
            check("wants", other.wants, wants == null ? "estimated ones" : wants);
        }
        check("priority", other.priority, priority());
        check("mode", other.mode, mode());
        check("burst", other.burst, burst());
        check("maximum debt", other.maxDebt, maxDebt());
    }

    private static void check(String setting, Object other, Object first) {
        if (other != null && !other.equals(first)) {
            throw new OptionException(
                    setting, other + ", but the resource is open with " + first + ": handles share their settings");
        }
    }

    /**
     * Sets the capacity to ask for. By default it is estimated from the permits that callers take or wait for.
     *
     * @param capacity the wants, from 0 to 10^15
     */
    public ResourceOptions wants(double capacity) {
        this.wants = Checks.wants(capacity);
        return this;
    }

    /**
     * Sets the priority that this client claims (default 0). Its meaning depends on the resource.
     *
     * @param claimed the priority
     */
    public ResourceOptions priority(long claimed) {
        this.priority = claimed;
        return this;
    }

    /**
     * Sets what to use once the lease has expired. The default is the mode of the client.
     *
     * @param fallback the mode
     */
    public ResourceOptions mode(Mode fallback) {
        this.mode = Objects.requireNonNull(fallback);
        return this;
    }

    /**
     * Sets the number of permits of a rate that may pass at once after a pause. The default is one permit plus 20 ms of
     * the capacity.
     *
     * @param permits the number of permits, not negative
     */
    public ResourceOptions burst(double permits) {
        if (!(permits >= 0)) {
            throw new OptionException("burst", permits + " is not a number of permits");
        }
        this.burst = Burst.permits(permits);
        return this;
    }

    /**
     * Lets a rate save up the capacity of this duration, for callers that rest and come back, and for budgets per
     * second, minute or day. When the capacity is cut, saved permits are cut in proportion.
     *
     * @param duration the duration, not negative
     */
    public ResourceOptions window(Duration duration) {
        if (duration.isNegative()) {
            throw new OptionException("window", duration + " is negative");
        }
        this.burst = Burst.window(duration.getSeconds() + duration.getNano() / 1e9);
        return this;
    }

    /**
     * Sets the maximum debt of a rate due to charges (default 1,000,000), see {@link Rate#charge}.
     *
     * @param permits the maximum debt in permits
     */
    public ResourceOptions maxDebt(long permits) {
        this.maxDebt = Checks.count(permits);
        return this;
    }
}
