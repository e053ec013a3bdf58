/** The default back-off of failed backends, as in httpd. */
const RETRY_MS = 60_000;

/** The maximum of a share: shares are milli-units of capacity. */
const MAX_SHARE = (1n << 47n) - 1n;

const MAX_WEIGHT = 2 ** 32 - 1;

/** Options of a `Balancer` and of `Balanced`. */
export interface BalancerOptions {
  /** The back-off of failed backends in milliseconds (default 60,000). */
  readonly retryMs?: number | undefined;
  /** @internal */
  readonly now?: (() => number) | undefined;
}

interface State {
  share: bigint;
  /** How urgently it has to be picked, in units of shares. */
  status: bigint;
  paused: boolean;
  /** The end of its back-off. */
  retryAt: number;
}

/**
 * Picks backends by request counting, as httpd's mod_lbmethod_byrequests does: each gets its share of picks, spread out
 * evenly. Shares are fixed weights, or the capacities of leases.
 *
 * A backend is enabled while it has a share, is not paused, and is not in back-off after a failure. A disabled backend
 * accrues nothing, and continues where it was when it is enabled again.
 *
 * Backends are identified by their index, whose order also breaks ties. A pick takes time linear in their number.
 */
export class Balancer<B> {
  /** All backends by index. */
  readonly backends: readonly B[];
  private readonly states: State[];
  private readonly retryMs: number;
  private readonly now: () => number;
  private readonly watchers = new Set<() => void>();

  /** Without weights, a backend is not picked before `setCapacity` sets its lease. One with weight 0 is never picked. */
  constructor(backends: Iterable<B>, weights?: Iterable<number>, options: BalancerOptions = {}) {
    this.backends = [...backends];
    const shares = weights === undefined ? this.backends.map(() => 0) : [...weights];
    if (shares.length !== this.backends.length) {
      throw new RangeError(
        `${shares.length} weights for ${this.backends.length} backends: pass one for each, in order`,
      );
    }
    this.states = shares.map((share) => ({ share: weight(share), status: 0n, paused: false, retryAt: -Infinity }));
    this.retryMs = options.retryMs ?? RETRY_MS;
    this.now = options.now ?? (() => performance.now());
    if (!(this.retryMs >= 0)) throw new RangeError(`invalid retryMs ${this.retryMs}: expected milliseconds, 0 or more`);
  }

  /** Picks the next backend. `undefined` if no backend is enabled. */
  pick(): Pick<B> | undefined {
    return this.pickWhere(() => true);
  }

  /**
   * Picks the next backend among those that are usable now, such as those with a permit left at their limiter.
   *
   * Calls `usable` for the next backend only. If that is not usable, it counts as disabled for this pick, and the one
   * after it is tried. Pause backends that stay unusable, because each pick tries them again. If `usable` throws, nothing
   * changes.
   */
  pickWhere(usable: (backend: B) => boolean): Pick<B> | undefined {
    const enabled = this.enabled();
    while (enabled.size > 0) {
      const index = this.next(enabled);
      if (usable(this.backends[index] as B) && this.isEnabled(index)) {
        this.charge(index, enabled);
        return new Pick(this, index);
      }
      enabled.delete(index);
    }
    return undefined;
  }

  /**
   * Picks a certain backend, for sticky sessions. The backend is charged as if it were next, and the others catch up
   * afterwards. `undefined`, without any charge, if it is not enabled.
   */
  pickSticky(index: number): Pick<B> | undefined {
    if (!this.isEnabled(index)) return undefined;
    this.charge(index, this.enabled());
    return new Pick(this, index);
  }

  /**
   * Sets the capacity of a backend's lease: 0 when it has expired, infinity if there is no limit.
   *
   * Shares are milli-units of capacity, rounded down. Capacities beyond 1.4e11 count as that, and so do unlimited ones.
   * What backends have accrued is rescaled, so that none starves after leases have become much smaller.
   */
  setCapacity(index: number, capacity: number): void {
    const [state, share] = [this.state(index), milliUnits(capacity)];
    if (state.share !== share) this.rescale(state, share);
    this.changed();
  }

  private rescale(state: State, share: bigint): void {
    const all = new Set(this.states);
    const enabled = new Set([...this.enabled()].map((index) => this.state(index)));
    const before = { all: shares(all), enabled: shares(enabled) };
    const total = statuses(enabled);
    state.share = share;
    const after = { all: shares(all), enabled: shares(enabled) };
    for (const other of all) {
      const which = enabled.has(other) ? "enabled" : "all";
      other.status = scaled(other.status, after[which], before[which]);
    }
    // The rounding error goes to the first one, so that the sum is exact.
    const [first] = enabled;
    if (first !== undefined) first.status += scaled(total, after.enabled, before.enabled) - statuses(enabled);
  }

  /** Sets the weight of a backend. The schedule starts anew. */
  setWeight(index: number, share: number): void {
    this.state(index).share = weight(share);
    for (const state of this.states) state.status = 0n;
    this.changed();
  }

  /** Disables a backend until `resume`, to drain it, or because it cannot be used. */
  pause(index: number): void {
    this.state(index).paused = true;
    this.changed();
  }

  /** Ends a pause. */
  resume(index: number): void {
    this.state(index).paused = false;
    this.changed();
  }

  /**
   * Disables a backend for the back-off, because an operation on it failed. Further failures during the back-off do not
   * prolong it.
   */
  failed(index: number): void {
    const [state, now] = [this.state(index), this.now()];
    if (state.retryAt <= now) state.retryAt = now + this.retryMs;
  }

  /** The milliseconds until the next back-off ends. `undefined` if there is none. */
  nextRetryMs(): number | undefined {
    const now = this.now();
    const left = this.states.map((state) => state.retryAt - now).filter((left) => left > 0);
    return left.length === 0 ? undefined : Math.min(...left);
  }

  /** Whether a backend is enabled. */
  isEnabled(index: number): boolean {
    return isEnabled(this.state(index), this.now());
  }

  /**
   * Calls `watcher` after each change of a share or of a pause. Returns what stops that.
   *
   * @internal
   */
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  private changed(): void {
    for (const watcher of [...this.watchers]) watcher();
  }

  private state(index: number): State {
    const state = this.states[index];
    if (state === undefined) throw new RangeError(`index ${index}: there are ${this.states.length} backends, from 0`);
    return state;
  }

  private enabled(): Set<number> {
    const [enabled, now] = [new Set<number>(), this.now()];
    this.states.forEach((state, index) => {
      if (isEnabled(state, now)) enabled.add(index);
    });
    return enabled;
  }

  /** The backend that has the largest status once each of these has accrued its share: the first one, if several have. */
  private next(enabled: Set<number>): number {
    let [next, largest] = [-1, 0n];
    for (const index of enabled) {
      const { status, share } = this.state(index);
      if (next < 0 || status + share > largest) [next, largest] = [index, status + share];
    }
    return next;
  }

  /** Lets these backends accrue their shares, and charges one of them the sum. */
  private charge(index: number, enabled: Set<number>): void {
    let total = 0n;
    for (const accruing of enabled) {
      const state = this.state(accruing);
      state.status += state.share;
      total += state.share;
    }
    this.state(index).status -= total;
  }
}

/** The backend of an operation, which has been charged for it. */
export class Pick<B> {
  /** @internal */
  constructor(
    private readonly balancer: Balancer<B>,
    /** The index of the backend, for `pickSticky`. */
    readonly index: number,
  ) {}

  /** The backend. */
  get backend(): B {
    return this.balancer.backends[this.index] as B;
  }

  /** The operation failed because of the backend: skips it for the back-off. */
  failed(): void {
    this.balancer.failed(this.index);
  }
}

function isEnabled({ share, paused, retryAt }: State, now: number): boolean {
  return share > 0n && !paused && retryAt <= now;
}

function shares(states: Iterable<State>): bigint {
  let sum = 0n;
  for (const { share } of states) sum += share;
  return sum;
}

function statuses(states: Iterable<State>): bigint {
  let sum = 0n;
  for (const { status } of states) sum += status;
  return sum;
}

/** The division of bigints rounds toward 0. */
function scaled(status: bigint, now: bigint, then: bigint): bigint {
  return then === 0n ? status : (status * now) / then;
}

function milliUnits(capacity: number): bigint {
  const milli = Math.floor(capacity * 1000);
  // Also for NaN.
  if (!(milli > 0)) return 0n;
  return milli >= Number(MAX_SHARE) ? MAX_SHARE : BigInt(milli);
}

function weight(share: number): bigint {
  if (Number.isInteger(share) && share >= 0 && share <= MAX_WEIGHT) return BigInt(share);
  throw new RangeError(`invalid weight ${share}: expected a whole number from 0 to ${MAX_WEIGHT}`);
}
