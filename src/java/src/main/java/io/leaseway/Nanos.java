package io.leaseway;

import java.time.Duration;

/** Converts durations. */
final class Nanos {
    /** Waits without a timeout. */
    static final long FOREVER = Long.MAX_VALUE;

    private Nanos() {}

    /** Returns a duration in nanoseconds, from 0 to FOREVER. */
    static long of(Duration duration) {
        if (duration.isNegative()) {
            return 0;
        }
        try {
            return duration.toNanos();
        } catch (ArithmeticException e) {
            return FOREVER;
        }
    }
}
