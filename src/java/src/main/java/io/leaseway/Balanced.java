package io.leaseway;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;
import java.util.stream.IntStream;

/**
 * Balances load across rates, each with a lease of its own.
 *
 * <p>Each operation is assigned to a backend, in proportion to the leases, and then waits at the limiter of that
 * backend. So no lease is exceeded, and every lease is used under load. All methods may be called by several threads at
 * the same time.
 */
public final class Balanced implements AutoCloseable {
    private final Balancer<Rate> balancer;
    /** Completed by {@link #close}. */
    private final CompletableFuture<Void> closed = new CompletableFuture<>();

    private final ReentrantLock lock = new ReentrantLock();
    /** For each backend: completed while it has no capacity. */
    private final List<CompletableFuture<Void>> gone = new ArrayList<>();

    /**
     * Balances across these rates, whose order breaks ties, with {@link Balancer#RETRY}.
     *
     * @param rates the rates
     * @throws OptionException if the wants of a rate are not set
     */
    public Balanced(List<Rate> rates) {
        this(rates, Balancer.RETRY);
    }

    /**
     * Balances across these rates, whose order breaks ties. They stay open until {@link #close} closes them. The wants of
     * every rate must be set: a backend without a lease gets no operations, so its wants would be estimated as 0 forever.
     *
     * @param rates the rates
     * @param retry the back-off of failed backends
     * @throws OptionException if the wants of a rate are not set
     */
    public Balanced(List<Rate> rates, Duration retry) {
        this(rates, retry, System::nanoTime);
    }

    Balanced(List<Rate> rates, Duration retry, LongSupplier clock) {
        for (Rate rate : rates) {
            if (rate.opened.estimatesWants()) {
                throw new OptionException(
                        "wants",
                        "they are not set for " + rate.name()
                                + ": a backend without a lease gets no operations, so they cannot be estimated");
            }
        }
        balancer = new Balancer<>(rates, new long[rates.size()], retry, clock);
        for (int index = 0; index < rates.size(); index++) {
            gone.add(CompletableFuture.completedFuture(null));
            follow(index);
        }
    }

    /** Forwards the capacity of a backend, until the resource or this is closed. */
    private void follow(int index) {
        Rate rate = balancer.backends().get(index);
        boolean isClosed = rate.opened.isClosed();
        ResourceState.Current current = rate.opened.current();
        setCapacity(index, current.usable().capacity());
        if (!isClosed && !closed.isDone()) {
            current.changed().thenRun(() -> follow(index));
        }
    }

    private void setCapacity(int index, double capacity) {
        CompletableFuture<Void> ended = null;
        if (capacity > 0) {
            lock.lock();
            try {
                if (gone.get(index).isDone() && !closed.isDone()) {
                    gone.set(index, new CompletableFuture<>());
                }
            } finally {
                lock.unlock();
            }
        } else {
            ended = gone(index);
        }
        balancer.setCapacity(index, capacity);
        if (ended != null) {
            // Afterwards, so that callers who leave the backend do not pick it again.
            ended.complete(null);
        }
    }

    private CompletableFuture<Void> gone(int index) {
        lock.lock();
        try {
            return gone.get(index);
        } finally {
            lock.unlock();
        }
    }

    /**
     * Picks a backend and waits for a permit there. If the backend loses its lease meanwhile, picks another one.
     *
     * @throws InterruptedException if the thread is interrupted first; no permit was taken
     * @throws ClosedException if a backend is closed
     */
    public Balancer.Pick<Rate> acquire() throws InterruptedException {
        try {
            return acquireWithin(Nanos.FOREVER);
        } catch (TimeoutException e) {
            throw new AssertionError(e);
        }
    }

    /**
     * As {@link #acquire()}, with a timeout.
     *
     * @param timeout the maximum time to wait
     * @throws InterruptedException if the thread is interrupted first; no permit was taken
     * @throws TimeoutException if the timeout ends first; no permit was taken
     * @throws ClosedException if a backend is closed
     */
    public Balancer.Pick<Rate> acquire(Duration timeout) throws InterruptedException, TimeoutException {
        return acquireWithin(Nanos.of(timeout));
    }

    private Balancer.Pick<Rate> acquireWithin(long timeout) throws InterruptedException, TimeoutException {
        long begun = System.nanoTime();
        while (true) {
            // Before the pick, so that no change between the two is missed.
            CompletableFuture<Void> changed = balancer.changed();
            Balancer.Pick<Rate> pick = balancer.pick().orElse(null);
            long left = timeout == Nanos.FOREVER ? timeout : timeout - (System.nanoTime() - begun);
            if (closed.isDone()) {
                throw new ClosedException();
            }
            if (pick == null) {
                awaitBackend(changed, left);
            } else if (isAdmitted(pick, left)) {
                return pick;
            }
        }
    }

    /** Waits for a permit at the picked backend. Returns false if the backend loses its lease meanwhile. */
    private boolean isAdmitted(Balancer.Pick<Rate> pick, long timeout) throws InterruptedException, TimeoutException {
        CompletableFuture<Void> permit = pick.backend().acquireAsync();
        try {
            if (!permit.isDone()) {
                await(CompletableFuture.anyOf(permit, gone(pick.index())), timeout);
            }
        } catch (InterruptedException e) {
            if (!permit.cancel(false)) {
                pick.backend().refund(1);
            }
            throw e;
        } catch (TimeoutException e) {
            if (permit.cancel(false)) {
                throw e;
            }
        }
        if (permit.cancel(false)) {
            return false;
        }
        try {
            permit.join();
        } catch (CompletionException e) {
            throw new ClosedException();
        }
        return true;
    }

    /** Waits until a backend may be enabled. */
    private void awaitBackend(CompletableFuture<Void> changed, long timeout)
            throws InterruptedException, TimeoutException {
        if (balancer.backends().stream().anyMatch(rate -> rate.opened.isClosed())) {
            throw new ClosedException();
        }
        long retry = balancer.nextRetry().map(Nanos::of).orElse(Nanos.FOREVER);
        if (IntStream.range(0, balancer.backends().size()).anyMatch(balancer::isEnabled)) {
            // A back-off may have ended since the pick. There is no time left to wait for it.
            return;
        }
        try {
            await(changed, Math.min(timeout, retry));
        } catch (TimeoutException e) {
            if (timeout <= retry) {
                throw e;
            }
        }
    }

    private static void await(CompletableFuture<?> future, long timeout) throws InterruptedException, TimeoutException {
        try {
            future.get(Math.max(timeout, 0), TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            // The caller looks at the futures themselves.
        }
    }

    /**
     * Skips a backend for a while after a failure, see {@link Balancer#failed}.
     *
     * @param index the index of the backend
     */
    public void failed(int index) {
        balancer.failed(index);
    }

    /**
     * Returns the underlying balancer, for sticky sessions and draining. Its picks have no permit yet. Its shares follow
     * the leases: do not set them.
     */
    public Balancer<Rate> balancer() {
        return balancer;
    }

    /** Closes the rates. Callers that wait get {@link ClosedException}. It is idempotent. */
    @Override
    public void close() {
        closed.complete(null);
        balancer.completeChanged();
        for (int index = 0; index < balancer.backends().size(); index++) {
            gone(index).complete(null);
            balancer.backends().get(index).close();
        }
    }
}
