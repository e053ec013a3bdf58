import type { PermitCount } from "./limiter/count.js";
import type { Semaphore, WaitOptions } from "./limiter/semaphore.js";
import { checkCount, Resource } from "./resource.js";

/** Options of a gauge's `acquire`. */
export interface AcquireOptions extends WaitOptions {
  /** The number of permits (default 1). */
  readonly n?: number | undefined;
}

/**
 * A gauge: permits in use at the same time, such as connections, transactions or jobs. All handles of a resource of one
 * client share the lease and the permits.
 *
 * At most as many whole permits are in use as the capacity allows. When the capacity is cut, permits in use stay valid:
 * no new ones are granted until enough were returned, and meanwhile the client reports what is still in use, so that the
 * server gives it to nobody else.
 */
export class Gauge extends Resource {
  /** Waits for permits. */
  async acquire(options?: AcquireOptions): Promise<Permit> {
    const n = checkCount(options?.n ?? 1);
    await this.semaphore.acquire(n, options);
    return new Permit(this.semaphore, n);
  }

  /** Takes `n` permits (default 1) if they are free now, else returns `undefined`. */
  tryAcquire(n = 1): Permit | undefined {
    return this.semaphore.tryAcquire(checkCount(n)) === undefined ? new Permit(this.semaphore, n) : undefined;
  }

  /** Waits for permits, calls `work`, and returns the permits when it has ended. */
  async use<T>(work: () => T | PromiseLike<T>, options?: AcquireOptions): Promise<T> {
    const permit = await this.acquire(options);
    try {
      return await work();
    } finally {
      permit.release();
    }
  }

  /** Permits in use. */
  get inUse(): number {
    return this.semaphore.meter.inUse;
  }

  private get semaphore(): Semaphore<PermitCount> {
    const { limiter } = this.opened;
    if (limiter.kind !== "gauge") throw new TypeError(`resource \`${this.id}\` is not a gauge`);
    return limiter.semaphore;
  }
}

/** Permits in use. `release` returns them; so does `await using`. */
export class Permit {
  private released = false;

  /** @internal */
  constructor(
    private readonly semaphore: Semaphore<PermitCount>,
    readonly n: number,
  ) {}

  /** Returns the permits. Idempotent. */
  release(): void {
    if (this.released) return;
    this.released = true;
    this.semaphore.change((count) => count.giveBack(this.n));
  }

  [Symbol.dispose](): void {
    this.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.release();
    return Promise.resolve();
  }
}
