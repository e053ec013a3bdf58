import type { Meter, Promised } from "./meter.js";
import { Returns } from "./returns.js";

/** Permits, and permits per second, are bounded by this. */
const MAX_PERMITS = 1e15;

/** Lower capacities count as none. */
const MIN_RATE = 1e-12;

/** The default maximum debt, in permits. */
const MAX_DEBT = 1_000_000;

/** How late a waiter may be woken without losing capacity. Node's timers are one to two milliseconds late. */
const SMOOTH_SECONDS = 0.02;

/**
 * How much unused capacity a rate may save up and use at once.
 *
 * In any period of T seconds a limiter admits at most capacity · T + burst. The burst is at least one permit. A caller
 * that waits for more permits than the burst is admitted once all of them are saved up. In a pool (PRIORITY_POOL) the
 * server sets the burst; that replaces `smooth` and bounds the other choices.
 *
 * - `smooth`: one permit plus 20 ms of capacity, as smooth as timers allow without losing capacity.
 * - `windowMs`: the capacity of this duration, for budgets per second, per minute or per day.
 * - `permits`: a fixed number of permits.
 */
export type Burst = { readonly windowMs: number } | { readonly permits: number } | "smooth";

/** The number of permits that may be saved up at this capacity: at least one, unlimited if the capacity is. */
export function burstPermits(burst: Burst, capacity: number): number {
  let permits: number;
  if (burst === "smooth") permits = 1 + capacity * SMOOTH_SECONDS;
  else if ("windowMs" in burst) permits = (capacity * burst.windowMs) / 1000;
  else permits = Number.isFinite(capacity) ? burst.permits : capacity;
  // An unlimited capacity with a window of zero is NaN.
  return permits > 1 ? permits : 1;
}

/** As `burstPermits`, if the server sets the burst to `bufferMs`. A smaller choice of the owner is respected. */
function boundedBurst(burst: Burst, capacity: number, bufferMs: number | undefined): number {
  const own = burstPermits(burst, capacity);
  if (bufferMs === undefined || !Number.isFinite(capacity)) return own;
  const buffer = Math.max((capacity * bufferMs) / 1000, burstPermits("smooth", capacity));
  return burst === "smooth" ? buffer : Math.min(buffer, own);
}

/** The state of a rate. */
export interface Standing {
  /** Permits available now, even if others wait for them. Infinite if unlimited, negative if there is debt. */
  readonly available: number;
  /** The maximum that can be saved up. */
  readonly burst: number;
  /** Permits per second. */
  readonly capacity: number;
}

/**
 * A token bucket that does not drift. Credit grows with time up to the burst, and is spent by callers. Time is an
 * argument, in milliseconds with fractions.
 *
 * Credit is the sum of two doubles, the second of which holds the rounding errors of the first (TwoSum), so it makes no
 * difference how often the bucket is settled. Negative credit is debt.
 */
export class Bucket implements Meter {
  capacity = 0;
  taken = 0;
  readonly inUse = 0;
  maxDebt = MAX_DEBT;
  private burst: Burst;
  /** The burst set by the server, if any. */
  private bufferMs: number | undefined;
  /** Permits per millisecond. */
  private rate = 0;
  /** Maximum credit, unless a waiter saves up for more. */
  private depth = 1;
  private credit = 0;
  /** The rounding error of `credit`. */
  private error = 0;
  /** Price of the head of the queue. Credit may grow up to it. */
  private saving = 0;
  private readonly returns = new Returns();
  /** The time up to which credit has been computed. */
  private settled: number;
  private recharged = 0;

  /** An empty bucket without capacity. `beginsFull` fills it when it gets capacity for the first time. */
  constructor(
    burst: Burst,
    now: number,
    private beginsFull = false,
  ) {
    this.burst = burst;
    this.settled = now;
  }

  /** The current state. */
  standing(now: number): Standing {
    this.settle(now);
    let available = this.credit;
    if (this.capacity === Number.POSITIVE_INFINITY) available = this.capacity;
    else if (this.rate === 0) available = Math.min(available, 0);
    return { available, burst: this.permits(), capacity: this.capacity };
  }

  /** Total time in which the bucket was not full: the time in which the capacity was in use. */
  rechargingMs(now: number): number {
    this.settle(now);
    return this.recharged;
  }

  /** Sets the capacity, and the burst if the server sets it. Time up to now counts at the old rate. */
  set(now: number, capacity: number, bufferMs?: number): void {
    this.settle(now);
    this.bufferMs = bufferMs;
    const wasUnlimited = this.capacity === Number.POSITIVE_INFINITY;
    this.capacity = capacity;
    const perSecond = Math.min(capacity, MAX_PERMITS);
    this.rate = perSecond < MIN_RATE ? 0 : perSecond / 1000;
    this.depth = Math.min(this.permits(), MAX_PERMITS);
    if (capacity === Number.POSITIVE_INFINITY || wasUnlimited) this.setCredit(this.ceiling());
    else if (this.rate > 0 && this.beginsFull) this.add(this.depth);
    if (this.rate > 0) this.beginsFull = false;
    this.dropOverflow();
  }

  /** Changes the burst. Credit beyond it is dropped. */
  setBurst(now: number, burst: Burst): void {
    this.burst = burst;
    this.set(now, this.capacity, this.bufferMs);
  }

  /** Whole permits available now. */
  available(now: number): number {
    this.settle(now);
    if (this.capacity === Number.POSITIVE_INFINITY) return Number.POSITIVE_INFINITY;
    return this.rate === 0 ? 0 : Math.max(Math.floor(this.credit), 0);
  }

  check(now: number, reserved: number, n: number): boolean {
    this.settle(now);
    return this.capacity === Number.POSITIVE_INFINITY || (this.rate > 0 && this.credit >= reserved + n);
  }

  waitFor(now: number, reserved: number, n: number): number | undefined {
    // Credit beyond the ceiling is dropped, so the reserved permits have to be taken first.
    const isReachable = reserved === 0 || reserved + n <= this.ceiling();
    return isReachable ? this.readyIn(now, reserved + n) : undefined;
  }

  take(now: number, n: number): boolean {
    this.settle(now);
    if (this.capacity === Number.POSITIVE_INFINITY) {
      this.saving = 0;
    } else if (this.rate > 0 && this.credit >= n) {
      this.add(-n);
      this.returns.take(n);
      if (this.saving > 0) {
        this.saving = 0;
        this.dropOverflow();
      }
    } else {
      return false;
    }
    this.taken += n;
    return true;
  }

  readyIn(now: number, permits: number): number | undefined {
    this.settle(now);
    if (this.rate === 0) return undefined;
    return Math.max(permits - this.credit, 0) / this.rate;
  }

  maxAtOnce(): number | undefined {
    return this.rate > 0 ? this.permits() : undefined;
  }

  saveFor(now: number, n: number): void {
    this.settle(now);
    this.saving = n;
  }

  stopSaving(now: number): void {
    this.settle(now);
    this.saving = 0;
    this.dropOverflow();
  }

  owed(now: number): number {
    this.settle(now);
    return this.credit < 0 ? Math.ceil(-this.credit) : 0;
  }

  /**
   * Takes `n` permits that were used already, from the credit first and then as debt. Returns the number of charged
   * permits, which is less than `n` only if the maximum debt is reached.
   */
  charge(now: number, n: number): number {
    this.settle(now);
    let charged = n;
    if (this.capacity !== Number.POSITIVE_INFINITY) {
      charged = Math.min(n, Math.max(Math.floor(this.credit + this.maxDebt), 0));
      this.add(-charged);
      this.returns.take(charged);
      this.dropOverflow();
    }
    this.taken += charged;
    return charged;
  }

  /** Returns `n` of the permits taken last. The result is at most the number that were taken. */
  refund(now: number, n: number): number {
    this.settle(now);
    const refunded = Math.min(n, this.taken);
    this.taken -= refunded;
    this.add(this.returns.refund(refunded));
    return refunded;
  }

  /** Turns the `n` permits that were just taken into a reservation. */
  promise(n: number): Promised {
    return { n, era: this.returns.promise(n) };
  }

  /** Ends a reservation of which `used` permits were used. */
  usePart(now: number, promised: Promised, used: number): void {
    this.settle(now);
    const unused = promised.n - Math.min(used, promised.n);
    this.taken = Math.max(this.taken - unused, 0);
    this.add(this.returns.end(unused, promised.era));
    this.returns.claim(promised.n - unused, promised.era);
  }

  private permits(): number {
    return boundedBurst(this.burst, this.capacity, this.bufferMs);
  }

  /** Computes the credit up to `now`. Time never runs backwards. */
  private settle(now: number): void {
    const passed = now - this.settled;
    if (passed > 0) {
      this.settled = now;
      if (this.capacity !== Number.POSITIVE_INFINITY) {
        const room = this.room();
        if (room > 0) this.recharged += this.rate === 0 ? passed : Math.min(room / this.rate, passed);
        this.add(this.rate * passed);
      }
    }
    this.dropOverflow();
  }

  private add(permits: number): void {
    const value = permits + this.error;
    const sum = this.credit + value;
    const part = sum - this.credit;
    this.error = this.credit - (sum - part) + (value - part);
    this.credit = sum;
  }

  private setCredit(permits: number): void {
    this.credit = permits;
    this.error = 0;
  }

  private dropOverflow(): void {
    const ceiling = this.ceiling();
    if (this.credit > ceiling) this.setCredit(ceiling);
    this.returns.cut(this.room());
  }

  /** The distance of credit from its maximum. */
  private room(): number {
    return this.ceiling() - this.credit;
  }

  /** The maximum credit now. */
  private ceiling(): number {
    return Math.max(this.depth, this.saving);
  }
}
