package io.leaseway.internal.session;

import static io.leaseway.internal.session.Times.seconds;
import static io.leaseway.internal.session.Times.since;

/**
 * Tracks which usage the server knows of. A request reports the usage since the last answered request, so nothing is
 * lost with a lost answer, and usage during a request is reported with the next one. Usage is counted only after the
 * server has said that the resource is a pool.
 */
public final class UsageTracker {
    /** The shortest time over which usage is measured. */
    private static final double MIN_MEASURE_SECONDS = 0.1;

    private final Pool state;
    /** What was last reported. */
    private Usage.Counters reported;

    private double reportedPart;
    /** The largest fractions in use since the last report and since the last reading. For gauges. */
    private double peak;

    private double newestPeak;

    private UsageTracker(Pool state, Usage.Counters reported) {
        this.state = state;
        this.reported = reported;
        // Everything counts as used until something is known.
        this.reportedPart = 1;
    }

    /**
     * Returns the tracker after an answer. The request of that answer reported usage; if it reported none, usage is
     * null and counters are the current ones. before is the tracker until then, or null.
     */
    public static UsageTracker track(UsageTracker before, Pool state, Usage.Counters counters, Usage usage) {
        var tracker = new UsageTracker(state, counters);
        if (before != null) {
            // Whether the newest peak came before or after the request was sent is unknown: count it in both.
            tracker.peak = before.newestPeak;
            tracker.newestPeak = before.newestPeak;
            tracker.reportedPart = before.reportedPart;
        }
        if (usage != null) {
            tracker.reported = usage.counters();
            tracker.reportedPart = usage.recharging();
        }
        return tracker;
    }

    public Pool state() {
        return state;
    }

    /** Returns the usage of a rate, which is in use while its credit recharges. */
    public Usage ofRate(Usage.Counters counters) {
        double used = seconds(since(counters.recharging(), reported.recharging()));
        double passed = seconds(since(counters.at(), reported.at()));
        // A very short interval says little, so the last report counts for the rest of it. A request that follows
        // another at once (a hint, a new master) must not look like full usage.
        double rest = reportedPart * Math.max(MIN_MEASURE_SECONDS - passed, 0);
        return usage(counters, (used + rest) / Math.max(passed, MIN_MEASURE_SECONDS));
    }

    /** Returns the usage of a gauge. part is the largest fraction in use since the last reading. */
    public Usage ofGauge(Usage.Counters counters, double part) {
        newestPeak = part;
        peak = Math.max(peak, part);
        return usage(counters, peak);
    }

    private Usage usage(Usage.Counters counters, double recharging) {
        return new Usage(
                Math.min(Math.max(recharging, 0), 1),
                Math.max(counters.taken() - reported.taken(), 0),
                since(counters.at(), reported.at()),
                counters);
    }
}
