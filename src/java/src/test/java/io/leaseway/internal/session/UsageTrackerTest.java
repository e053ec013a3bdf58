package io.leaseway.internal.session;

import static io.leaseway.internal.session.Times.SECOND;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.leaseway.PoolStanding;
import org.junit.jupiter.api.Test;

class UsageTrackerTest {
    private static final Pool POOL = new Pool(PoolStanding.PRIORITY, 10, 1, "", -1);

    private static Usage.Counters counters(double seconds, long taken, double recharging) {
        return new Usage.Counters((long) (seconds * SECOND), taken, (long) (recharging * SECOND));
    }

    @Test
    void usageIsReportedUntilItsRequestWasAnswered() {
        UsageTracker tracker = UsageTracker.track(null, POOL, counters(0, 0, 0), null);
        Usage lost = tracker.ofRate(counters(4, 8, 1));
        assertEquals(0.25, lost.recharging(), 1e-9);
        assertEquals(8, lost.units());
        assertEquals(4 * SECOND, lost.interval());
        Usage answered = tracker.ofRate(counters(8, 20, 6));
        assertEquals(20, answered.units());
        tracker = UsageTracker.track(tracker, POOL, counters(8.1, 21, 6.1), answered);
        assertEquals(5, tracker.ofRate(counters(12, 25, 6)).units());
    }

    /** A request that follows another at once must not look like full usage. */
    @Test
    void aShortIntervalCountsWithTheLastReport() {
        UsageTracker tracker = UsageTracker.track(null, POOL, counters(0, 0, 0), null);
        assertEquals(1, tracker.ofRate(counters(0, 0, 0)).recharging(), "everything counts as used at first");
        Usage half = tracker.ofRate(counters(10, 5, 5));
        tracker = UsageTracker.track(tracker, POOL, counters(10, 5, 5), half);
        assertEquals(0.5, tracker.ofRate(counters(10, 5, 5)).recharging(), 1e-9);
    }

    @Test
    void thePeakOfAGaugeCountsUntilItWasReported() {
        UsageTracker tracker = UsageTracker.track(null, POOL, counters(0, 0, 0), null);
        tracker.ofGauge(counters(1, 9, 0), 0.9);
        Usage usage = tracker.ofGauge(counters(2, 10, 0), 0.2);
        assertEquals(0.9, usage.recharging());
        tracker = UsageTracker.track(tracker, POOL, counters(2, 10, 0), usage);
        assertEquals(0.2, tracker.ofGauge(counters(3, 10, 0), 0.1).recharging());
    }
}
