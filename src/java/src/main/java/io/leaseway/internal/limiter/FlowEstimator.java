package io.leaseway.internal.limiter;

import java.util.ArrayList;
import java.util.List;

/**
 * Estimates the rate of a flow of arrivals from counts at a few times.
 *
 * <p>A short observation of a slow flow says little: at one arrival in ten seconds, five seconds see none or one. A
 * long observation of a flow that has changed gives its former rate. So the estimator compares spans of one to
 * MAX_SPAN_REFRESHES refresh intervals, and uses the longest span that agrees with all shorter ones. A count of k in t
 * seconds agrees with every rate whose expected count is within slack of k. A larger change is recognised as soon as
 * the shortest span shows it, and older counts are ignored from then on. A flow younger than a refresh interval is
 * observed over shorter spans, too.
 */
final class FlowEstimator {
    /** The longest span, in refresh intervals. */
    private static final int MAX_SPAN_REFRESHES = 32;

    /** How often per refresh interval counts are kept at most. The inverse is the shortest span. */
    private static final int MARKS_PER_REFRESH = 8;

    /**
     * Corrects for the first arrivals. An observation begins right after them and misses them. This underestimates
     * evenly spaced arrivals by half of the first arrivals, and independent ones not at all; the constant is the mean.
     */
    private static final double UNSEEN_FRACTION = 0.25;

    /**
     * Counts of a flow up to a time, since the limiter was created.
     *
     * @param freely the arrivals that found no caller waiting
     * @param queued the total time in which callers were waiting
     */
    record Mark(long at, long count, long freely, long queued) {}

    /**
     * Arrivals per second.
     *
     * @param freely the arrivals that found nobody waiting, divided by the time in which nobody waited. The first
     *     arrival is excluded, because it may begin that time. This is the rate of closed-loop callers without a limit,
     *     and of open-loop callers anyway.
     */
    record Flow(double all, double freely) {}

    private final long refresh;
    private final List<Mark> marks = new ArrayList<>();
    /** The number of arrivals when the observation began. */
    private double first;

    FlowEstimator(long refresh) {
        this.refresh = refresh;
    }

    /** Returns the arrivals within the last refresh interval, or in the whole observation if that is shorter. */
    long recent(long now, long count) {
        if (marks.isEmpty()) {
            return 0;
        }
        Mark before = marks.get(0);
        for (int i = marks.size() - 1; i >= 0; i--) {
            if (now - marks.get(i).at >= refresh) {
                before = marks.get(i);
                break;
            }
        }
        return Math.max(count - before.count, 0);
    }

    /** Returns whether anything has arrived since the observation began. */
    boolean hasFewerThan(long count) {
        return marks.isEmpty() || marks.get(0).count < count;
    }

    /** Returns whether callers with which the observation began still wait, given the number of permits served. */
    boolean initialCallersWait(long served) {
        return !marks.isEmpty() && served < marks.get(0).count;
    }

    /** Begins a new observation, with some arrivals to begin with. */
    void restart(long arrivals) {
        marks.clear();
        first = arrivals;
    }

    /** Returns the age of the observation. */
    long age(long now) {
        return marks.isEmpty() ? 0 : Math.max(now - marks.get(0).at, 0);
    }

    /** Returns whether the observation is younger than a refresh interval. */
    boolean isYoung(long now) {
        return age(now) <= refresh;
    }

    /** Takes the counts up to now. Returns the estimated rates. */
    Flow sample(Mark reading) {
        Mark here = reading;
        if (!marks.isEmpty()) {
            // Time and counts never run backwards.
            Mark newest = marks.get(marks.size() - 1);
            here = new Mark(
                    Math.max(here.at, newest.at),
                    Math.max(here.count, newest.count),
                    Math.max(here.freely, newest.freely),
                    Math.max(here.queued, newest.queued));
        }
        Flow estimated = estimate(here);
        keep(here);
        return estimated;
    }

    private Flow estimate(Mark here) {
        long leastSpan = Math.max(refresh / MARKS_PER_REFRESH, 1_000_000);
        long shortest = isYoung(here.at) ? leastSpan : refresh;
        double least = 0;
        double most = Double.POSITIVE_INFINITY;
        var estimated = new Flow(0, 0);
        for (int i = marks.size() - 1; i >= 0; i--) {
            Mark mark = marks.get(i);
            long span = here.at - mark.at;
            boolean isOldest = i == 0;
            // The oldest count is always used: there is no longer span.
            if (span < shortest && !isOldest) {
                continue;
            }
            double seconds = Math.max(span, leastSpan) / 1e9;
            double arrived = here.count - mark.count;
            least = Math.max(least, (arrived - slack(arrived)) / seconds);
            most = Math.min(most, (arrived + slack(arrived)) / seconds);
            if (least > most) {
                break;
            }
            double unseen = isOldest && isYoung(here.at) ? UNSEEN_FRACTION * first : 0;
            double all = Math.min(Math.max((arrived + unseen) / seconds, least), most);
            estimated = new Flow(all, freely(mark, here));
        }
        return estimated;
    }

    private void keep(Mark here) {
        if (marks.isEmpty() || here.at - marks.get(marks.size() - 1).at >= refresh / MARKS_PER_REFRESH) {
            marks.add(here);
        }
        long horizon = refresh * MAX_SPAN_REFRESHES;
        int old = 0;
        while (old < marks.size() && here.at - marks.get(old).at > horizon) {
            old++;
        }
        marks.subList(0, old).clear();
    }

    private static double freely(Mark since, Mark until) {
        double free = (until.at - since.at - (until.queued - since.queued)) / 1e9;
        double arrived = until.freely - since.freely;
        // Avoids dividing by 0; clocks may differ by a little.
        return Math.max((arrived - 1) / Math.max(free, 1e-4), 0);
    }

    /**
     * Returns how far a count may be from the expected one: 1 for evenly spaced arrivals, depending on the phase, plus
     * the standard deviation of independent arrivals.
     */
    private static double slack(double arrived) {
        return 1 + Math.sqrt(arrived);
    }
}
