package io.leaseway;

import io.leaseway.internal.session.Pool;
import io.leaseway.internal.session.Usable;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A handle of a resource: its capacity and lease. All handles of a resource of one client share one lease and
 * one limiter. The lease is released when the last handle is closed. All methods may be called by several threads at
 * the same time.
 */
public abstract sealed class Resource implements AutoCloseable permits Rate, Gauge, Budget, Share {
    final ResourceState opened;
    private final AtomicBoolean isClosed = new AtomicBoolean();

    Resource(ResourceState opened) {
        this.opened = opened;
    }

    /** Returns the name of the resource. */
    public String name() {
        return opened.id;
    }

    /** Returns the capacity that may be used now. It is infinite if there is no limit. */
    public double capacity() {
        return opened.current().usable().capacity();
    }

    /** Returns where the capacity comes from. */
    public Basis basis() {
        return opened.current().usable().basis();
    }

    /** Returns a future that is completed when the capacity or its basis changes next. */
    public CompletableFuture<Void> changed() {
        return opened.current().changed().copy();
    }

    /** Returns the time until the lease expires; zero without a live lease. */
    public Duration leaseLeft() {
        Usable usable = opened.current().usable();
        return usable.basis() == Basis.LEASED
                ? Duration.ofNanos(Math.max(usable.until() - opened.client.now(), 0))
                : Duration.ZERO;
    }

    /**
     * Waits for a lease. A fallback capacity does not count.
     *
     * @param timeout the maximum time to wait
     * @throws NotReadyException if the timeout ends first; it says why there is no lease
     * @throws ClosedException if the resource is closed
     * @throws InterruptedException if the thread is interrupted first
     */
    public void ready(Duration timeout) throws InterruptedException {
        opened.client.ready(timeout, opened);
    }

    void fixWants(double wants) {
        opened.setFixedWants(Checks.wants(wants));
        opened.client.demandChanged(opened);
    }

    /**
     * Returns the priority at which the server counts this client, from the last answer. Before that it is the claimed
     * one.
     */
    public long priority() {
        return opened.effectivePriority.get();
    }

    /**
     * Returns the state of this client in the pool, if the resource is one (PRIORITY_POOL) and the server has answered.
     */
    public Optional<PoolState> pool() {
        Pool pool = opened.pool();
        return pool == null
                ? Optional.empty()
                : Optional.of(new PoolState(pool.standing(), pool.assigned(), pool.minCapacity(), pool.reason()));
    }

    /**
     * Closes the handle. With the last handle of the resource, its limiter is closed and its lease is released. Permits
     * and reservations count as handles. It is idempotent, and does not wait for the server.
     */
    @Override
    public void close() {
        if (isClosed.compareAndSet(false, true)) {
            opened.drop();
        }
    }

    /** Returns the name and the capacity, for logs. */
    @Override
    public String toString() {
        return getClass().getSimpleName() + "(" + name() + ", " + capacity() + ")";
    }

    /** Estimates the wants from now on. */
    void startEstimates() {
        opened.estimateWants();
        opened.client.demandChanged(opened);
    }
}
