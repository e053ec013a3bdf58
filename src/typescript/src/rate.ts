import { ClosedError, DebtExceededError } from "./errors.js";
import type { Bucket, Standing } from "./limiter/bucket.js";
import type { Semaphore, WaitOptions } from "./limiter/semaphore.js";
import type { Promised } from "./limiter/meter.js";
import type { Window } from "./limiter/window.js";
import { Cost } from "./limits.js";
import { checkCount, Resource, type UseOptions } from "./resource.js";

/**
 * A rate: permits per second, or per window. All handles of a resource of one client share the lease and the limiter.
 *
 * In any period T it admits at most capacity · T plus the burst. Waiting callers are served first come, first served,
 * and a cancelled wait takes nothing.
 */
export class Rate extends Resource {
  /** Waits for `n` permits at once (default 1). Meanwhile no caller behind this one is admitted. */
  acquire(n = 1, options?: WaitOptions): Promise<void> {
    const count = checkCount(n);
    return this.closed ? Promise.reject(new ClosedError()) : this.semaphore.acquire(count, options);
  }

  /** Takes `n` permits (default 1) if they are available now and no caller waits. Returns whether it did. */
  tryAcquire(n = 1): boolean {
    const count = checkCount(n);
    return !this.closed && this.semaphore.tryAcquire(count) === undefined;
  }

  /** Waits for `n` permits, for work whose cost is known only at its end. */
  async reserve(n: number, options?: WaitOptions): Promise<Reservation> {
    const nothing = () => {};
    await this.holdWhile(() => this.acquire(n, options), nothing);
    return new Reservation(this, this.semaphore.meter.promise(n));
  }

  /** Reserves `n` permits if they are available now, else returns `undefined`. */
  tryReserve(n: number): Reservation | undefined {
    if (!this.tryAcquire(n)) return undefined;
    this.driver.hold(this.opened);
    return new Reservation(this, this.semaphore.meter.promise(n));
  }

  /** `n` permits of this rate (default 1), for `Client.limits`. */
  of(n = 1): Cost {
    return new Cost(this, n, this.driver, this.opened);
  }

  /** Waits for `n` permits (default 1), then calls `work`. */
  async use<T>(work: () => T | PromiseLike<T>, options?: UseOptions): Promise<T> {
    await this.acquire(options?.n ?? 1, options);
    return await work();
  }

  /**
   * Charges `n` permits that were used already. Missing permits become debt, which is paid from the lease before
   * anything else passes. Throws `DebtExceededError` if the maximum debt is reached; the part up to it was charged. The
   * debt ends with the resource or the client.
   */
  charge(n: number): void {
    const charged = this.semaphore.charge((bucket, now) => bucket.charge(now, checkCount(n)));
    const uncharged = n - charged;
    if (uncharged <= 0) return;
    this.driver.counters.uncharged += uncharged;
    throw new DebtExceededError(uncharged, this.semaphore.meter.maxDebt);
  }

  /**
   * Returns `n` permits that passed last and were not used: as many as would be available now had they never passed,
   * which may be none.
   */
  refund(n: number): void {
    this.semaphore.refunded += this.semaphore.change((bucket, now) => bucket.refund(now, checkCount(n)));
  }

  /** The current debt in permits. */
  get debt(): number {
    return this.semaphore.meter.owed(this.semaphore.now());
  }

  /** Permits available without waiting; 0 while a caller waits. */
  get available(): number {
    const now = this.semaphore.now();
    const { meter, hasWaiters, reserved } = this.semaphore;
    return hasWaiters ? 0 : Math.max(meter.available(now) - reserved, 0);
  }

  /** The current state. */
  get standing(): Standing {
    return this.semaphore.meter.standing(this.semaphore.now());
  }

  /**
   * How long a new caller would wait for `n` permits (default 1) if nothing changed, for a `Retry-After` header.
   * `undefined` if that is unknown because there is no capacity.
   */
  retryAfterMs(n = 1): number | undefined {
    const now = this.semaphore.now();
    const { meter, waiting, reserved } = this.semaphore;
    return meter.readyIn(now, waiting + reserved + checkCount(n));
  }

  /** Changes the window of a rate that was opened with one. The whole new limit is wanted at first. */
  setWindow(window: Window): void {
    this.semaphore.change((bucket, now) => bucket.setBurst(now, { windowMs: window.lengthMs }));
    this.opened.setWindow(window);
    this.driver.demandChanged(this.opened);
  }

  /** @internal */
  settle(promised: Promised, used: number): void {
    const kept = Math.min(used, promised.n);
    if (kept < promised.n) this.semaphore.refunded += promised.n - kept;
    this.semaphore.change((bucket, now) => bucket.usePart(now, promised, kept));
    try {
      if (used > kept) this.charge(used - kept);
    } finally {
      this.driver.letGo(this.opened);
    }
  }

  private get semaphore(): Semaphore<Bucket> {
    const { limiter } = this.opened;
    if (limiter.kind !== "rate") throw new TypeError(`resource \`${this.id}\` is not a rate`);
    return limiter.semaphore;
  }
}

/**
 * Permits of a rate for work whose cost is known only at its end. It has to be settled: it keeps its rate open, and until
 * then all of its permits count as used.
 */
export class Reservation {
  private settled = false;

  /** @internal */
  constructor(
    private readonly rate: Rate,
    private readonly promised: Promised,
  ) {}

  /** The number of permits taken. */
  get reserved(): number {
    return this.promised.n;
  }

  /**
   * Settles for `used` permits. The rest is returned, as much of it as would be available now had it never been taken.
   * Usage beyond the reservation is charged. Only the first call counts.
   */
  settle(used: number): void {
    if (this.settled) return;
    checkCount(used);
    this.settled = true;
    this.rate.settle(this.promised, used);
  }

  /** Settles for everything that was reserved, unless it was settled already. */
  [Symbol.dispose](): void {
    this.settle(this.promised.n);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.settle(this.promised.n);
    return Promise.resolve();
  }
}
