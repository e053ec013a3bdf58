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

/** A caller that waits in the queues of several semaphores, see `joint.ts`. */
export interface JointWaiter {
  /**
   * Takes the permits if they are reserved at all semaphores, and leaves all queues if one was closed. Returns the callers
   * to advance next.
   */
  advance(): JointWaiter[];
}

/** An entry of the queue. */
export interface Waiter {
  readonly n: number;
  /** The number of waiters that had joined before. */
  readonly place: number;
  /** If it waits in queues of other semaphores, too. */
  readonly joint: JointWaiter | undefined;
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

/** Advances callers, and those behind them, in order. No semaphore may be in use. */
export function advanceAll(callers: JointWaiter[]): void {
  for (let next = callers.shift(); next !== undefined; next = callers.shift()) callers.push(...next.advance());
}

/** The longest timer; at its end the head of the queue looks again. */
const MAX_SLEEP_MS = 3_600_000;

/** If the head of the queue is this late, the next caller admits it. */
const OVERDUE_MS = 10;

const noop = () => {};

/** Calls `leave` when the signal aborts or the timeout expires. Returns what ends that. */
export function watchWait(
  time: Time,
  { signal, timeoutMs }: WaitOptions,
  leave: (reason: unknown) => void,
): (() => void) | undefined {
  if (signal === undefined && timeoutMs === undefined) return undefined;
  const onAbort = () => leave(signal?.reason);
  signal?.addEventListener("abort", onAbort);
  const expired = () => leave(new TimeoutError(`no permit within ${timeoutMs} ms`));
  const cancel = timeoutMs === undefined ? noop : time.setTimer(time.now() + timeoutMs, expired);
  return () => {
    signal?.removeEventListener("abort", onAbort);
    cancel();
  };
}

/**
 * A fair semaphore over a meter. Callers are served first come, first served, and no caller overtakes a waiting one,
 * so a caller that needs many permits is not starved by callers that need few.
 *
 * A request for permits of several limits waits in the queues of all of them, see `joint.ts`. When it gets to the head of
 * a queue and its permits are available, they are reserved: it keeps its place, and waiters behind it are admitted from
 * the rest. The frontier is the first waiter whose permits are neither granted nor reserved.
 */
export class Semaphore<M extends Meter> {
  private head: Waiter | undefined;
  private tail: Waiter | undefined;
  private frontier: Waiter | undefined;
  /** Permits reserved for the waiters ahead of the frontier. */
  reserved = 0;
  /** The number of waiters that have joined so far. */
  private joined = 0;
  /** Callers to advance at the end of the current operation: their permits are reserved now, or they were refused. */
  private advanced: JointWaiter[] = [];
  /** The sum of permits wanted by the waiters from the frontier on. */
  private wanted = 0;
  private arrivals = 0;
  private freeArrivals = 0;
  /** Permits returned unused so far. */
  refunded = 0;
  /** When the frontier can be admitted, if that depends on time alone. */
  private due: number | undefined;
  private timerAt: number | undefined;
  private cancelTimer: () => void = noop;
  /** The number of pending permits at the last pressure event. */
  private pressureAt = 0;
  private peak = 0;
  /** Total time with callers waiting, up to the last moment without any. */
  private queuedMs = 0;
  private queuedSince: number | undefined;
  private closed = false;
  /** When the capacity expires, and what to do then. */
  private expiresAt = Number.POSITIVE_INFINITY;
  private onExpiry: (at: number) => void = noop;

  constructor(
    readonly meter: M,
    readonly time: Time,
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
    const isTaken = this.takeUnqueued(now, n);
    const refusal = isTaken ? undefined : this.notNow(now, n);
    this.advanceJoint();
    return refusal;
  }

  private notNow(now: number, n: number): Refusal {
    return { reason: "not-now", retryAfterMs: this.meter.readyIn(now, this.wanted + this.reserved + n) };
  }

  /** Waits for `n` permits at once. */
  acquire(n: number, options?: WaitOptions): Promise<void> {
    const signal = options?.signal;
    if (signal?.aborted) return Promise.reject(signal.reason);
    const now = this.now();
    if (this.closed) return Promise.reject(new ClosedError());
    this.arrive(now, n);
    const isTaken = this.takeUnqueued(now, n);
    this.advanceJoint();
    if (isTaken) return Promise.resolve();
    const waiting = new Promise<void>((resolve, reject) => {
      const before = this.pending(now);
      const waiter = this.push(now, n, undefined, resolve, reject);
      if (options !== undefined) this.watch(waiter, options);
      this.peak = Math.max(this.peak, this.demanded());
      this.raisePressure(now, before);
      if (this.frontier === waiter) this.admit(now);
    });
    this.advanceJoint();
    return waiting;
  }

  private push(
    now: number,
    n: number,
    joint: JointWaiter | undefined,
    resolve: () => void,
    reject: (reason: unknown) => void,
  ): Waiter {
    const waiter: Waiter = {
      n,
      place: this.joined,
      joint,
      resolve,
      reject,
      isQueued: true,
      before: this.tail,
      after: undefined,
      cleanUp: undefined,
    };
    this.joined += 1;
    if (this.tail === undefined) {
      this.head = waiter;
      this.events.waiting?.(true);
    } else {
      this.tail.after = waiter;
    }
    this.tail = waiter;
    if (this.frontier === undefined) this.setFrontier(now, waiter);
    this.wanted += n;
    return waiter;
  }

  private setFrontier(now: number, waiter: Waiter | undefined): void {
    this.frontier = waiter;
    if (waiter !== undefined) {
      this.queuedSince ??= now;
    } else if (this.queuedSince !== undefined) {
      this.queuedMs += Math.max(now - this.queuedSince, 0);
      this.queuedSince = undefined;
    }
  }

  /** Advances callers of several semaphores, at the end of an operation. */
  private advanceJoint(): void {
    if (this.advanced.length > 0) advanceAll(this.takeAdvanced());
  }

  /** The callers to advance when no semaphore is in use. */
  takeAdvanced(): JointWaiter[] {
    const { advanced } = this;
    this.advanced = [];
    return advanced;
  }

  /** Changes the meter, then admits the callers that it allows. */
  change<R>(change: (meter: M, now: number) => R): R {
    const now = this.now();
    const result = change(this.meter, now);
    this.admit(now);
    this.advanceJoint();
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
    this.advanceJoint();
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
      this.detach(waiter);
      this.notify(waiter, () => waiter.reject(new ClosedError()));
    }
    this.setFrontier(now, undefined);
    this.wanted = 0;
    this.reserved = 0;
    this.meter.stopSaving(now);
    this.arm(undefined);
    this.advanceJoint();
  }

  /** Settles the wait of a caller, or leaves that to what waits in queues of other semaphores, too. */
  private notify(waiter: Waiter, settle: () => void): void {
    if (waiter.joint === undefined) settle();
    else this.advanced.push(waiter.joint);
  }

  /** Whether callers wait for permits that are not reserved for them. */
  get hasWaiters(): boolean {
    return this.frontier !== undefined;
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
    return this.meter.inUse + this.wanted + this.reserved;
  }

  /** Counts a request, and admits an overdue waiter first. */
  private arrive(now: number, n: number): void {
    this.arrivals += n;
    if (this.due !== undefined && now > this.due + OVERDUE_MS) this.admit(now);
    if (this.frontier === undefined) this.freeArrivals += n;
  }

  /** Whether `n` permits can be taken beyond `claimed` ones without overtaking a waiter. */
  private areFree(now: number, claimed: number, n: number): boolean {
    return this.frontier === undefined && this.meter.check(now, this.reserved + claimed, n);
  }

  private takeUnqueued(now: number, n: number): boolean {
    const taken = n === 0 || (this.areFree(now, 0, n) && this.meter.take(now, n));
    if (taken && this.reserved > 0) this.saveForFront(now);
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

  /** Admits callers from the frontier on while the meter allows it, and sets the timer for the next. */
  private admit(now: number): void {
    if (this.reserved > 0 && !this.meter.check(now, this.reserved, 0)) {
      // The capacity was cut, or permits were charged.
      this.wanted += this.reserved;
      this.reserved = 0;
      this.setFrontier(now, this.head);
    }
    this.arm(this.advanceFrontier(now));
    this.saveForFront(now);
  }

  /** Saves up for the waiter at the front, also if its permits are reserved. Taking permits ends that. */
  private saveForFront(now: number): void {
    if (this.head !== undefined) this.meter.saveFor(now, this.head.n);
  }

  /** Moves the frontier. Returns when it can be moved again, if that depends on time alone. */
  private advanceFrontier(now: number): number | undefined {
    while (this.frontier !== undefined) {
      const waiter = this.frontier;
      if (!this.meter.check(now, this.reserved, waiter.n)) {
        const wait = this.meter.waitFor(now, this.reserved, waiter.n);
        return wait === undefined ? undefined : now + wait;
      }
      this.setFrontier(now, waiter.after);
      this.wanted -= waiter.n;
      if (waiter.joint === undefined) {
        this.meter.take(now, waiter.n);
        this.detach(waiter);
      } else {
        this.reserved += waiter.n;
      }
      this.notify(waiter, waiter.resolve);
    }
    return undefined;
  }

  private watch(waiter: Waiter, options: WaitOptions): void {
    waiter.cleanUp = watchWait(this.time, options, (reason) => this.leave(waiter, reason));
  }

  /** A caller stops waiting. */
  private leave(waiter: Waiter, reason: unknown): void {
    const now = this.now();
    // The capacity has just expired, and the fallback was enough to admit it.
    if (!waiter.isQueued) return;
    const admitsOthers = this.unlink(waiter, now);
    waiter.reject(reason);
    if (admitsOthers) this.admit(now);
    this.advanceJoint();
  }

  /** Whether a queued waiter is ahead of the frontier, so that its permits are reserved. */
  private isAhead(waiter: Waiter): boolean {
    return this.frontier === undefined || waiter.place < this.frontier.place;
  }

  /** Takes a waiter out of the queue. Returns whether others may be admitted now. */
  private unlink(waiter: Waiter, now: number): boolean {
    const [isAhead, isFront, isFrontier] = [this.isAhead(waiter), this.head === waiter, this.frontier === waiter];
    if (isAhead) this.reserved -= waiter.n;
    else this.wanted -= waiter.n;
    if (isFrontier) this.setFrontier(now, waiter.after);
    this.detach(waiter);
    if (isFront) this.meter.stopSaving(now);
    return isAhead || isFrontier;
  }

  private detach(waiter: Waiter): void {
    waiter.cleanUp?.();
    waiter.isQueued = false;
    const { before, after } = waiter;
    if (before === undefined) this.head = after;
    else before.after = after;
    if (after === undefined) this.tail = before;
    else after.before = before;
    waiter.before = undefined;
    waiter.after = undefined;
    if (this.head === undefined) this.events.waiting?.(false);
  }

  // -- Requests for permits of several semaphores. `takeAdvanced` follows each of them.

  get isClosed(): boolean {
    return this.closed;
  }

  /** Why `n` permits cannot be taken beyond `claimed` ones; `undefined` if they can. Takes nothing. */
  claim(claimed: number, n: number): Refusal | undefined {
    const now = this.now();
    if (this.closed) return { reason: "closed" };
    const burst = this.meter.maxAtOnce();
    if (burst !== undefined && burst < claimed + n) return { reason: "too-many", burst };
    if (this.due !== undefined && now > this.due + OVERDUE_MS) this.admit(now);
    return this.areFree(now, claimed, n) ? undefined : this.notNow(now, claimed + n);
  }

  /** Takes permits that are free. */
  takeChecked(n: number): void {
    const now = this.now();
    this.arrive(now, n);
    this.takeUnqueued(now, n);
  }

  /** Counts refused permits as demand. */
  refuseDemand(n: number): void {
    this.arrive(this.now(), n);
    this.peak = Math.max(this.peak, this.demanded() + n);
  }

  /** Joins the queue. */
  join(n: number, joint: JointWaiter): Waiter {
    const now = this.now();
    this.arrive(now, n);
    const before = this.pending(now);
    const waiter = this.push(now, n, joint, noop, noop);
    this.admit(now);
    if (!this.isAhead(waiter)) this.raisePressure(now, before);
    this.peak = Math.max(this.peak, this.demanded());
    return waiter;
  }

  /** Whether the permits of a caller that has joined are reserved. */
  isReserved(waiter: Waiter): boolean {
    this.admit(this.now());
    return waiter.isQueued && this.isAhead(waiter);
  }

  /** Takes the reserved permits of a caller. */
  takeReserved(waiter: Waiter): void {
    const now = this.now();
    // Taken before it leaves the queue, because then the meter stops saving up for it.
    this.meter.take(now, waiter.n);
    this.unlink(waiter, now);
    this.admit(now);
  }

  /** A caller that has joined leaves the queue. */
  remove(waiter: Waiter): void {
    const now = this.now();
    if (waiter.isQueued && this.unlink(waiter, now)) this.admit(now);
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
      this.advanceJoint();
    });
  }
}
