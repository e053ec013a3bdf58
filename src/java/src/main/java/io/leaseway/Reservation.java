package io.leaseway;

import io.leaseway.internal.limiter.Promise;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Permits of a rate for work whose cost is known only at its end. All of them are used unless it is settled. It has to be
 * settled or closed: until then it keeps its rate open.
 */
public final class Reservation implements AutoCloseable {
    private final Rate rate;
    private final Promise promise;
    private final AtomicBoolean isSettled = new AtomicBoolean();

    Reservation(Rate rate, Promise promise) {
        this.rate = rate;
        this.promise = promise;
    }

    /** Returns the number of permits taken. */
    public long reserved() {
        return promise.n();
    }

    /**
     * Settles for the permits that were used. The rest is returned, as much of it as would be available now had it
     * never been taken. Usage beyond the reservation is charged, see {@link Rate#charge}. Only the first call counts.
     *
     * @param used the number of permits used
     * @throws DebtExceededException if the maximum debt is exceeded
     */
    public void settle(long used) {
        Checks.count(used);
        if (isSettled.compareAndSet(false, true)) {
            rate.settle(promise, used);
        }
    }

    /** Settles for no permits. */
    public void cancel() {
        settle(0);
    }

    /** Settles for everything that was reserved, unless it was settled already. */
    @Override
    public void close() {
        settle(promise.n());
    }
}
