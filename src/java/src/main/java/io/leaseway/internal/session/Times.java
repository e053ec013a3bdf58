package io.leaseway.internal.session;

/** Arithmetic of times, which are nanoseconds since the client started. */
public final class Times {
    /** After every other time. */
    public static final long NEVER = Long.MAX_VALUE;

    public static final long MILLISECOND = 1_000_000;
    public static final long SECOND = 1_000_000_000;

    private Times() {}

    /** Adds a span to a time without overflow. */
    public static long after(long at, long span) {
        return span > NEVER - at ? NEVER : at + span;
    }

    /** Returns the time from start to end, or 0 if end is earlier. */
    public static long since(long end, long start) {
        return Math.max(end - start, 0);
    }

    public static double seconds(long span) {
        return span / 1e9;
    }
}
