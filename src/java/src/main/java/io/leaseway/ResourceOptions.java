package io.leaseway;

import io.leaseway.internal.limiter.Burst;
import io.leaseway.internal.limiter.RateLimiter;
import java.time.Duration;
import java.util.Objects;

/** The settings of a resource. All handles of a resource share the settings of the first one. */
public final class ResourceOptions {
    Double wants;
    long priority;
    Mode mode;
    Burst burst = Burst.SMOOTH;
    long maxDebt = RateLimiter.DEFAULT_MAX_DEBT;

    ResourceOptions(Mode mode) {
        this.mode = mode;
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
