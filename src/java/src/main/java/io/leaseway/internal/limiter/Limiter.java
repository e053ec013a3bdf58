package io.leaseway.internal.limiter;

import io.leaseway.ClosedException;
import io.leaseway.internal.limiter.Waiter.State;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * Adds a lock, a clock and a timer to a queue. The timer runs only while callers wait for time to pass. The lock is
 * never held while a caller waits, and no code of callers runs under it.
 */
public abstract class Limiter {
    /** Waits without a timeout. */
    public static final long FOREVER = Long.MAX_VALUE;

    /** The time until permits are available if that is unknown. */
    public static final long UNKNOWN = Meter.UNKNOWN;

    /** The default maximum debt, in permits. */
    public static final long DEFAULT_MAX_DEBT = Bucket.DEFAULT_MAX_DEBT;

    /** The longest timer in nanoseconds. At its end the head of the queue is checked again. */
    private static final long MAX_TIMER = 3_600_000_000_000L;

    /** A time in the past. */
    private static final long AT_ONCE = 0;

    static final ScheduledThreadPoolExecutor TIMERS = newTimers();

    private static final AtomicLong CREATED = new AtomicLong();

    final FairQueue queue;
    /** The place in the order in which several limiters are locked. */
    final long rank = CREATED.getAndIncrement();

    private final ReentrantLock lock = new ReentrantLock();
    private final Executor executor;
    private final long start;
    private ScheduledFuture<?> timer;
    /** The time that the timer is set for, or NEVER. */
    private long armed = Meter.NEVER;

    Limiter(long start, Meter meter, Runnable onPressure, Executor executor) {
        this.start = start;
        this.executor = executor;
        queue = new FairQueue(meter, onPressure);
    }

    private static ScheduledThreadPoolExecutor newTimers() {
        var timers = new ScheduledThreadPoolExecutor(1, task -> {
            var thread = new Thread(null, task, "leaseway-timer", 0, false);
            thread.setDaemon(true);
            return thread;
        });
        timers.setRemoveOnCancelPolicy(true);
        return timers;
    }

    /** Returns the time since the start on the monotonic clock. */
    final long now() {
        return System.nanoTime() - start;
    }

    /** Begins a use of the queue. Returns the time. */
    final long lock() {
        long now = now();
        lock.lock();
        queue.tick(now);
        return now;
    }

    /** Begins a use of the queue that begins with a tick itself. */
    final void lockOnly() {
        lock.lock();
    }

    /** Ends a use of the queue, and wakes the waiters that were admitted meanwhile. No other limiter may be locked. */
    final void unlock() {
        List<Waiter> resolved;
        List<Ticket> advanced;
        try {
            arm(queue.wake());
            resolved = queue.takeResolved();
            advanced = queue.takeAdvanced();
        } finally {
            lock.unlock();
        }
        if (!resolved.isEmpty()) {
            wake(resolved);
        }
        if (!advanced.isEmpty()) {
            JointLimiter.advanceAll(advanced);
        }
    }

    /** As unlock, for one of several locked limiters: adds the waiters to wake and the tickets to advance. */
    final void unlock(List<Waiter> resolved, List<Ticket> advanced) {
        try {
            arm(queue.wake());
            resolved.addAll(queue.takeResolved());
            advanced.addAll(queue.takeAdvanced());
        } finally {
            lock.unlock();
        }
    }

    /**
     * Ends a use of the queue by a thread that may hold locks of the client. Waking waiters may run code of callers, so
     * the timer does it.
     */
    final void unlockAndWakeLater() {
        try {
            arm(queue.hasResolved() ? AT_ONCE : queue.wake());
        } finally {
            lock.unlock();
        }
    }

    static void wake(List<Waiter> resolved) {
        for (Waiter waiter : resolved) {
            wake(waiter.wake);
        }
    }

    /** Wakes a waiter. An error must not keep others from being woken, nor reach the caller that made way for it. */
    static void wake(Runnable wake) {
        try {
            wake.run();
        } catch (RuntimeException | Error e) {
            Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, e);
        }
    }

    final Executor executor() {
        return executor;
    }

    /** Sets the timer, or stops it if at is NEVER. */
    private void arm(long at) {
        if (at == armed) {
            return;
        }
        armed = Meter.NEVER;
        if (timer != null) {
            timer.cancel(false);
            timer = null;
        }
        if (at == Meter.NEVER) {
            return;
        }
        try {
            // A thread that was held up between reading the clock and taking the lock may see a time in the past.
            timer = TIMERS.schedule(this::fire, Math.min(at - now(), MAX_TIMER), TimeUnit.NANOSECONDS);
            armed = at;
        } catch (OutOfMemoryError e) {
            // The thread of the timers cannot be started. The next use of the limiter, at the latest a refresh of the
            // lease, tries again.
        }
    }

    private void fire() {
        lock();
        armed = Meter.NEVER;
        unlock();
    }

    /** Waits for n permits at once. Nothing is taken if there is an exception. */
    public final void acquire(long n, long timeout) throws InterruptedException, TimeoutException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        Thread thread = Thread.currentThread();
        long now = now();
        Waiter waiter;
        lockOnly();
        try {
            waiter = queue.acquire(now, n, () -> LockSupport.unpark(thread));
        } finally {
            unlock();
        }
        if (waiter != null) {
            await(waiter, timeout == FOREVER ? FOREVER : now + Math.min(timeout, FOREVER - now - 1));
        }
    }

    private void await(Waiter waiter, long deadline) throws InterruptedException, TimeoutException {
        while (waiter.state == State.QUEUED) {
            if (deadline == FOREVER) {
                LockSupport.park(this);
            } else {
                LockSupport.parkNanos(this, Math.max(deadline - now(), 1));
            }
            if (waiter.state != State.QUEUED) {
                break;
            }
            boolean isInterrupted = Thread.interrupted();
            if (isInterrupted || now() >= deadline) {
                leave(waiter);
                if (isInterrupted) {
                    throw new InterruptedException();
                }
                throw new TimeoutException("leaseway: no permit before the timeout");
            }
        }
        lock.lock();
        try {
            queue.finish(waiter);
        } finally {
            lock.unlock();
        }
    }

    private void leave(Waiter waiter) {
        long now = lock();
        try {
            queue.leave(now, waiter);
        } finally {
            unlock();
        }
    }

    /**
     * Waits for n permits at once without blocking. make turns the promise of the permits into the result. If the
     * future has ended otherwise by then, such as by a cancellation or a timeout, nothing is taken; discard undoes a result that came
     * a moment too late.
     */
    public final <T> CompletableFuture<T> acquireAsync(long n, Function<Promise, T> make, Consumer<T> discard) {
        var future = new CompletableFuture<T>();
        var delivery = new Delivery<>(future, make, discard);
        Promise promise = null;
        long now = now();
        lockOnly();
        try {
            delivery.waiter = queue.acquire(now, n, delivery::submit);
            if (delivery.waiter == null) {
                promise = queue.meter().promise(n);
            }
        } catch (ClosedException e) {
            return CompletableFuture.failedFuture(e);
        } finally {
            unlock();
        }
        if (promise != null) {
            delivery.complete(promise);
            return future;
        }
        future.whenComplete((result, error) -> {
            State state = delivery.waiter.state;
            if (state == State.QUEUED || state == State.ADMITTED) {
                leave(delivery.waiter);
            }
        });
        return future;
    }

    /** Completes a future once its waiter is no longer queued. */
    private final class Delivery<T> implements Runnable {
        private final CompletableFuture<T> future;
        private final Function<Promise, T> make;
        private final Consumer<T> discard;
        private Waiter waiter;

        Delivery(CompletableFuture<T> future, Function<Promise, T> make, Consumer<T> discard) {
            this.future = future;
            this.make = make;
            this.discard = discard;
        }

        void submit() {
            Futures.execute(executor, this);
        }

        @Override
        public void run() {
            Promise promise = null;
            lock.lock();
            try {
                if (waiter.state == State.ADMITTED) {
                    promise = waiter.promise;
                    waiter.state = State.FINISHED;
                }
            } finally {
                lock.unlock();
            }
            if (promise != null) {
                complete(promise);
            } else if (waiter.state == State.REFUSED) {
                future.completeExceptionally(new ClosedException());
            }
        }

        void complete(Promise promise) {
            Futures.complete(future, () -> make.apply(promise), discard);
        }
    }

    /** Takes n permits if they are available and no caller waits. Refused permits are demand, too. */
    public final boolean tryAcquire(long n) {
        long now = now();
        lockOnly();
        try {
            return queue.tryAcquire(now, n);
        } finally {
            unlock();
        }
    }

    /** Returns the current capacity. */
    public final double capacity() {
        lock();
        try {
            return queue.meter().capacity();
        } finally {
            unlockAndWakeLater();
        }
    }

    /** Closes the limiter: waiting and new callers get a ClosedException. */
    public final void close() {
        long now = lock();
        try {
            queue.close(now);
        } finally {
            unlock();
        }
    }

    /** Returns the permits that are waited for now. */
    public final long waiting() {
        lock();
        try {
            return queue.waiting();
        } finally {
            unlockAndWakeLater();
        }
    }

    /** Returns the permits requested so far: granted, waited for, cancelled, refused or charged. */
    public final long arrived() {
        lock();
        try {
            return queue.arrived();
        } finally {
            unlockAndWakeLater();
        }
    }

    /** Returns the permits taken and not returned so far. */
    public final long taken() {
        lock();
        try {
            return queue.meter().taken();
        } finally {
            unlockAndWakeLater();
        }
    }
}
