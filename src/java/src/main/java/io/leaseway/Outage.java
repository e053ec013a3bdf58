package io.leaseway;

import java.util.Locale;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * Decides on log messages about failures: when several requests in a row have failed, now and then while that lasts,
 * and at its end.
 */
final class Outage {
    /** The number of failures in a row before the first warning. */
    private static final int FAILURES_BEFORE_WARNING = 3;

    /** The time between warnings. */
    private static final long WARNING_INTERVAL = 60_000_000_000L;

    /** The maximum number of servers whose last error is remembered. */
    private static final int MAX_SERVERS = 8;

    private final LongSupplier clock;
    private int failures;
    private long since;
    private long warned;
    private boolean hasWarned;
    /** The last error of each server. */
    private final SortedMap<String, String> servers = new TreeMap<>();

    Outage(LongSupplier clock) {
        this.clock = clock;
    }

    /**
     * Records a failure; why begins with the server. Returns the message to log, or null. describeFallback says what
     * may be used meanwhile.
     */
    String failed(String server, String why, Supplier<String> describeFallback) {
        long now = clock.getAsLong();
        if (failures == 0) {
            since = now;
        }
        failures++;
        if (servers.containsKey(server) || servers.size() < MAX_SERVERS) {
            servers.put(server, why);
        }
        if (failures < FAILURES_BEFORE_WARNING || hasWarned && now - warned < WARNING_INTERVAL) {
            return null;
        }
        hasWarned = true;
        warned = now;
        return "no server has answered the last " + failures + " requests: " + String.join("; ", servers.values())
                + "; meanwhile " + describeFallback.get();
    }

    /** Records an answer. Returns the message to log, if a warning was logged, else null. */
    String over(String server) {
        String message = !hasWarned
                ? null
                : String.format(
                        Locale.ROOT,
                        "%s has answered, after %d failed requests in %.1f s",
                        server,
                        failures,
                        (clock.getAsLong() - since) / 1e9);
        failures = 0;
        hasWarned = false;
        servers.clear();
        return message;
    }
}
