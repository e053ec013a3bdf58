import { ClosedError, TimeoutError } from "../errors.js";
import type { Meter } from "./meter.js";

/** The clock and the timers of a semaphore; tests replace them by virtual time. */
export interface Time {
  /** Milliseconds since some origin, with fractions. */
  now(): number;
  /** Calls `callback` at `at` or later, and returns what cancels that. */
  setTimer(at: number, callback: () => void): () => void;
}

/** How a caller stops waiting. */
export interface WaitOptions {
  /** Rejects the wait with the reason of the signal when it aborts. Nothing is taken then. */
  readonly signal?: AbortSignal | undefined;
  /** Rejects the wait with `TimeoutError` after this time. Nothing is taken then. */
  readonly timeoutMs?: number | undefined;
}

/** Events of a semaphore that its owner wants to know. */
export interface SemaphoreEvents {
  /** A caller has to wait or debt arose; again each time the number of pending permits has doubled since. */
  pressure?(): void;
  /** Callers begin or cease to wait. */
  waiting?(callersWait: boolean): void;
}

interface Waiter {
  readonly n: number;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
  isQueued: boolean;
  before: Waiter | undefined;
  after: Waiter | undefined;
  /** Removes the listener of the signal and the timer. */
  cleanUp: (() => void) | undefined;
}

/** Why a permit is not available now. Nothing was taken, and the caller was not queued. */
export type Refusal =
  /** Others wait, or the capacity does not allow it yet. `retryAfterMs` is undefined if the time is unknown. */
  | { readonly reason: "not-now"; readonly retryAfterMs: number | undefined }
  /** More permits than can ever be available at once at the current capacity: the burst, or the capacity of a gauge. */
  | { readonly reason: "too-many"; readonly burst: number }
  | { readonly reason: "closed" };

/** The longest timer; at its end the head of the queue looks again. */
const MAX_SLEEP_MS = 3_600_000;

/** If the head of the queue is this late, the next caller admits it. */
const OVERDUE_MS = 10;

const noop = () => {};

/**
 * A fair semaphore over a meter. Callers are served first come, first served, and no caller overtakes a waiting one,
 * so a caller that needs many permits is not starved by callers that need few.
 */
export class Semaphore<M extends Meter> {
  private head: Waiter | undefined;
  private tail: Waiter | undefined;
  /** The sum of permits that callers wait for. */
  private wanted = 0;
  private arrivals = 0;
  private freeArrivals = 0;
  /** Permits returned unused so far. */
  refunded = 0;
  /** When the head of the queue can be admitted, if that depends on time alone. */
  private due: number | undefined;
  private timerAt: number | undefined;
  private cancelTimer: () => void = noop;
  /** The number of pending permits at the last pressure event. */
  private pressureAt = 0;
  private peak = 0;
  /** Total time with callers waiting, up to the moment when the queue was last empty. */
  private queuedMs = 0;
  private queuedSince: number | undefined;
  private closed = false;
  /** When the capacity expires, and what to do then. */
  private expiresAt = Number.POSITIVE_INFINITY;
  private onExpiry: (at: number) => void = noop;

  constructor(
    readonly meter: M,
    private readonly time: Time,
    private readonly events: SemaphoreEvents = {},
  ) {}

  /**
   * The current time. Nobody is admitted, and no credit grows, at a capacity that has expired: its owner may not have
   * noticed because the event loop was busy or the machine was suspended, so it is told first.
   */
  now(): number {
    const now = this.time.now();
    if (now >= this.expiresAt) {
      const at = this.expiresAt;
      this.expiresAt = Number.POSITIVE_INFINITY;
      this.onExpiry(at);
    }
    return now;
  }

  /** Sets when the capacity expires. `expired` gets that time, and has to change the meter as of then. */
  expireAt(at: number, expired: (at: number) => void): void {
    this.expiresAt = at;
    this.onExpiry = expired;
  }

  /** Takes `n` permits if they are available and no caller waits, else says why not. Refused permits count as arrived. */
  tryAcquire(n: number): Refusal | undefined {
    const now = this.now();
    if (this.closed) return { reason: "closed" };
    const burst = this.meter.maxAtOnce();
    if (burst !== undefined && burst < n) return { reason: "too-many", burst };
    this.arrive(now, n);
    if (this.takeUnqueued(now, n)) return undefined;
    return { reason: "not-now", retryAfterMs: this.meter.readyIn(now, this.wanted + n) };
  }

  /** Waits for `n` permits at once. */
  acquire(n: number, options?: WaitOptions): Promise<void> {
    const signal = options?.signal;
    if (signal?.aborted) return Promise.reject(signal.reason);
    const now = this.now();
    if (this.closed) return Promise.reject(new ClosedError());
    this.arrive(now, n);
    if (this.takeUnqueued(now, n)) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const before = this.pending(now);
      const waiter: Waiter = {
        n,
        resolve,
        reject,
        isQueued: true,
        before: this.tail,
        after: undefined,
        cleanUp: undefined,
      };
      if (options !== undefined) this.watch(waiter, options);
      if (this.tail === undefined) this.head = waiter;
      else this.tail.after = waiter;
      this.tail = waiter;
      this.wanted += n;
      this.peak = Math.max(this.peak, this.demanded());
      if (this.head === waiter) {
        this.queuedSince = now;
        this.events.waiting?.(true);
      }
      this.raisePressure(now, before);
      if (this.head === waiter) this.admit(now);
    });
  }

  /** Changes the meter, then admits the callers that it allows. */
  change<R>(change: (meter: M, now: number) => R): R {
    const now = this.now();
    const result = change(this.meter, now);
    this.admit(now);
    return result;
  }

  /** As `change`, for permits that were used already: callers that are due do not pay for them. */
  charge(charge: (meter: M, now: number) => number): number {
    const now = this.now();
    this.admit(now);
    const before = this.pending(now);
    const charged = charge(this.meter, now);
    // A charge is demand, like a request.
    this.arrive(now, charged);
    this.admit(now);
    if (this.pending(now) > before) this.raisePressure(now, before);
    return charged;
  }

  /** Closes: waiting and new callers get `ClosedError`. Permits in use stay valid. */
  close(): void {
    const now = this.time.now();
    this.closed = true;
    this.expiresAt = Number.POSITIVE_INFINITY;
    this.refuse(now);
  }

  /** Waiting callers get `ClosedError`. */
  refuseWaiters(): void {
    this.refuse(this.time.now());
  }

  private refuse(now: number): void {
    while (this.head !== undefined) {
      const waiter = this.head;
      this.unlink(waiter, now);
      waiter.reject(new ClosedError());
    }
    this.meter.stopSaving(now);
    this.arm(undefined);
  }

  /** Permits that are waited for. */
  get waiting(): number {
    return this.wanted;
  }

  /** Permits requested so far: granted, waited for, cancelled, refused, or charged. */
  get arrived(): number {
    return this.arrivals;
  }

  /** Permits requested so far while no caller waited. */
  get arrivedFreely(): number {
    return this.freeArrivals;
  }

  /** Total time with callers waiting. */
  queued(now: number): number {
    return this.queuedMs + (this.queuedSince === undefined ? 0 : Math.max(now - this.queuedSince, 0));
  }

  /** Permits that are waited for or owed. */
  pending(now: number): number {
    return this.wanted + this.meter.owed(now);
  }

  /** The peak since the last call of the sum of permits in use, waited for and refused. It resets the peak. */
  takePeak(): number {
    const { peak } = this;
    this.peak = this.demanded();
    return peak;
  }

  private demanded(): number {
    return this.meter.inUse + this.wanted;
  }

  /** Counts a request, and admits an overdue head first. */
  private arrive(now: number, n: number): void {
    this.arrivals += n;
    if (this.due !== undefined && now > this.due + OVERDUE_MS) this.admit(now);
    if (this.head === undefined) this.freeArrivals += n;
  }

  private takeUnqueued(now: number, n: number): boolean {
    const taken = n === 0 || (this.head === undefined && this.meter.take(now, n));
    // A refused caller is demand, too.
    const demanded = this.demanded() + (taken ? 0 : n);
    if (demanded > this.peak) this.peak = demanded;
    return taken;
  }

  private raisePressure(now: number, before: number): void {
    if (before === 0) this.pressureAt = 0;
    const pending = this.pending(now);
    if (pending < Math.max(this.pressureAt * 2, 1)) return;
    this.pressureAt = pending;
    this.events.pressure?.();
  }

  /** Admits callers from the head of the queue while the meter allows it, and sets the timer for the next. */
  private admit(now: number): void {
    while (this.head !== undefined) {
      const waiter = this.head;
      if (!this.meter.take(now, waiter.n)) {
        this.meter.saveFor(now, waiter.n);
        const readyIn = this.meter.readyIn(now, waiter.n);
        this.arm(readyIn === undefined ? undefined : now + readyIn);
        return;
      }
      this.unlink(waiter, now);
      waiter.resolve();
    }
    this.arm(undefined);
  }

  private watch(waiter: Waiter, { signal, timeoutMs }: WaitOptions): void {
    if (signal === undefined && timeoutMs === undefined) return;
    const onAbort = () => this.leave(waiter, signal?.reason);
    signal?.addEventListener("abort", onAbort);
    const expired = () => this.leave(waiter, new TimeoutError(`no permit within ${timeoutMs} ms`));
    const cancel = timeoutMs === undefined ? noop : this.time.setTimer(this.time.now() + timeoutMs, expired);
    waiter.cleanUp = () => {
      signal?.removeEventListener("abort", onAbort);
      cancel();
    };
  }

  /** A caller stops waiting. */
  private leave(waiter: Waiter, reason: unknown): void {
    const now = this.now();
    // The capacity has just expired, and the fallback was enough to admit it.
    if (!waiter.isQueued) return;
    const wasHead = this.head === waiter;
    this.unlink(waiter, now);
    waiter.reject(reason);
    if (wasHead) {
      this.meter.stopSaving(now);
      this.admit(now);
    }
  }

  private unlink(waiter: Waiter, now: number): void {
    waiter.cleanUp?.();
    waiter.isQueued = false;
    const { before, after } = waiter;
    if (before === undefined) this.head = after;
    else before.after = after;
    if (after === undefined) this.tail = before;
    else after.before = before;
    waiter.before = undefined;
    waiter.after = undefined;
    this.wanted -= waiter.n;
    if (this.head === undefined && this.queuedSince !== undefined) {
      this.queuedMs += Math.max(now - this.queuedSince, 0);
      this.queuedSince = undefined;
      this.events.waiting?.(false);
    }
  }

  private arm(due: number | undefined): void {
    this.due = due;
    // A timer that is early looks again, so that a head that is put off does not cost a timer each time.
    if (this.timerAt !== undefined && due !== undefined && this.timerAt <= due) return;
    if (this.timerAt !== undefined) {
      this.cancelTimer();
      this.timerAt = undefined;
    }
    if (due === undefined) return;
    this.timerAt = Math.min(due, this.time.now() + MAX_SLEEP_MS);
    this.cancelTimer = this.time.setTimer(this.timerAt, () => {
      this.timerAt = undefined;
      this.admit(this.now());
    });
  }
}
