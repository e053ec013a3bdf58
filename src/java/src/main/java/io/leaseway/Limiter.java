package io.leaseway;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;

/**
 * What an operation waits for before it begins: a {@link Rate}, a {@link Gauge}, or several of them as
 * {@link Limits}.
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
