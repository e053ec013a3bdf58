package io.leaseway.internal.limiter;

import io.leaseway.internal.limiter.FlowEstimator.Flow;
import io.leaseway.internal.limiter.FlowEstimator.Mark;

/**
 * Estimates how much capacity to ask for (wants) from the demand at a limiter. Time is an argument.
 *
 * <p>Open-loop demand: callers count when they arrive, not when they are served. Otherwise a limited client would never
 * see more demand than it has capacity. Waiting callers count in addition, with the capacity that serves them within a
 * second. Charged permits are demand when they are charged, and debt counts like waiting callers. Returned permits are
 * no demand.
 *
 * <p>Closed-loop demand: callers that return only after they were served hide their demand: a caller that waits half of
 * the time would come twice as often without a limit. The rate of arrivals while nobody waits shows that. So the demand
 * is the number of arrivals in such periods, divided by their length, if that is more than the overall rate.
 *
 * <p>Saturation: if callers wait nearly all of the time there is no such period. While the queue does not get shorter,
 * the estimate doubles the capacity, until the queue shrinks or the server grants no more. Callers that wait because
 * there is no lease yet say nothing about scarcity: they are a burst to be served, and the flow is observed from then
 * on.
 *
 * <p>Hysteresis: higher demand counts at once, lower demand slowly: asking for too little makes callers wait, asking
 * for too much costs others for a few refreshes. Wants fall exponentially, with a time constant of three refresh
 * intervals. In the first refresh interval wants follow the observed demand, unless they were fixed before.
 */
public final class Demand {
    private static final long SECOND = 1_000_000_000;

    /**
     * The refresh interval assumed by estimates. It does not depend on the server, because rising wants are sent at
     * once anyway.
     */
    private static final long REFRESH = 5 * SECOND;

    private static final double REFRESH_SECONDS = 5;

    /** The time constant of falling wants, in refresh intervals. */
    private static final double MEMORY_REFRESHES = 3;

    /** Waiting callers should be served within this time. */
    private static final double MAX_WAIT_SECONDS = 1;

    /** Callers that will be served within this time do not count as backlog. */
    private static final double PROMPT_SECONDS = 0.25;

    /** The very first caller should be served within this time, because it has already waited for a lease. */
    private static final double FIRST_WAIT_SECONDS = 0.1;

    /** A flow with fewer arrivals per refresh interval is idle. */
    private static final double IDLE_ARRIVALS = 0.25;

    /** Bounds the estimated closed-loop demand, as a multiple of the capacity. */
    private static final double MAX_GROWTH = 2;

    /** The minimum period for judging what fraction of the time callers wait. */
    private static final long MIN_OBSERVATION = SECOND / 20;

    /** A young flow is sampled again after this time while callers wait. */
    private static final long RESAMPLE_DELAY = SECOND / 10;

    /** A young flow is sampled again at this age, when the initial burst has been served. */
    private static final long SETTLED_AGE = SECOND;

    /** Wants that exceed the demand by less than this fraction equal it. */
    private static final double TOLERANCE = 1e-3;

    /** Without demand, smaller wants are 0. */
    private static final double NEGLIGIBLE = 1e-3;

    private final boolean isGauge;
    /** The wants began with those of the owner, and fall slowly even while the flow is young. */
    private final boolean hasStart;

    private final FlowEstimator flow = new FlowEstimator(REFRESH);
    /** The wants at the time at. */
    private double level;

    private long at;
    /** The current demand, which wants fall to. */
    private double demand;
    /** The lower bound of wants while callers wait. */
    private double guess;
    /** The additional capacity to serve waiting callers. */
    private double backlog;
    /** Callers waited at the last sample. For rates. */
    private boolean waits;
    /** Wants do not fall before this time. */
    private long hold;

    private final QueueTrend trend = new QueueTrend();

    /** Creates an estimate that wants nothing before the first sample. */
    public Demand(boolean isGauge) {
        this.isGauge = isGauge;
        hasStart = false;
    }

    /** Creates an estimate that begins with fixed wants, which fall to the demand. */
    public Demand(boolean isGauge, long now, double wants) {
        this.isGauge = isGauge;
        hasStart = true;
        level = wants;
        at = now;
        hold = now + REFRESH;
    }

    /** Distinguishes a persistent queue from short waits. */
    private static final class QueueTrend {
        private long at;
        private long queued;
        /** The permits granted so far. */
        private long served;

        private long waiting;

        /**
         * Returns the additional capacity that callers may want if as many came as were served since the last update.
         * It grows with the fraction of time in which callers waited. Returns NaN while nobody was served.
         */
        double update(long now, Sample sample) {
            long span = now - at;
            long nowServed = Math.max(sample.count() - sample.waiting(), 0);
            if (span < MIN_OBSERVATION || sample.waiting() > 0 && waiting > 0 && nowServed <= served) {
                return Double.NaN;
            }
            double part = Math.min(Math.max((double) (sample.queued() - queued) / span, 0), 1);
            boolean isReplaced = waiting > 0 && sample.waiting() >= waiting;
            at = now;
            queued = sample.queued();
            served = nowServed;
            waiting = sample.waiting();
            double guess = sample.capacity() * Math.min(part / (1 - part), MAX_GROWTH);
            return isReplaced && Double.isFinite(guess) ? guess : 0;
        }
    }

    /** Takes a sample. The first one belongs to the time when the limiter was created: arrivals count from there. */
    public void sample(long now, Sample sample) {
        level = remembered(now);
        at = Math.max(at, now);
        boolean isYoung = false;
        if (isGauge) {
            demand = sample.count();
        } else {
            isYoung = sampleFlow(sample);
        }
        if (demand >= level || isYoung && !hasStart) {
            level = demand;
            hold = isGauge ? at + REFRESH : at;
        }
    }

    private boolean sampleFlow(Sample sample) {
        double before = demand;
        long count = sample.netCount();
        // The callers with which an observation begins do not begin another one, however long they wait.
        boolean isIdle = demand * REFRESH_SECONDS < IDLE_ARRIVALS && flow.hasFewerThan(count);
        if (isIdle && sample.waiting() > 0 && sample.waiting() >= flow.recent(at, count)) {
            // All arrivals are waiting for the first lease: a burst, and no flow yet.
            flow.restart(sample.waiting());
        }
        Flow rates = flow.sample(new Mark(at, count, sample.netFreely(), sample.queued()));
        boolean isYoung = flow.isYoung(at);
        demand = Math.max(rates.all(), Math.min(rates.freely(), rates.all() * MAX_GROWTH));
        boolean isFirst = isYoung && flow.initialCallersWait(Math.max(sample.count() - sample.waiting(), 0));
        backlog = backlog(isFirst, sample.waiting(), sample.capacity());
        waits = sample.waiting() > 0;
        double newGuess = trend.update(at, sample);
        if (!Double.isNaN(newGuess)) {
            // The guess does not fall while callers wait.
            guess = isYoung && waits ? Math.max(newGuess, guess) : newGuess;
        }
        if (isYoung && waits) {
            demand = Math.max(demand, before);
        }
        return isYoung;
    }

    /** Returns the wants at now: finite and not negative. */
    public double wants(long now) {
        return Math.max(remembered(now), guess) + backlog;
    }

    /**
     * Returns when to take the next sample before the next refresh, or NEVER if that is not worthwhile: soon while
     * callers wait and the flow is young, and when they were served, so that the guess for them does not last a whole
     * refresh interval.
     */
    public long nextSampleAt() {
        if (isGauge || level + wants(at) <= 0) {
            return Meter.NEVER;
        }
        long age = flow.age(at);
        if (age >= REFRESH) {
            return Meter.NEVER;
        }
        long soon = (age < SETTLED_AGE ? SETTLED_AGE : REFRESH) - age;
        return at + (waits ? Math.min(soon, RESAMPLE_DELAY) : soon);
    }

    private double remembered(long now) {
        double seconds = Math.max(now - Math.max(at, hold), 0) / 1e9;
        double above = (level - demand) * Math.exp(-seconds / (MEMORY_REFRESHES * REFRESH_SECONDS));
        if (above <= demand * TOLERANCE || demand + above < NEGLIGIBLE) {
            return demand;
        }
        return demand + above;
    }

    /** Returns the additional capacity to serve waiting callers. */
    private static double backlog(boolean isFirst, double waiting, double capacity) {
        if (isFirst) {
            return Math.max(waiting / MAX_WAIT_SECONDS, 1 / FIRST_WAIT_SECONDS);
        }
        if (waiting <= capacity * PROMPT_SECONDS) {
            return 0;
        }
        if (capacity > 0) {
            // Below one permit in that time, a waiting caller does not have to be faster than the next arrival.
            return waiting * Math.min(capacity, 1 / MAX_WAIT_SECONDS);
        }
        return waiting / MAX_WAIT_SECONDS;
    }
}
