package io.leaseway;

import io.leaseway.internal.limiter.Promise;
import io.leaseway.internal.limiter.RateLimiter;
import io.leaseway.internal.limiter.Standing;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;

/**
 * A handle of a rate: a resource with a capacity in permits per second.
 *
 * <p>In any period T at most capacity · T plus the burst pass. Waiting callers are served first come, first served, and
 * a wait that is interrupted, cancelled or times out takes nothing. Permits come from the lease, so {@code try…} calls
 * never wait for a server.
 */
public final class Rate extends Resource implements Limiter {
    private static final Permit USED = () -> {};

    private final RateLimiter limiter;

    Rate(ResourceState opened) {
        super(opened);
        limiter = opened.rate;
    }

    /** Takes a permit if one is available now. */
    public boolean tryAcquire() {
        return limiter.tryAcquire(1);
    }

    /**
     * Takes n permits if they are available now, or none. A number that exceeds the burst is never available at once.
     *
     * @param n the number of permits
     */
    public boolean tryAcquire(long n) {
        return limiter.tryAcquire(Checks.count(n));
    }

    /**
     * Waits for a permit.
     *
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the limiter is closed
     */
    public void acquire() throws InterruptedException {
        acquire(1);
    }

    /**
     * Waits for n permits at once. No caller that came later is admitted before, so a large request is not starved. The
     * number may exceed the burst.
     *
     * @param n the number of permits
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the limiter is closed
     */
    public void acquire(long n) throws InterruptedException {
        try {
            limiter.acquire(Checks.count(n), Nanos.FOREVER);
        } catch (TimeoutException e) {
            throw new AssertionError(e);
        }
    }

    /**
     * As {@link #acquire(long)}, with a timeout.
     *
     * @param n the number of permits
     * @param timeout the maximum time to wait
     * @throws InterruptedException if the thread is interrupted first
     * @throws TimeoutException if the timeout ends first
     * @throws ClosedException if the limiter is closed
     */
    public void acquire(long n, Duration timeout) throws InterruptedException, TimeoutException {
        limiter.acquire(Checks.count(n), Nanos.of(timeout));
    }

    /**
     * As {@link #acquire(long, Duration)}. Returns whether the permits were taken before the timeout.
     *
     * @param n the number of permits
     * @param timeout the maximum time to wait
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the limiter is closed
     */
    public boolean tryAcquire(long n, Duration timeout) throws InterruptedException {
        try {
            acquire(n, timeout);
            return true;
        } catch (TimeoutException e) {
            return false;
        }
    }

    /** Waits for a permit without blocking. A future that is cancelled takes nothing. */
    public CompletableFuture<Void> acquireAsync() {
        return acquireAsync(1);
    }

    /**
     * Waits for n permits without blocking. A future that is cancelled takes nothing.
     *
     * @param n the number of permits
     */
    public CompletableFuture<Void> acquireAsync(long n) {
        return limiter.acquireAsync(Checks.count(n));
    }

    /**
     * Waits for n permits, for work whose cost is known only at its end. Unused permits are returned as far as the
     * burst has had room for them since, so the burst should be at least as large as a reservation: see
     * {@link ResourceOptions#window}.
     *
     * @param n the number of permits
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the limiter is closed
     */
    public Reservation reserve(long n) throws InterruptedException {
        try {
            return keep(limiter.reserve(Checks.count(n), Nanos.FOREVER));
        } catch (TimeoutException e) {
            throw new AssertionError(e);
        }
    }

    /**
     * As {@link #reserve(long)}, with a timeout.
     *
     * @param n the number of permits
     * @param timeout the maximum time to wait
     * @throws InterruptedException if the thread is interrupted first
     * @throws TimeoutException if the timeout ends first
     * @throws ClosedException if the limiter is closed
     */
    public Reservation reserve(long n, Duration timeout) throws InterruptedException, TimeoutException {
        return keep(limiter.reserve(Checks.count(n), Nanos.of(timeout)));
    }

    /**
     * Reserves n permits if they are available now.
     *
     * @param n the number of permits
     */
    public Optional<Reservation> tryReserve(long n) {
        Promise promise = limiter.tryReserve(Checks.count(n));
        return promise == null ? Optional.empty() : Optional.of(keep(promise));
    }

    /**
     * As {@link #reserve(long)}, without blocking. A future that is cancelled takes nothing.
     *
     * @param n the number of permits
     */
    public CompletableFuture<Reservation> reserveAsync(long n) {
        return limiter.acquireAsync(Checks.count(n), this::keep, Reservation::cancel);
    }

    /** Returns a permit of this rate, for {@link Client#limits}. */
    public Cost of() {
        return of(1);
    }

    /**
     * Returns n permits of this rate, for {@link Client#limits}.
     *
     * @param n the number of permits
     */
    public Cost of(long n) {
        return Cost.permits(opened, n);
    }

    private Reservation keep(Promise promise) {
        if (!opened.retain()) {
            throw new ClosedException();
        }
        return new Reservation(this, promise);
    }

    /** Ends a reservation. */
    void settle(Promise promise, long used) {
        try {
            opened.settle(promise, used);
        } finally {
            opened.drop();
        }
    }

    /**
     * Charges n permits that were used already. Missing permits become debt, which is paid from the lease before any
     * caller passes. Estimated wants rise accordingly. Closing the last handle drops the debt, and later charges.
     *
     * @param n the number of permits
     * @throws DebtExceededException if the maximum debt is exceeded; the part up to it was charged
     */
    public void charge(long n) {
        opened.charge(Checks.count(n));
    }

    /**
     * Returns n permits that passed last and were not used: as many as would be available now had they never passed,
     * which may be none. To return the permits of a certain call, reserve them.
     *
     * @param n the number of permits
     */
    public void refund(long n) {
        limiter.refund(Checks.count(n));
    }

    /** Returns the current debt in permits. */
    public long debt() {
        return limiter.debt();
    }

    /** Returns the capacity in permits per second. It is infinite if there is no limit. */
    public double limit() {
        return capacity();
    }

    /** Returns the number of permits that can be saved up at the current capacity. */
    public double burst() {
        return limiter.standing().burst();
    }

    /** Returns the permits available now, even if others wait for them. It is negative if there is debt. */
    public double available() {
        Standing standing = limiter.standing();
        return standing.available();
    }

    /**
     * Returns how long a new caller would wait for n permits if nothing changed, for a Retry-After header. It is empty
     * if that is unknown because there is no capacity.
     *
     * @param n the number of permits
     */
    public Optional<Duration> retryAfter(long n) {
        long wait = limiter.readyIn(Checks.count(n));
        return wait == RateLimiter.UNKNOWN ? Optional.empty() : Optional.of(Duration.ofNanos(wait));
    }

    /**
     * Sets the wants. A change by more than a tenth is sent at once, a smaller one with the next refresh.
     *
     * @param wants the capacity to ask for, from 0 to 10^15
     */
    public void setWants(double wants) {
        fixWants(wants);
    }

    /** Estimates the wants from now on, if they were fixed. The estimate begins with the fixed wants. */
    public void estimateWants() {
        startEstimates();
    }

    @Override
    public Permit begin() throws InterruptedException {
        acquire(1);
        return USED;
    }

    @Override
    public Permit begin(Duration timeout) throws InterruptedException, TimeoutException {
        acquire(1, timeout);
        return USED;
    }

    @Override
    public CompletableFuture<Permit> beginAsync() {
        return limiter.beginAsync(USED);
    }
}
