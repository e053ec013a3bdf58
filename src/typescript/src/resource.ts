import { guarded } from "./callback.js";
import type { Driver } from "./driver.js";
import { ClosedError, OpenError } from "./errors.js";
import type { WaitOptions } from "./limiter/semaphore.js";
import type { PoolState } from "./limiter/usage.js";
import { MAX_WANTS, type OpenResource } from "./open-resource.js";
import type { Basis, Usable } from "./session.js";

/** Options of `use`. */
export interface UseOptions extends WaitOptions {
  /** The number of permits (default 1). */
  readonly n?: number | undefined;
}

/**
 * A handle of a resource. The lease is released when the last handle is closed, or with the client. Permits in use and
 * reservations count as handles.
 */
export abstract class Resource {
  /** @internal */
  protected closed = false;

  /** @internal */
  constructor(
    /** @internal */
    protected readonly driver: Driver,
    /** @internal */
    protected readonly opened: OpenResource,
  ) {}

  /** The name of the resource. */
  get id(): string {
    return this.opened.id;
  }

  /** The capacity that may be used now; infinite if unlimited. */
  get capacity(): number {
    return this.usable.capacity;
  }

  /** Where the capacity comes from. */
  get basis(): Basis {
    return this.usable.basis;
  }

  /** The capacity that may be used now, and where it comes from. */
  get usable(): Usable {
    this.opened.limiter.semaphore.now();
    return this.opened.usable;
  }

  /** The capacity of the live lease, and the time until it expires. */
  get lease(): { readonly capacity: number; readonly leftMs: number } | undefined {
    const found = this.driver.lease(this.id);
    return found && { capacity: found.lease.capacity, leftMs: found.leftMs };
  }

  /** Permits that are waited for. */
  get waiting(): number {
    return this.opened.limiter.semaphore.waiting;
  }

  /** The state of this client in the pool, if the resource is one (PRIORITY_POOL) and the server has answered. */
  get pool(): PoolState | undefined {
    return this.opened.pool;
  }

  /** The priority at which the server counts this client, from the last answer; before that the claimed priority. */
  get priority(): number {
    return this.opened.effectivePriority;
  }

  /** @internal */
  get estimatesWants(): boolean {
    return this.opened.estimatesWants;
  }

  /** @internal */
  get isOpen(): boolean {
    return !this.closed && this.driver.isOpen(this.opened);
  }

  /**
   * Waits for a lease. Rejects with `NotReadyError`, which says why there is none, or with `ClosedError` if the handle or
   * the resource is closed.
   */
  ready(timeoutMs = 5_000): Promise<void> {
    if (this.closed) return Promise.reject(new ClosedError());
    return this.driver.ready(this.opened, timeoutMs);
  }

  /** Calls `listener` when the usable capacity has changed. Returns what stops that. */
  onChange(listener: (usable: Usable) => void): () => void {
    const call = guarded(listener);
    return this.opened.watch(() => call(this.opened.usable));
  }

  /** Sets the wants. A change by more than a tenth is sent at once, a smaller one with the next refresh. */
  setWants(wants: number): void {
    this.opened.setFixedWants(checkWants(wants));
    this.driver.demandChanged(this.opened);
  }

  /**
   * Estimates the wants from now on, from what passes the limiter and what waits there. Fixed wants do not count any more.
   * Wants that are estimated already do not change.
   */
  estimateWants(): void {
    this.opened.estimateWants();
    this.driver.demandChanged(this.opened);
  }

  /**
   * Closes this handle. With the last handle of the resource waiting callers get `ClosedError`, and its lease is
   * released, or once its last permit is. Idempotent.
   */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.driver.closeHandle(this.opened);
  }

  /**
   * Takes permits with `take`, and then holds the resource open until the caller calls `driver.letGo`. The resource is
   * held while the caller waits, because it may be closed after the permits were granted and before the caller runs.
   *
   * @internal
   */
  protected async holdWhile<T>(take: () => Promise<T>, giveBack: (taken: T) => void): Promise<T> {
    if (this.closed) throw new ClosedError();
    this.driver.hold(this.opened);
    try {
      const taken = await take();
      if (this.driver.isOpen(this.opened)) return taken;
      giveBack(taken);
      throw new ClosedError();
    } catch (error) {
      this.driver.letGo(this.opened);
      throw error;
    }
  }
}

export function checkWants(wants: number): number {
  if (wants >= 0 && wants <= MAX_WANTS) return wants;
  throw new OpenError(`invalid wants ${wants}: expected a number from 0 to ${MAX_WANTS}`);
}

/** A number of permits: whole and not negative. */
export function checkCount(n: number): number {
  if (Number.isInteger(n) && n >= 0 && n <= MAX_WANTS) return n;
  throw new RangeError(`invalid number of permits ${n}: expected a whole number from 0 to ${MAX_WANTS}`);
}
