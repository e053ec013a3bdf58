package io.leaseway.internal.limiter;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Completes futures of callers. */
public final class Futures {
    private Futures() {}

    /** Runs a task by an executor, or in this thread if the executor was shut down. */
    public static void execute(Executor executor, Runnable task) {
        try {
            executor.execute(task);
        } catch (RejectedExecutionException e) {
            task.run();
        }
    }

    /**
     * Completes a future with what make returns or throws. If the future has ended otherwise by then, because it was
     * cancelled, discard undoes the result.
     */
    static <T> void complete(CompletableFuture<T> future, Supplier<T> make, Consumer<T> discard) {
        T result;
        try {
            result = make.get();
        } catch (RuntimeException e) {
            future.completeExceptionally(e);
            return;
        }
        if (!future.complete(result)) {
            discard.accept(result);
        }
    }
}
