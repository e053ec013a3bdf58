import { ClosedError } from "./errors.js";
import type { PermitCount } from "./limiter/count.js";
import type { Line, WaitOptions } from "./limiter/line.js";
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
 * server gives it to nobody else. The lease is kept while permits are in use, also after `close`.
 */
export class Gauge extends Resource {
  /** Waits for permits. */
  async acquire(options?: AcquireOptions): Promise<Permit> {
    const n = checkCount(options?.n ?? 1);
    if (this.isClosed) throw new ClosedError();
    await this.line.wait(n, options, () => this.driver.retain(this.opened));
    return this.permit(n);
  }

  /** Takes `n` permits (default 1) if they are free now, else returns `undefined`. */
  tryAcquire(n = 1): Permit | undefined {
    checkCount(n);
    if (this.isClosed || this.line.tryTake(n) !== undefined) return undefined;
    this.driver.retain(this.opened);
    return this.permit(n);
  }

  private permit(n: number): Permit {
    const { line, driver, opened } = this;
    return new Permit(n, () => {
      line.change((count) => count.giveBack(n));
      driver.closeHandle(opened);
    });
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
    return this.line.meter.inUse;
  }

  private get line(): Line<PermitCount> {
    const { limiter } = this.opened;
    if (limiter.kind !== "gauge") throw new TypeError(`resource \`${this.id}\` is not a gauge`);
    return limiter.line;
  }
}

/** Permits in use. `release` returns them; so does `await using`. */
export class Permit {
  private released = false;

  /** @internal */
  constructor(
    readonly n: number,
    private readonly giveBack: () => void,
  ) {}

  /** Returns the permits. Idempotent. */
  release(): void {
    if (this.released) return;
    this.released = true;
    this.giveBack();
  }

  [Symbol.dispose](): void {
    this.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.release();
    return Promise.resolve();
  }
}
