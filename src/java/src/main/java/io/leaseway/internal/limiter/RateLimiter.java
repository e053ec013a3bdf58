package io.leaseway.internal.limiter;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeoutException;

/**
 * Admits callers at a rate.
 *
 * <ul>
 *   <li>In any period of T seconds at most capacity · T + burst permits are taken, plus the debt at its end if callers
 *       are charged.
 *   <li>While a caller waits no capacity is lost, unless timers are later than the burst allows for.
 *   <li>It starts without capacity and without credit, so restarting a process gains nothing.
 * </ul>
 */
public final class RateLimiter extends Limiter {
    private final Bucket bucket;

    /**
     * Creates a limiter that admits no caller before the first setUsable. Times count from start, a value of
     * System.nanoTime. It calls onPressure, with its lock held, when a caller has to queue or debt arises, and each
     * time the number of pending permits has doubled since. Futures are completed by executor.
     */
    public RateLimiter(long start, Burst burst, long maxDebt, Runnable onPressure, Executor executor) {
        this(start, new Bucket(burst, maxDebt), onPressure, executor);
    }

    private RateLimiter(long start, Bucket bucket, Runnable onPressure, Executor executor) {
        super(start, bucket, onPressure, executor);
        this.bucket = bucket;
    }

    /**
     * Sets the permits per second until the lease expires, and the capacity from then on. The server may set the burst
     * to the capacity of a number of seconds; a negative one means that it does not.
     */
    public void setUsable(double capacity, long until, double then, double bufferSeconds) {
        long now = lock();
        try {
            bucket.setBuffer(now, bufferSeconds);
            queue.setCapacity(now, capacity, until, then);
        } finally {
            unlockAndWakeLater();
        }
    }

    /** Waits for n permits without blocking. */
    public CompletableFuture<Void> acquireAsync(long n) {
        return admitAsync(n, null);
    }

    /** Waits for a permit without blocking. Returns a future of result. */
    public <T> CompletableFuture<T> beginAsync(T result) {
        return admitAsync(1, result);
    }

    private <T> CompletableFuture<T> admitAsync(long n, T result) {
        return acquireAsync(
                n,
                promise -> {
                    claim(promise);
                    return result;
                },
                unused -> refund(n));
    }

    private void claim(Promise promise) {
        lock();
        try {
            bucket.claim(promise);
        } finally {
            unlock();
        }
    }

    /** Reserves n permits if they are available and no caller waits; else returns null. */
    public Promise tryReserve(long n) {
        long now = lock();
        try {
            return queue.tryAcquire(now, n) ? bucket.promise(n) : null;
        } finally {
            unlock();
        }
    }

    /** Waits for n permits as acquire does, for work whose cost is known only at its end. */
    public Promise reserve(long n, long timeout) throws InterruptedException, TimeoutException {
        acquire(n, timeout);
        return promiseTaken(n);
    }

    /** Turns n permits that were just taken into a promise. */
    Promise promiseTaken(long n) {
        lock();
        try {
            return bucket.promise(n);
        } finally {
            unlock();
        }
    }

    /**
     * Ends a promise: it returns unused permits, and charges usage beyond it. Returns the number of permits that were
     * not charged because of the maximum debt.
     */
    public long settle(Promise promise, long used) {
        long kept = Math.min(used, promise.n());
        long now = lock();
        try {
            bucket.usePart(now, promise, kept);
            if (kept < promise.n()) {
                queue.refunded += promise.n() - kept;
                queue.admit(now);
            }
        } finally {
            unlock();
        }
        return charge(used - kept);
    }

    /**
     * Charges n permits that were used already. They are taken from the available credit, including credit saved for a
     * waiting caller; the rest becomes debt. No caller is admitted before the debt is paid. Returns the number of
     * permits that were not charged because of the maximum debt.
     */
    public long charge(long n) {
        if (n == 0) {
            return 0;
        }
        long now = lock();
        try {
            long before = queue.pending(now);
            long charged = bucket.charge(now, n);
            // A charge is demand, like a request.
            queue.arrive(charged);
            // The head of the queue has to wait longer now.
            queue.admit(now);
            if (queue.pending(now) > before) {
                queue.raisePressure(now, before);
            }
            return n - charged;
        } finally {
            unlock();
        }
    }

    /** Returns the maximum debt in permits. */
    public long maxDebt() {
        return bucket.maxDebt();
    }

    /**
     * Returns n permits that were taken and not used. The limiter assumes that they are those taken last, and returns
     * at most as many as were taken. They pay debt first. Afterwards the limiter has the credit that it would have if
     * they had never been taken, so refunds never let more through than capacity and burst allow.
     */
    public void refund(long n) {
        long now = lock();
        try {
            queue.refunded += bucket.refund(now, n);
            queue.admit(now);
        } finally {
            unlock();
        }
    }

    /** Returns the current debt in permits, rounded up. */
    public long debt() {
        long now = lock();
        try {
            return bucket.owed(now);
        } finally {
            unlockAndWakeLater();
        }
    }

    /** Returns the current state. */
    public Standing standing() {
        long now = lock();
        try {
            return bucket.standing(now);
        } finally {
            unlock();
        }
    }

    /** Returns how long a new caller would wait for n permits if nothing changes, or UNKNOWN without capacity. */
    public long readyIn(long n) {
        long now = lock();
        try {
            return bucket.isUnlimited() ? 0 : bucket.readyIn(now, queue.waiting() + queue.reserved() + n);
        } finally {
            unlock();
        }
    }

    /** Returns a reading for an estimate of demand. */
    public Sample sample() {
        long now = lock();
        try {
            return new Sample(
                    queue.arrived(),
                    queue.arrivedFreely(),
                    queue.refunded,
                    queue.pending(now),
                    queue.queuedTime(now),
                    bucket.capacity());
        } finally {
            unlockAndWakeLater();
        }
    }

    /**
     * What a rate has let through.
     *
     * @param taken the permits taken so far
     * @param recharging the total time in which the burst was not full: in which the capacity was in use
     */
    public record RateUsage(long taken, long recharging) {}

    public RateUsage usage() {
        long now = lock();
        try {
            bucket.settle(now);
            return new RateUsage(bucket.taken(), bucket.recharging());
        } finally {
            unlockAndWakeLater();
        }
    }
}
