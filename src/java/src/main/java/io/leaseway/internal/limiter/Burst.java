package io.leaseway.internal.limiter;

/**
 * How much unused capacity a rate may save up and use at once. In any period of T seconds a limiter admits at most
 * capacity · T + burst. The burst is at least one permit. A caller that waits for more permits than the burst is
 * admitted once all of them are saved up.
 *
 * @param kind the meaning of the burst
 * @param amount seconds for a window, else permits
 */
public record Burst(Kind kind, double amount) {
    /** The meaning of a burst. */
    public enum Kind {
        /** One permit plus 20 ms of capacity: as smooth as timers allow without losing capacity. */
        SMOOTH,
        /**
         * The capacity of a duration. When the capacity is cut, saved permits are cut in proportion, so limiters that
         * share a capacity never save up more than it provides in total.
         */
        WINDOW,
        /** A fixed number of permits. */
        PERMITS
    }

    public static final Burst SMOOTH = new Burst(Kind.SMOOTH, 0);

    /**
     * How late a waiter may be woken without losing capacity. Timers are a millisecond late, and later still on a busy
     * machine.
     */
    private static final double SMOOTH_SECONDS = 0.020;

    public static Burst window(double seconds) {
        return new Burst(Kind.WINDOW, seconds);
    }

    public static Burst permits(double permits) {
        return new Burst(Kind.PERMITS, permits);
    }

    /** Describes it for errors. */
    @Override
    public String toString() {
        return switch (kind) {
            case SMOOTH -> "the default";
            case WINDOW -> "the capacity of " + amount + " s";
            case PERMITS -> amount + " permits";
        };
    }

    /** Returns the permits that may be saved up at this capacity: at least one, unlimited if the capacity is. */
    double at(double capacity) {
        double permits = switch (kind) {
            case SMOOTH -> 1 + capacity * SMOOTH_SECONDS;
            case WINDOW -> capacity * amount;
            case PERMITS -> Double.isInfinite(capacity) ? capacity : amount;
        };
        // An unlimited capacity with a window of zero is NaN.
        return permits > 1 ? permits : 1;
    }

    /**
     * Returns the same if the server sets the burst to the capacity of a number of seconds; a negative one means that
     * it does not. A smaller choice of the owner is respected, down to the minimum that timers need.
     */
    double within(double capacity, double bufferSeconds) {
        if (bufferSeconds < 0) {
            return at(capacity);
        }
        double set = Math.max(capacity * bufferSeconds, SMOOTH.at(capacity));
        // An unlimited capacity needs no savings.
        return kind == Kind.SMOOTH || Double.isInfinite(capacity) ? set : Math.min(set, at(capacity));
    }
}
