package io.leaseway;

/**
 * Permission for an operation. The permit of a {@link Gauge} is in use until it is closed; that of a {@link Rate} was
 * used at once, and closing it has no effect.
 */
public interface Permit extends AutoCloseable {
    /** Ends the operation. It is idempotent, and may be called by any thread. */
    @Override
    void close();
}
