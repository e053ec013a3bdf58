import { Balancer, type BalancerOptions, type Pick } from "./balancer.js";
import { ClosedError, OpenError, TimeoutError } from "./errors.js";
import type { WaitOptions } from "./limiter/semaphore.js";
import type { Rate } from "./rate.js";

/** Node fires timers beyond this at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Why a caller leaves a backend. */
const GONE = Symbol("the backend has lost its lease");

/**
 * Balances load across rates, each with a lease of its own.
 *
 * Each operation is assigned to a backend, in proportion to the leases, and then waits at the limiter of that backend. So
 * no lease is exceeded, and every lease is used under load.
 */
export class Balanced {
  /** The underlying balancer, for sticky sessions and draining. Its picks have no permit; its shares follow the leases. */
  readonly balancer: Balancer<Rate>;
  private readonly stops: (() => void)[];
  private closed = false;

  /**
   * Balances across these rates, whose order breaks ties. They stay open until `close` closes them. Their wants must be
   * set: a backend without a lease gets no operations, so its wants would be estimated as 0 forever.
   */
  constructor(rates: Iterable<Rate>, options?: BalancerOptions) {
    this.balancer = new Balancer(rates, undefined, options);
    const estimated = this.balancer.backends.find((rate) => rate.estimatesWants);
    if (estimated !== undefined) {
      const why = "a backend without a lease gets no operations, so they cannot be estimated";
      throw new OpenError(`the wants of \`${estimated.id}\` are not set: ${why}`);
    }
    this.stops = this.balancer.backends.map((rate, index) => {
      this.balancer.setCapacity(index, rate.capacity);
      return rate.onChange(({ capacity }) => this.balancer.setCapacity(index, capacity));
    });
  }

  /**
   * Picks a backend and waits for a permit there. If the backend loses its lease meanwhile, picks another one. A wait that
   * is aborted or times out has taken no permit.
   */
  async acquire(options?: WaitOptions): Promise<Pick<Rate>> {
    const limit = new WaitLimit(options);
    try {
      for (;;) {
        limit.signal?.throwIfAborted();
        if (this.closed) throw new ClosedError();
        const pick = this.balancer.pick();
        if (pick === undefined) await this.change(limit.signal);
        else if (await this.admitted(pick.backend, limit.signal)) return pick;
      }
    } finally {
      limit.end();
    }
  }

  /** Skips a backend for a while after a failure, as `failed` of a pick does. */
  failed(index: number): void {
    this.balancer.failed(index);
  }

  /** Closes the rates. Callers that wait get `ClosedError`. Idempotent. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    for (const stop of this.stops) stop();
    this.balancer.backends.forEach((rate, index) => {
      // Sends the callers away that wait there, also if other handles keep the resource open.
      this.balancer.setCapacity(index, 0);
      this.balancer.pause(index);
      rate.close();
    });
  }

  /** Waits for a permit. Returns false if the capacity becomes 0 meanwhile. */
  private async admitted(rate: Rate, signal: AbortSignal | undefined): Promise<boolean> {
    if (rate.available > 0 && rate.tryAcquire()) return true;
    const gone = new AbortController();
    const check = () => {
      if (this.closed || rate.capacity === 0) gone.abort(GONE);
    };
    const abort = () => gone.abort(signal?.reason);
    const stop = this.balancer.watch(check);
    signal?.addEventListener("abort", abort);
    try {
      check();
      await rate.acquire(1, { signal: gone.signal });
      return true;
    } catch (error) {
      if (error !== GONE) throw error;
      return false;
    } finally {
      stop();
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Waits until a backend may be enabled. The timer keeps the process running. */
  private change(signal: AbortSignal | undefined): Promise<void> {
    if (this.balancer.backends.some((rate) => !rate.isOpen)) return Promise.reject(new ClosedError());
    const retryMs = this.balancer.nextRetryMs();
    // A back-off may have ended since the pick. There is no time left to wait for it.
    if (this.balancer.backends.some((_, index) => this.balancer.isEnabled(index))) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        stop();
        clearTimeout(timer);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const stop = this.balancer.watch(done);
      const timer = setTimeout(done, Math.min(Math.ceil(retryMs ?? MAX_TIMER_MS), MAX_TIMER_MS));
      signal?.addEventListener("abort", done);
    });
  }
}

/** The end of a wait at several limiters: one signal for the signal and the timeout of its options. */
class WaitLimit {
  readonly signal: AbortSignal | undefined;
  private readonly ends: (() => void)[] = [];

  constructor(options: WaitOptions | undefined) {
    const { signal, timeoutMs } = options ?? {};
    if (timeoutMs === undefined) {
      this.signal = signal;
      return;
    }
    const controller = new AbortController();
    this.signal = controller.signal;
    const expired = () => controller.abort(new TimeoutError(`no permit within ${timeoutMs} ms`));
    const timer = setTimeout(expired, Math.min(timeoutMs, MAX_TIMER_MS));
    this.ends.push(() => clearTimeout(timer));
    if (signal === undefined) return;
    const abort = () => controller.abort(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    this.ends.push(() => signal.removeEventListener("abort", abort));
  }

  end(): void {
    for (const end of this.ends) end();
  }
}
