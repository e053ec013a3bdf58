import type { PermitCount } from "./limiter/count.js";
import type { Semaphore, WaitOptions } from "./limiter/semaphore.js";
import { Cost } from "./limits.js";
import { checkCount, Resource, type UseOptions } from "./resource.js";

/**
 * A gauge: permits in use at the same time, such as connections, transactions or jobs. All handles of a resource of one
 * client share the lease and the permits.
 *
 * At most as many whole permits are in use as the capacity allows. When the capacity is cut, permits in use stay valid:
 * no new ones are granted until enough were returned, and meanwhile the client reports what is still in use, so that the
 * server gives it to nobody else.
 */
export class Gauge extends Resource {
  /** Waits for `n` permits at once (default 1). Meanwhile no caller behind this one is admitted. */
  async acquire(n = 1, options?: WaitOptions): Promise<Permit> {
    const count = checkCount(n);
    const { semaphore } = this;
    await this.holdWhile(
      () => semaphore.acquire(count, options),
      () => giveBack(semaphore, count),
    );
    return this.permit(count);
  }

  /** Takes `n` permits (default 1) if they are free now, else returns `undefined`. */
  tryAcquire(n = 1): Permit | undefined {
    const count = checkCount(n);
    if (this.closed || this.semaphore.tryAcquire(count) !== undefined) return undefined;
    this.driver.hold(this.opened);
    return this.permit(count);
  }

  /** Waits for permits, calls `work`, and returns the permits when it has ended. */
  async use<T>(work: () => T | PromiseLike<T>, options?: UseOptions): Promise<T> {
    const permit = await this.acquire(options?.n ?? 1, options);
    try {
      return await work();
    } finally {
      permit.release();
    }
  }

  /** `n` permits of this gauge (default 1), for `Client.limits`. */
  of(n = 1): Cost {
    return new Cost(this, n, this.driver, this.opened);
  }

  /** Permits in use. */
  get inUse(): number {
    return this.semaphore.meter.inUse;
  }

  private permit(n: number): Permit {
    const { driver, opened, semaphore } = this;
    return new Permit(n, () => {
      giveBack(semaphore, n);
      // The last permit of a closed gauge releases its lease.
      driver.letGo(opened);
    });
  }

  private get semaphore(): Semaphore<PermitCount> {
    const { limiter } = this.opened;
    if (limiter.kind !== "gauge") throw new TypeError(`resource \`${this.id}\` is not a gauge`);
    return limiter.semaphore;
  }
}

function giveBack(semaphore: Semaphore<PermitCount>, n: number): void {
  semaphore.change((count) => count.giveBack(n));
}

/**
 * Permits in use. `release` returns them; so does `await using`. The lease of the gauge is not released while permits are
 * in use, unless the client is closed.
 */
export class Permit {
  private giveBack: (() => void) | undefined;

  /** @internal */
  constructor(
    readonly n: number,
    giveBack: () => void,
  ) {
    this.giveBack = giveBack;
  }

  /** Returns the permits. Idempotent. */
  release(): void {
    const { giveBack } = this;
    this.giveBack = undefined;
    giveBack?.();
  }

  [Symbol.dispose](): void {
    this.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.release();
    return Promise.resolve();
  }
}
