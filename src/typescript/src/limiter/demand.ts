/**
 * Estimates how much capacity to ask for (wants) from the demand at a limiter. Times are milliseconds.
 *
 * Open-loop demand: callers count when they arrive, not when they are served. Waiting callers count in addition, with
 * the capacity that serves them within a second. Charged permits are demand when they are charged, and debt counts like
 * waiting callers. Returned permits are no demand.
 *
 * Closed-loop demand: callers that return only after they were served hide their demand. The rate of arrivals while
 * nobody waits shows it. If callers wait nearly all of the time there is no such period. While the queue does not get
 * shorter, the estimate doubles the capacity, until the queue shrinks or the server grants no more.
 *
 * Hysteresis: higher demand counts at once, lower demand slowly, with a time constant of three refresh intervals.
 */

import { FlowEstimator } from "./flow.js";

/** Time constant of falling wants, in refresh intervals. */
const MEMORY_REFRESHES = 3;
/** Gauges: refresh intervals before wants begin to fall. */
const HOLD_REFRESHES = 1;
/** Waiting callers should be served within this many seconds. */
const MAX_WAIT_SECONDS = 1;
/** Callers that will be served within this many seconds do not count as backlog. */
const PROMPT_SECONDS = 0.25;
/** The very first caller should be served within this many seconds, because it has already waited for a lease. */
const FIRST_WAIT_SECONDS = 0.1;
/** A flow with fewer arrivals per refresh interval is idle. */
const IDLE_ARRIVALS = 0.25;
/** Upper bound of the estimated closed-loop demand, as a multiple of the capacity. */
const MAX_GROWTH = 2;
/** Minimum period for judging what fraction of the time callers wait. */
const MIN_OBSERVATION = 50;
/** A young flow is sampled again after this time while callers wait. */
const RESAMPLE_DELAY = 100;
/** A young flow is sampled again at this age, when the initial burst has been served. */
const SETTLED_AGE = 1_000;
/** Wants that exceed the demand by less than this fraction equal it. */
const TOLERANCE = 1e-3;
/** Without demand, smaller wants are 0. */
const NEGLIGIBLE = 1e-3;

/** Settings of a demand estimate. */
export interface DemandSettings {
  readonly kind: "rate" | "gauge";
  /** The refresh interval of the client. */
  readonly refreshMs: number;
  /** Whether wants fall slowly. A limit per window has a memory of its own. */
  readonly remembers: boolean;
}

/** A reading of a limiter. */
export interface Sample {
  /** Rates: permits requested so far. Gauges: the peak of permits in use, waited for and refused. */
  readonly count: number;
  /** Rates: permits requested so far while no caller waited. */
  readonly freely: number;
  /** Rates: permits returned unused so far. */
  readonly refunded: number;
  /** Permits waited for or owed now; 0 if `count` is a peak. */
  readonly waiting: number;
  /** Rates: total time in which callers were waiting. */
  readonly queuedMs: number;
  /** The current capacity. */
  readonly capacity: number;
}

/** `count` and `freely` without returned permits, both reduced in proportion. */
function net(sample: Sample): [number, number] {
  if (sample.refunded === 0) return [sample.count, sample.freely];
  const count = Math.max(sample.count - sample.refunded, 0);
  return [count, Math.floor(sample.freely * (count / Math.max(sample.count, 1)))];
}

/** Distinguishes a persistent queue from short waits. */
class QueueTrend {
  private at = 0;
  private queuedMs = 0;
  private served = 0;
  private waiting = 0;

  /**
   * The additional capacity that callers may want if as many came as were served since the last update. It grows with
   * the fraction of time in which callers waited. `undefined` while nobody was served.
   */
  update(now: number, sample: Sample): number | undefined {
    const span = Math.max(now - this.at, 0);
    const served = Math.max(sample.count - sample.waiting, 0);
    if (span < MIN_OBSERVATION || (sample.waiting > 0 && this.waiting > 0 && served <= this.served)) return undefined;
    const part = Math.min(Math.max(sample.queuedMs - this.queuedMs, 0) / span, 1);
    const replaced = this.waiting > 0 && sample.waiting >= this.waiting;
    this.at = now;
    this.queuedMs = sample.queuedMs;
    this.served = served;
    this.waiting = sample.waiting;
    const guess = sample.capacity * Math.min(part / (1 - part), MAX_GROWTH);
    return replaced && Number.isFinite(guess) ? guess : 0;
  }
}

/** An estimate of wants. It wants nothing before the first sample. */
export class Demand {
  private readonly flow: FlowEstimator | undefined;
  /** A refresh interval, in seconds. */
  private readonly refresh: number;
  private readonly remembers: boolean;
  /** Wants at the time `at`. */
  private level = 0;
  /** The current demand, which wants fall to. */
  private demand = 0;
  /** Lower bound of wants while callers wait. */
  private guess = 0;
  /** Additional capacity to serve waiting callers. */
  private backlog = 0;
  /** Rates: whether callers waited at the last sample. */
  private waits = false;
  private at = 0;
  /** Wants do not fall before this time. */
  private hold = 0;
  private readonly trend = new QueueTrend();

  constructor(settings: DemandSettings) {
    const refreshMs = Math.max(settings.refreshMs, 1);
    this.flow = settings.kind === "rate" ? new FlowEstimator(refreshMs) : undefined;
    this.refresh = refreshMs / 1000;
    this.remembers = settings.remembers;
  }

  /** Takes a sample. */
  sample(now: number, sample: Sample): void {
    this.level = this.remembered(now);
    this.at = Math.max(this.at, now);
    const isYoung = this.flow === undefined ? this.sampleGauge(sample) : this.sampleRate(this.flow, sample);
    if (this.demand >= this.level || isYoung || !this.remembers) {
      this.level = this.demand;
      this.hold = this.at;
      if (this.flow === undefined) this.hold += Math.floor(HOLD_REFRESHES * this.refresh * 1000);
    }
  }

  private sampleGauge(sample: Sample): boolean {
    this.demand = sample.count + sample.waiting;
    return false;
  }

  private sampleRate(flow: FlowEstimator, sample: Sample): boolean {
    const before = this.demand;
    // The callers with which an observation begins do not begin another one, however long they wait.
    const [count, freely] = net(sample);
    const idle = this.demand * this.refresh < IDLE_ARRIVALS && flow.hasFewerThan(count);
    if (idle && sample.waiting > 0 && sample.waiting >= flow.recent(this.at, count)) {
      // All arrivals are waiting for the first lease: a burst, and no flow yet.
      flow.restart(sample.waiting);
    }
    const rates = flow.sample(this.at, { count, freely, queuedMs: sample.queuedMs });
    const isYoung = flow.isYoung(this.at);
    this.demand = Math.max(rates.all, Math.min(rates.freely, rates.all * MAX_GROWTH));
    const first = isYoung && flow.initialCallersWait(Math.max(sample.count - sample.waiting, 0));
    this.backlog = backlog(first, sample.waiting, sample.capacity);
    this.waits = sample.waiting > 0;
    const guess = this.trend.update(this.at, sample);
    // The guess does not fall while callers wait.
    if (guess !== undefined) this.guess = isYoung && this.waits ? Math.max(guess, this.guess) : guess;
    if (isYoung && this.waits) this.demand = Math.max(this.demand, before);
    return isYoung;
  }

  /** The wants at `now`: finite and not negative. */
  wants(now: number): number {
    return Math.max(this.remembered(now), this.guess) + this.backlog;
  }

  /**
   * When to take the next sample before the next refresh, if that is worthwhile: soon while callers wait and the flow
   * is young, and when they were served, so that the guess for them does not last a whole refresh interval.
   */
  nextSampleAt(): number | undefined {
    if (this.flow === undefined) return undefined;
    const age = this.flow.age(this.at);
    const next = [SETTLED_AGE, Math.floor(this.refresh * 1000)].find((limit) => age < limit);
    if (next === undefined || this.level + this.wants(this.at) <= 0) return undefined;
    return this.at + (this.waits ? Math.min(RESAMPLE_DELAY, next - age) : next - age);
  }

  private remembered(now: number): number {
    const seconds = Math.max(now - Math.max(this.at, this.hold), 0) / 1000;
    const above = (this.level - this.demand) * Math.exp(-seconds / (MEMORY_REFRESHES * this.refresh));
    return above <= this.demand * TOLERANCE || this.demand + above < NEGLIGIBLE ? this.demand : this.demand + above;
  }
}

/** The additional capacity to serve waiting callers. */
function backlog(first: boolean, waiting: number, capacity: number): number {
  if (first) return Math.max(waiting / MAX_WAIT_SECONDS, 1 / FIRST_WAIT_SECONDS);
  if (waiting <= capacity * PROMPT_SECONDS) return 0;
  // Below one permit in that time, a waiting caller does not have to be faster than the next arrival.
  if (capacity > 0) return waiting * Math.min(capacity, 1 / MAX_WAIT_SECONDS);
  return waiting / MAX_WAIT_SECONDS;
}
