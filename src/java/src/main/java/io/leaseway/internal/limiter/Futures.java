package io.leaseway.internal.limiter;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Completes futures of callers. */
public final class Futures {
    private Futures() {}

    /** Runs a task once by an executor, or by the common pool if the executor throws, such as one that was shut down. */
    public static void execute(Executor executor, Runnable task) {
        var hasRun = new AtomicBoolean();
        Runnable once = () -> {
            if (hasRun.compareAndSet(false, true)) {
                task.run();
            }
        };
        try {
            executor.execute(once);
        } catch (RuntimeException | Error e) {
            ForkJoinPool.commonPool().execute(once);
        }
    }

    /**
     * Completes a future with a TimeoutException after a time. The common pool does it, because the thread of the timers
     * must not run code of callers.
     */
    public static void expire(CompletableFuture<?> future, long nanos) {
        var timer = new CompletableFuture<Void>();
        timer.exceptionallyAsync(error -> {
            future.completeExceptionally(error);
            return null;
        });
        timer.orTimeout(nanos, TimeUnit.NANOSECONDS);
        future.whenComplete((result, error) -> timer.complete(null));
    }

    /**
     * Completes a future with what make returns or throws. If the future has ended otherwise by then, because it was
     * cancelled, discard undoes the result.
     */
    static <T> void complete(CompletableFuture<T> future, Supplier<T> make, Consumer<T> discard) {
        T result;
        try {
            result = make.get();
        } catch (RuntimeException | Error e) {
            future.completeExceptionally(e);
            return;
        }
        if (!future.complete(result)) {
            discard.accept(result);
        }
    }
}
