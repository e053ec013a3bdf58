/**
 * The client side of pools (PRIORITY_POOL): the state of the client in the pool, and the usage that it reports.
 *
 * A request reports the usage since the last answered request, so usage during a request is reported with the next one.
 * If an answer is lost, the next request echoes the same lease with all usage since, and the server counts the
 * difference. Usage is counted and sent only after the server has said that the resource is a pool.
 */

/** The standing of this client in a pool. */
export type PoolStanding = "waiting" | "free" | "priority" | "revoking";

/** The state of this client in a pool. */
export interface PoolState {
  readonly standing: PoolStanding;
  /** Its assignment; 0 if it has none. */
  readonly assigned: number;
  /** The minimum useful capacity: a client has nothing, or at least this much. */
  readonly minCapacity: number;
  /** Why it has nothing, if the server says so. */
  readonly reason: string | undefined;
  /** How much capacity a rate may save up, as time at full capacity; absent if the server does not say. */
  readonly burstMs: number | undefined;
}

/** Counters of usage: what a limiter has let through so far. */
export interface UsageCounters {
  /** The time of the reading. */
  readonly at: number;
  /** Units used so far. */
  readonly taken: number;
  /** Rates: total time in which the capacity was in use. */
  readonly rechargingMs: number;
}

/** The usage of a lease. */
export interface Usage {
  /** Rates: the fraction of the time in which the capacity was in use. Gauges: the largest fraction of it in use. */
  readonly recharging: number;
  /** Units used. */
  readonly units: number;
  /** The length of the measured interval. */
  readonly intervalMs: number;
  /** The counters at its end, where the next interval starts once the server has this one. */
  readonly counters: UsageCounters;
}

/** Usage is measured over at least this time. */
const MIN_MEASURE_MS = 100;

/** Tracks which usage the server knows of. */
export class UsageTracker {
  /** Gauges: the largest fraction in use since the last report, and since the last reading. */
  private peak: number;
  private newestPeak: number;
  private readonly reportedPart: number;

  /**
   * The server has answered a request that reported usage up to `reported`, and `reportedPart` if it reported any.
   * `before` is the tracker until now.
   */
  constructor(
    before: UsageTracker | undefined,
    readonly state: PoolState,
    private readonly reported: UsageCounters,
    reportedPart: number | undefined,
  ) {
    // Whether the newest peak came before or after the request was sent is unknown: count it in both.
    this.peak = before?.newestPeak ?? 0;
    this.newestPeak = this.peak;
    // Everything counts as used until something is known.
    this.reportedPart = reportedPart ?? before?.reportedPart ?? 1;
  }

  /** The usage of a rate, which is in use while its credit recharges. */
  useOfRate(counters: UsageCounters): Usage {
    const used = Math.max(counters.rechargingMs - this.reported.rechargingMs, 0);
    const passed = Math.max(counters.at - this.reported.at, 0);
    // A very short interval says little, so the last report counts for the rest of it.
    const rest = this.reportedPart * Math.max(MIN_MEASURE_MS - passed, 0);
    return this.usage(counters, (used + rest) / Math.max(passed, MIN_MEASURE_MS));
  }

  /** The usage of a gauge; `peak` is the largest fraction in use since the last reading. */
  useOfGauge(counters: UsageCounters, peak: number): Usage {
    this.newestPeak = peak;
    this.peak = Math.max(this.peak, peak);
    return this.usage(counters, this.peak);
  }

  private usage(counters: UsageCounters, recharging: number): Usage {
    return {
      recharging: Math.min(Math.max(recharging, 0), 1),
      units: Math.max(counters.taken - this.reported.taken, 0),
      intervalMs: Math.max(counters.at - this.reported.at, 0),
      counters,
    };
  }
}
