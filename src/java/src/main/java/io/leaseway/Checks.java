package io.leaseway;

import java.nio.charset.StandardCharsets;

/** Checks arguments. */
final class Checks {
    /** The bound of servers. */
    static final double MAX_WANTS = 1e15;

    /** The bound of servers. */
    private static final int MAX_ID_BYTES = 256;

    private Checks() {}

    static String id(String setting, String id) {
        if (id.isEmpty()) {
            throw new OptionException(setting, "it is empty");
        }
        int length = id.getBytes(StandardCharsets.UTF_8).length;
        if (length > MAX_ID_BYTES) {
            throw new OptionException(
                    setting, "it is " + length + " bytes long; at most " + MAX_ID_BYTES + " are allowed");
        }
        return id;
    }

    static double wants(double wants) {
        // Also false for NaN.
        if (wants >= 0 && wants <= MAX_WANTS) {
            return wants;
        }
        throw new OptionException("wants", wants + " is not a number from 0 to " + MAX_WANTS);
    }

    /** Checks a number of permits, which has to be whole. */
    static long wholeCount(double n) {
        if (n != Math.rint(n)) {
            throw new IllegalArgumentException("leaseway: not a whole number of permits: " + n);
        }
        return count((long) n);
    }

    /** Checks a number of permits. It is bounded, so that sums do not overflow. */
    static long count(long n) {
        if (n < 0 || n > MAX_WANTS) {
            throw new IllegalArgumentException("leaseway: " + n + " permits are not from 0 to " + MAX_WANTS);
        }
        return n;
    }
}
