import { type Burst, Bucket } from "./limiter/bucket.js";
import { PermitCount } from "./limiter/count.js";
import { Demand, type Sample } from "./limiter/demand.js";
import { Semaphore, type SemaphoreEvents, type Time } from "./limiter/semaphore.js";
import { Spender } from "./limiter/spender.js";
import { type PoolState, type Usage, type UsageCounters, UsageTracker } from "./limiter/usage.js";
import { estimating, type Window, WindowDemand } from "./limiter/window.js";
import type { Lease, Mode, Usable, Wants } from "./session.js";

/** The bound of servers. */
export const MAX_WANTS = 1e15;

export type Kind = "rate" | "gauge" | "budget";

/** What enforces the capacity. */
export type Limiter =
  | { readonly kind: "rate"; readonly semaphore: Semaphore<Bucket> }
  | { readonly kind: "gauge"; readonly semaphore: Semaphore<PermitCount> }
  /** The semaphore only notices the expiry of the lease. Nobody takes its permits. */
  | { readonly kind: "budget"; readonly semaphore: Semaphore<PermitCount>; readonly spender: Spender };

/** The settings that all handles of a resource share, as far as they were set. */
export interface SharedSettings {
  readonly wants?: number | undefined;
  readonly priority?: number | undefined;
  readonly mode?: Mode | undefined;
  readonly burst?: number | undefined;
  readonly windowMs?: number | undefined;
  readonly window?: Window | undefined;
  readonly maxDebt?: number | undefined;
}

/** Settings of an open resource. */
export interface OpenSettings {
  readonly kind: Kind;
  readonly mode: Mode;
  /** The priority that this client claims. */
  readonly priority: number;
  /** The wants; estimated if absent. */
  readonly wants: number | undefined;
  readonly burst: Burst;
  readonly window: Window | undefined;
  readonly maxDebt: number | undefined;
  /** As they were set. */
  readonly set: SharedSettings;
}

/** Where wants come from: set by the user, or estimated from the permits that callers take or wait for. */
type WantsSource = { readonly fixed: number } | { readonly estimated: Demand };

/** An open resource: the state shared by all its handles. */
export class OpenResource {
  readonly mode: Mode;
  readonly priority: number;
  readonly limiter: Limiter;
  /** The priority at which the server counts this client. */
  effectivePriority: number;
  /** The number of open handles. */
  handles = 0;
  /** The number of permits, reservations and waiting callers, which keep the resource open without a handle. */
  holds = 0;
  usable: Usable = { capacity: 0, basis: "unknown" };
  /** The wants in the last estimate. */
  wanted = 0;
  private source: WantsSource;
  private window: WindowDemand | undefined;
  private tracker: UsageTracker | undefined;
  private readonly watchers = new Set<() => void>();

  constructor(
    readonly id: string,
    private readonly settings: OpenSettings,
    time: Time,
    events: SemaphoreEvents,
  ) {
    this.mode = settings.mode;
    this.priority = settings.priority;
    this.effectivePriority = settings.priority;
    this.window = settings.window && new WindowDemand(settings.window);
    if (settings.kind === "rate") {
      const burst = settings.window === undefined ? settings.burst : { windowMs: settings.window.lengthMs };
      const bucket = new Bucket(burst, time.now(), settings.window !== undefined);
      if (settings.maxDebt !== undefined) bucket.maxDebt = settings.maxDebt;
      this.limiter = { kind: "rate", semaphore: new Semaphore(bucket, time, events) };
    } else if (settings.kind === "budget") {
      const semaphore = new Semaphore(new PermitCount(), time);
      this.limiter = { kind: "budget", semaphore, spender: new Spender(time, events) };
    } else {
      this.limiter = { kind: "gauge", semaphore: new Semaphore(new PermitCount(), time, events) };
    }
    this.source = settings.wants === undefined ? this.newEstimate() : { fixed: settings.wants };
  }

  /** The name of a setting that another handle sets to another value than the first one. */
  conflict(set: SharedSettings): keyof SharedSettings | undefined {
    const { mode, priority, set: first } = this.settings;
    const window = this.window?.window;
    const isOther: Record<keyof SharedSettings, boolean> = {
      wants: set.wants !== first.wants,
      priority: set.priority !== priority,
      mode: set.mode !== mode,
      burst: set.burst !== first.burst,
      windowMs: set.windowMs !== first.windowMs,
      window: set.window?.lengthMs !== window?.lengthMs || set.window?.rate !== window?.rate,
      maxDebt: set.maxDebt !== first.maxDebt,
    };
    const names = Object.keys(isOther) as (keyof SharedSettings)[];
    return names.find((name) => set[name] !== undefined && isOther[name]);
  }

  private newEstimate(): WantsSource {
    const kind = this.limiter.kind === "rate" ? "rate" : "gauge";
    return { estimated: new Demand(estimating(kind, this.window?.window)) };
  }

  setFixedWants(wants: number): void {
    this.source = { fixed: wants };
  }

  /** Estimates wants from now on, unless it does so already. */
  estimateWants(): void {
    if (!this.estimatesWants) this.source = this.newEstimate();
  }

  /** Replaces the window, if there is one, and forgets the demand observed with the old one. */
  setWindow(window: Window): void {
    if (this.window === undefined) return;
    this.window = new WindowDemand(window);
    if (this.estimatesWants) this.source = this.newEstimate();
  }

  get estimatesWants(): boolean {
    return "estimated" in this.source;
  }

  /** The demand now. */
  wants(now: number): Wants {
    const { limiter } = this;
    if (limiter.kind === "budget") {
      const { amount, spent } = limiter.spender.wants(now);
      this.wanted = amount;
      return { amount, priority: this.priority, outstanding: 0, usage: undefined, spent };
    }
    // Notice an expiry before the meter is read, because reading computes credit.
    limiter.semaphore.now();
    // Read the peak once, because reading resets it, and both wants and usage depend on it.
    const peak = limiter.kind === "gauge" ? limiter.semaphore.takePeak() : 0;
    const outstanding = limiter.kind === "gauge" ? limiter.semaphore.meter.outstanding() : 0;
    const wanted = "fixed" in this.source ? this.source.fixed : this.estimate(this.source.estimated, now, peak);
    // A server refuses larger wants, and then nothing would be granted.
    const amount = Math.min(wanted, MAX_WANTS);
    this.wanted = amount;
    return { amount, priority: this.priority, outstanding, usage: this.usage(now, peak) };
  }

  private estimate(demand: Demand, now: number, peak: number): number {
    const { limiter, window } = this;
    if (limiter.kind !== "rate") {
      demand.sample(now, { count: peak, freely: 0, refunded: 0, waiting: 0, queuedMs: 0, capacity: 0 });
      return demand.wants(now);
    }
    const { semaphore } = limiter;
    const sample: Sample = {
      count: semaphore.arrived,
      freely: semaphore.arrivedFreely,
      refunded: semaphore.refunded,
      waiting: semaphore.pending(now),
      queuedMs: semaphore.queued(now),
      capacity: semaphore.meter.capacity,
    };
    demand.sample(now, sample);
    const estimated = demand.wants(now);
    if (window === undefined) return estimated;
    const queued = semaphore.waiting + semaphore.reserved;
    const refused = Math.max(semaphore.arrived - semaphore.meter.taken - semaphore.refunded - queued, 0);
    return window.wants(now, { estimated, refused, capacity: semaphore.meter.capacity });
  }

  /** In a pool: the usage since the last report. */
  private usage(now: number, peak: number): Usage | undefined {
    const { tracker, limiter } = this;
    if (tracker === undefined) return undefined;
    const counters = this.counters(now);
    if (limiter.kind === "rate") return tracker.useOfRate(counters);
    return tracker.useOfGauge(counters, peak === 0 ? 0 : peak / limiter.semaphore.meter.capacity);
  }

  private counters(now: number): UsageCounters {
    const { semaphore, kind } = this.limiter;
    const rechargingMs = kind === "rate" ? this.limiter.semaphore.meter.rechargingMs(now) : 0;
    return { at: now, taken: semaphore.meter.taken, rechargingMs };
  }

  /**
   * Applies the state of a pool from an answer; `undefined` if it is not a pool. `reported` is the usage in the request
   * of that answer.
   */
  setPoolState(now: number, state: PoolState | undefined, reported: Usage | undefined): void {
    if (state === undefined && this.tracker === undefined) return;
    const counters = reported?.counters ?? this.counters(now);
    this.tracker = state && new UsageTracker(this.tracker, state, counters, reported?.recharging);
    if (this.limiter.kind === "rate") {
      this.limiter.semaphore.change((bucket, at) => bucket.set(at, bucket.capacity, this.bufferMs()));
    }
  }

  /** The state of this client in a pool. */
  get pool(): PoolState | undefined {
    return this.tracker?.state;
  }

  /** The burst set by a pool, while its lease is in force. */
  private bufferMs(): number | undefined {
    return this.usable.basis === "lease" ? this.tracker?.state.burstMs : undefined;
  }

  /** When to estimate wants again, if that should not wait for the next refresh. */
  nextSampleAt(): number | undefined {
    return "estimated" in this.source ? this.source.estimated.nextSampleAt() : undefined;
  }

  /** Whether callers wait or there is debt, and wants are estimated. */
  isUnderPressure(now: number): boolean {
    if (this.limiter.kind === "budget") return this.limiter.spender.hasWaiting;
    return this.estimatesWants && this.limiter.semaphore.pending(now) > 0;
  }

  /** Debt in permits. */
  debt(): number {
    const { semaphore } = this.limiter;
    return semaphore.meter.owed(semaphore.now());
  }

  /** Applies a capacity that is valid until `end`; `expired` gets that time before anything is admitted later. */
  apply(usable: Usable, end: number, expired: (at: number) => void): void {
    const { semaphore } = this.limiter;
    // Time before now counts at the old capacity, until its expiry.
    const now = semaphore.now();
    this.usable = usable;
    this.setCapacity(now, usable.capacity, this.bufferMs());
    semaphore.expireAt(end, expired);
    // Admits callers, unless the new capacity has expired, too.
    semaphore.change(() => {});
    for (const watcher of [...this.watchers]) watcher();
  }

  /** The capacity has expired at `at`: from then on `capacity` applies. */
  expire(at: number, capacity: number): void {
    this.setCapacity(at, capacity, undefined);
  }

  private setCapacity(at: number, capacity: number, bufferMs: number | undefined): void {
    const { limiter } = this;
    if (limiter.kind === "rate") limiter.semaphore.meter.set(at, capacity, bufferMs);
    else limiter.semaphore.meter.capacity = capacity;
  }

  /** Calls `watcher` when the usable capacity has changed. Returns what stops that. */
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /** Budgets: takes the newest lease. Returns whether the client should ask again at once. */
  takeAllowance(lease: Lease): boolean {
    return this.limiter.kind === "budget" && this.limiter.spender.take(lease);
  }

  /** Waiting callers get `ClosedError`. */
  refuseWaiters(): void {
    if (this.limiter.kind === "budget") this.limiter.spender.refuseWaiters();
    this.limiter.semaphore.refuseWaiters();
  }

  /** Closes the limiter. */
  close(): void {
    if (this.limiter.kind === "budget") this.limiter.spender.close();
    this.limiter.semaphore.close();
  }

  /** Tells watchers that it was closed. */
  announceClosed(): void {
    this.apply({ capacity: 0, basis: "unknown" }, Number.POSITIVE_INFINITY, () => {});
  }
}
