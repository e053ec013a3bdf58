package io.leaseway;

import io.leaseway.internal.limiter.GaugeLimiter;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A handle of a gauge: a resource with a number of permits in use at the same time, such as connections, transactions
 * or jobs.
 *
 * <p>At most as many whole permits are in use as the capacity allows. When the capacity is cut, permits in use stay
 * valid: no new ones are granted until enough were released, and meanwhile the client reports what is still in use, so
 * that the server gives it to nobody else.
 */
public final class Gauge extends Resource implements Limiter {
    private final GaugeLimiter limiter;

    Gauge(ResourceState opened) {
        super(opened);
        limiter = opened.gauge;
    }

    /**
     * Waits for a permit, which is in use until it is closed.
     *
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the limiter is closed
     */
    public Permit acquire() throws InterruptedException {
        return acquire(1);
    }

    /**
     * Waits for n permits at once. No caller that came later is admitted before.
     *
     * @param n the number of permits
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the limiter is closed
     */
    public Permit acquire(long n) throws InterruptedException {
        try {
            limiter.acquire(Checks.count(n), Nanos.FOREVER);
        } catch (TimeoutException e) {
            throw new AssertionError(e);
        }
        return keep(n);
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
    public Permit acquire(long n, Duration timeout) throws InterruptedException, TimeoutException {
        limiter.acquire(Checks.count(n), Nanos.of(timeout));
        return keep(n);
    }

    /** Takes a permit if one is free now. */
    public Optional<Permit> tryAcquire() {
        return tryAcquire(1);
    }

    /**
     * Takes n permits if they are free now, or none.
     *
     * @param n the number of permits
     */
    public Optional<Permit> tryAcquire(long n) {
        return limiter.tryAcquire(Checks.count(n)) ? Optional.of(keep(n)) : Optional.empty();
    }

    /**
     * As {@link #acquire(long, Duration)}. It is empty if the timeout ends first.
     *
     * @param n the number of permits
     * @param timeout the maximum time to wait
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the limiter is closed
     */
    public Optional<Permit> tryAcquire(long n, Duration timeout) throws InterruptedException {
        try {
            return Optional.of(acquire(n, timeout));
        } catch (TimeoutException e) {
            return Optional.empty();
        }
    }

    /** Waits for a permit without blocking. A future that is cancelled takes nothing. */
    public CompletableFuture<Permit> acquireAsync() {
        return acquireAsync(1);
    }

    /**
     * Waits for n permits without blocking. A future that is cancelled takes nothing.
     *
     * @param n the number of permits
     */
    public CompletableFuture<Permit> acquireAsync(long n) {
        Checks.count(n);
        return limiter.acquireAsync(n, () -> keep(n), Permit::close);
    }

    /** Returns a permit of this gauge, for {@link Client#limits}. */
    public Cost of() {
        return of(1);
    }

    /**
     * Returns n permits of this gauge, for {@link Client#limits}.
     *
     * @param n the number of permits
     */
    public Cost of(long n) {
        return Cost.permits(opened, n);
    }

    private Permit keep(long n) {
        if (!opened.retain()) {
            limiter.release(n);
            throw new ClosedException();
        }
        return new Held(n);
    }

    private final class Held extends AtomicBoolean implements Permit {
        private static final long serialVersionUID = 1;
        private final long n;

        Held(long n) {
            this.n = n;
        }

        @Override
        public void close() {
            if (compareAndSet(false, true)) {
                limiter.release(n);
                opened.drop();
            }
        }
    }

    /** Returns the permits in use. */
    public long inUse() {
        return limiter.inUse();
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
        return acquire(1);
    }

    @Override
    public Permit begin(Duration timeout) throws InterruptedException, TimeoutException {
        return acquire(1, timeout);
    }

    @Override
    public CompletableFuture<Permit> beginAsync() {
        return acquireAsync(1);
    }
}
