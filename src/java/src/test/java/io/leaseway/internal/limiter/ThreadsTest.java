package io.leaseway.internal.limiter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Limiters with threads and executors. */
@Timeout(60)
class ThreadsTest {
    private static final long MS = 1_000_000;

    private static RateLimiter rate(double capacity) {
        return rate(capacity, ForkJoinPool.commonPool());
    }

    private static RateLimiter rate(double capacity, Executor executor) {
        var limiter =
                new RateLimiter(System.nanoTime(), Burst.SMOOTH, RateLimiter.DEFAULT_MAX_DEBT, () -> {}, executor);
        limiter.setUsable(capacity, Meter.NEVER, 0, -1);
        return limiter;
    }

    /** Does something while the thread of the timers cannot be started. */
    private static void withoutTimers(ThrowingRunnable act) throws Exception {
        ThreadFactory factory = Limiter.TIMERS.getThreadFactory();
        Limiter.TIMERS.getQueue().clear();
        Limiter.TIMERS.setCorePoolSize(0);
        while (Limiter.TIMERS.getPoolSize() > 0) {
            Thread.sleep(1);
        }
        Limiter.TIMERS.setThreadFactory(task -> {
            throw new OutOfMemoryError("unable to create native thread");
        });
        try {
            act.run();
        } finally {
            Limiter.TIMERS.setThreadFactory(factory);
            Limiter.TIMERS.setCorePoolSize(1);
        }
    }

    private interface ThrowingRunnable {
        void run() throws Exception;
    }

    @Test
    void aTimerThatCannotBeSetLeavesNoLimiterLocked() throws Exception {
        RateLimiter first = rate(10);
        RateLimiter second = rate(10);
        var both = new JointLimiter(List.of(new JointLimiter.Part(first, 5), new JointLimiter.Part(second, 5)));
        withoutTimers(() -> {
            assertThrows(TimeoutException.class, () -> first.acquire(5, 20 * MS));
            assertThrows(TimeoutException.class, () -> both.acquire(20 * MS));
            for (RateLimiter limiter : List.of(first, second)) {
                // By another thread, because a lock may be taken twice by one.
                assertEquals(0, CompletableFuture.supplyAsync(limiter::waiting).get(10, TimeUnit.SECONDS));
            }
        });
        first.acquire(1, 10_000 * MS);
    }

    @Test
    void anExecutorThatThrowsLosesNoWaiters() throws Exception {
        var calls = new AtomicInteger();
        RateLimiter limiter = rate(0, task -> {
            if (calls.getAndIncrement() == 0) {
                throw new IllegalStateException("on purpose");
            }
            if (calls.get() == 2) {
                throw new StackOverflowError("on purpose");
            }
            task.run();
        });
        List<CompletableFuture<Void>> futures =
                List.of(limiter.acquireAsync(1), limiter.acquireAsync(1), limiter.acquireAsync(1));
        limiter.setUsable(1000, Meter.NEVER, 0, -1);
        for (CompletableFuture<Void> future : futures) {
            future.get(10, TimeUnit.SECONDS);
        }
        assertEquals(3, calls.get());
    }

    /** The thread of a client holds locks when it sets the capacity. */
    @Test
    void settersAndReadersRunNoCodeOfCallers() throws Exception {
        var limiter = new GaugeLimiter(System.nanoTime(), () -> {}, Runnable::run);
        CompletableFuture<Thread> admitted = limiter.acquireAsync(1, Thread::currentThread, thread -> {});
        limiter.setUsable(1, Meter.NEVER, 0);
        assertEquals(1, limiter.inUse());
        assertNotEquals(Thread.currentThread(), admitted.get(10, TimeUnit.SECONDS));
    }
}
