package io.leaseway;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;

/**
 * A limiter that admits operations: a {@link Rate}, a {@link Gauge}, or several as {@link Limits}.
 */
public interface Limiter {
    /**
     * Waits until an operation may begin. The caller closes the permit when the operation is over. If there is an
     * exception, nothing was taken.
     *
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the limiter is closed
     */
    Permit begin() throws InterruptedException;

    /**
     * As {@link #begin()}, with a timeout.
     *
     * @throws InterruptedException if the thread is interrupted first
     * @throws TimeoutException if the timeout ends first
     * @throws ClosedException if the limiter is closed
     */
    Permit begin(Duration timeout) throws InterruptedException, TimeoutException;

    /** As {@link #begin()}, without blocking. A future that is cancelled takes nothing. */
    CompletableFuture<Permit> beginAsync();
}
