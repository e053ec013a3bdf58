package io.leaseway.internal.limiter;

/**
 * Why permits of several limiters are not available now. Nothing was taken, and the caller was not queued.
 *
 * @param index the index of the limiter that refuses; of several, the one that takes longest
 * @param burst the maximum number of permits that can be available at once, if more are needed; otherwise 0
 * @param retryAfter when the permits would be available if nothing changes, or UNKNOWN
 * @param isClosed whether the limiter was closed
 */
public record Refusal(int index, double burst, long retryAfter, boolean isClosed) {
    static Refusal closed() {
        return new Refusal(0, 0, Meter.UNKNOWN, true);
    }

    static Refusal tooMany(double burst) {
        return new Refusal(0, burst, Meter.UNKNOWN, false);
    }

    static Refusal notNow(long retryAfter) {
        return new Refusal(0, 0, retryAfter, false);
    }

    Refusal at(int newIndex) {
        return new Refusal(newIndex, burst, retryAfter, isClosed);
    }

    /** Returns whether the permits of the other refusal take longer. */
    boolean isBefore(Refusal other) {
        int order = Integer.compare(severity(), other.severity());
        return order == 0 ? retryAfter < other.retryAfter : order < 0;
    }

    private int severity() {
        if (isClosed) {
            return 3;
        }
        if (burst != 0) {
            return 2;
        }
        return retryAfter == Meter.UNKNOWN ? 1 : 0;
    }

    /** Returns whether the request counts as demand. */
    boolean isDemand() {
        return !isClosed && burst == 0;
    }
}
