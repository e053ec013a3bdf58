package io.leaseway.internal.limiter;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Admits callers while fewer permits are in use than the capacity, rounded down. After a cut no caller is admitted
 * until enough permits were returned.
 */
public final class GaugeLimiter extends Limiter {
    private final Count count;

    /** Creates a limiter that admits no caller before the first setUsable. See RateLimiter. */
    public GaugeLimiter(long start, Runnable onPressure, Executor executor) {
        this(start, new Count(), onPressure, executor);
    }

    private GaugeLimiter(long start, Count count, Runnable onPressure, Executor executor) {
        super(start, count, onPressure, executor);
        this.count = count;
    }

    /** Sets the number of permits that may be in use until the lease expires, and the number from then on. */
    public void setUsable(double capacity, long until, double then) {
        long now = lock();
        try {
            queue.setCapacity(now, capacity, until, then);
        } finally {
            unlockAndWakeLater();
        }
    }

    /** Waits for n permits without blocking. make creates the result, and discard returns its permits. */
    public <T> CompletableFuture<T> acquireAsync(long n, Supplier<T> make, Consumer<T> discard) {
        return acquireAsync(n, promise -> make.get(), discard);
    }

    /** Returns n permits. */
    public void release(long n) {
        long now = lock();
        try {
            count.giveBack(n);
            queue.admit(now);
        } finally {
            unlock();
        }
    }

    /** Returns the permits in use now. */
    public long inUse() {
        lock();
        try {
            return count.inUse();
        } finally {
            unlockAndWakeLater();
        }
    }

    /**
     * Returns the peak since the last call of the sum of permits in use, waited for and refused. It resets the peak, so
     * it should have one caller.
     */
    public long takePeak() {
        lock();
        try {
            return queue.takePeak();
        } finally {
            unlockAndWakeLater();
        }
    }

    /**
     * Returns the amount to report to the server: all permits in use if they exceed the capacity, as after a cut, else
     * 0. The server counts the larger of this and the lease as held.
     */
    public long outstanding() {
        lock();
        try {
            return count.inUse() > count.capacity() ? count.inUse() : 0;
        } finally {
            unlockAndWakeLater();
        }
    }
}
