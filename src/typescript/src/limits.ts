import type { Budget } from "./budget.js";
import type { Driver } from "./driver.js";
import { ClosedError, DebtExceededError } from "./errors.js";
import type { Gauge } from "./gauge.js";
import { checkAmount } from "./limiter/budget-book.js";
import type { JointRefusal } from "./limiter/joint.js";
import { Amounts, JointBudgets } from "./limiter/joint-budgets.js";
import type { Promised } from "./limiter/meter.js";
import type { WaitOptions } from "./limiter/semaphore.js";
import type { OpenResource } from "./open-resource.js";
import type { Rate } from "./rate.js";
import { checkCount } from "./resource.js";

/** What an operation costs at one limit: made by `of` of a rate, a gauge or a budget. */
export class Cost {
  /** @internal */
  constructor(
    readonly limit: Rate | Gauge | Budget,
    /** The number of permits, or the amount of a budget. */
    readonly n: number,
    /** @internal */
    readonly driver: Driver,
    /** @internal */
    readonly opened: OpenResource,
  ) {
    this.check(n);
  }

  /** @internal */
  check(n: number): number {
    return this.opened.limiter.kind === "budget" ? checkAmount(n) : checkCount(n);
  }

  /** @internal */
  with(n: number): Cost {
    return new Cost(this.limit, n, this.driver, this.opened);
  }

  /** @internal */
  giveBack(): void {
    const { limiter } = this.opened;
    if (limiter.kind === "gauge" && this.n > 0) limiter.semaphore.change((count) => count.giveBack(this.n));
  }

  /**
   * Returns permits that were just taken and will not be used.
   *
   * @internal
   */
  undo(): void {
    const { limiter } = this.opened;
    if (limiter.kind === "rate") {
      limiter.semaphore.refunded += this.n;
      limiter.semaphore.change((bucket, now) => bucket.usePart(now, bucket.promise(this.n), 0));
    } else {
      this.giveBack();
    }
  }
}

/** A limit refuses a request for several. Nothing was taken from any of them. */
export class Refusal {
  /** @internal */
  constructor(
    /** The index of the limit. If several refuse, it is the one whose permits will be available last. */
    readonly index: number,
    /** The name of its resource. */
    readonly resource: string,
    /** Why it refuses. */
    readonly reason: string,
    /**
     * When to try again: the permits of all limits will be available after this time, if nothing changes. `undefined` if
     * that is unknown, or never at the current capacity.
     */
    readonly retryAfterMs: number | undefined,
  ) {}
}

/**
 * Several limits that an operation needs permits of, made by `Client.limits`.
 *
 * A caller takes the permits of all limits at the same moment, or nothing. While it waits it holds nothing. At each limit
 * it is served first come, first served, together with callers that need that limit alone, so a caller that needs much is
 * not starved, and no order of the limits leads to a deadlock. A limit of which 0 permits are needed is not waited for.
 *
 * Amounts of budgets are reserved before the permits are waited for, and given back if that wait fails. While a caller waits
 * for a budget it holds nothing.
 */
export class Limits {
  private readonly joint: JointBudgets;

  /** @internal */
  constructor(private readonly costs: readonly Cost[]) {
    this.joint = new JointBudgets(costs.map(({ opened: { limiter }, n }) => ({ ...limiter, n })));
  }

  /** The names of the resources, in order. */
  get resources(): string[] {
    return this.costs.map(({ opened }) => opened.id);
  }

  /** The same limits with other numbers of permits and amounts, one for each. */
  withPermits(...permits: number[]): Limits {
    return new Limits(this.pairs(permits).map(([cost, n]) => cost.with(n)));
  }

  /** Waits for the permits of all limits, and takes them together. */
  async acquire(options?: WaitOptions): Promise<Permits> {
    await this.wait(options);
    return new Permits(this.costs);
  }

  /** Takes the permits of all limits if they are available now. If one refuses, nothing is taken from the others. */
  tryAcquire(): Permits | Refusal {
    const taken = this.tryTake();
    return taken instanceof Amounts ? new Permits(this.costs) : taken;
  }

  /** Waits for the permits of all limits, for work whose cost is known only at its end. */
  async reserve(options?: WaitOptions): Promise<Reservations> {
    return new Reservations(this.costs, await this.wait(options));
  }

  /** Reserves the permits of all limits if they are available now. If one refuses, nothing is taken from the others. */
  tryReserve(): Reservations | Refusal {
    const taken = this.tryTake();
    return taken instanceof Amounts ? new Reservations(this.costs, taken) : taken;
  }

  /** Waits for the permits of all limits, calls `work`, and returns the permits of gauges when it has ended. */
  async use<T>(work: () => T | PromiseLike<T>, options?: WaitOptions): Promise<T> {
    const permits = await this.acquire(options);
    try {
      return await work();
    } finally {
      permits.release();
    }
  }

  /**
   * Charges each rate and budget for what was used already, see `Rate.charge` and `Budget.charge`: one number for each
   * limit. Those of gauges are ignored. Throws `DebtExceededError`, which names the first rate whose maximum debt is
   * reached; the others were charged in full. Throws `ClosedError` if a budget is closed and cannot be charged.
   */
  charge(...numbers: number[]): void {
    const charged = this.pairs(numbers);
    const isClosed = ([{ opened }, n]: [Cost, number]) =>
      opened.limiter.kind === "budget" && !opened.limiter.spender.charge(n);
    const closed = charged.filter(isClosed);
    eachRate(charged, (rate, n) => rate.charge(n));
    if (closed.length > 0) throw new ClosedError();
  }

  /**
   * Returns to each rate the permits that passed last, because they were not used, see `Rate.refund`: one number for each
   * limit. Those of gauges and budgets are ignored: release the permits, and settle reservations of amounts.
   */
  refund(...numbers: number[]): void {
    eachRate(this.pairs(numbers), (rate, n) => rate.refund(n));
  }

  private pairs(numbers: readonly number[]): [Cost, number][] {
    return pairs(this.costs, numbers);
  }

  /** Takes permits and holds the resources open, also while the caller waits, see `Resource.holdWhile`. */
  private async wait(options: WaitOptions | undefined): Promise<Amounts> {
    this.checkOpen();
    for (const { driver, opened } of this.costs) driver.hold(opened);
    try {
      const amounts = await this.joint.acquire(options);
      if (this.isOpen) return amounts;
      amounts.giveBack();
      for (const cost of this.costs) cost.undo();
      throw new ClosedError();
    } catch (error) {
      for (const { driver, opened } of this.costs) driver.letGo(opened);
      throw error;
    }
  }

  private tryTake(): Amounts | Refusal {
    this.checkOpen();
    const taken = this.joint.tryAcquire();
    if (!(taken instanceof Amounts)) return this.refusal(taken);
    for (const { driver, opened } of this.costs) driver.hold(opened);
    return taken;
  }

  private refusal({ index, refusal }: JointRefusal): Refusal {
    const resource = this.resources[index] ?? "";
    switch (refusal.reason) {
      case "closed":
        throw new ClosedError();
      case "too-many":
        return new Refusal(index, resource, `more than the ${refusal.burst} that can be available at once`, undefined);
      case "not-now":
        return new Refusal(index, resource, this.notNow(index), refusal.retryAfterMs);
    }
  }

  private notNow(index: number): string {
    const isBudget = this.costs[index]?.opened.limiter.kind === "budget";
    return isBudget ? "the allowance does not cover the amount now" : "no permit is free now";
  }

  private get isOpen(): boolean {
    return this.costs.every(({ driver, opened }) => driver.isOpen(opened));
  }

  private checkOpen(): void {
    if (!this.isOpen) throw new ClosedError();
  }
}

/**
 * Permits of several limits. `release` returns those of gauges; so does `await using`. Those of rates and amounts of budgets
 * are used up. Their resources stay open until then.
 */
export class Permits {
  private held: readonly Cost[];

  /** @internal */
  constructor(costs: readonly Cost[]) {
    this.held = costs;
  }

  /** Returns the permits of gauges. Idempotent. */
  release(): void {
    const { held } = this;
    this.held = [];
    for (const cost of held) {
      cost.giveBack();
      cost.driver.letGo(cost.opened);
    }
  }

  [Symbol.dispose](): void {
    this.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.release();
    return Promise.resolve();
  }
}

/**
 * Permits of several limits for work whose cost is known only at its end. They have to be settled: they keep their
 * resources open, and until then all of their permits and amounts count as used.
 */
export class Reservations {
  private readonly promised: (Promised | undefined)[];
  private settled = false;

  /** @internal */
  constructor(
    private readonly costs: readonly Cost[],
    private readonly amounts: Amounts,
  ) {
    this.promised = costs.map(({ opened: { limiter }, n }) =>
      limiter.kind === "rate" ? limiter.semaphore.meter.promise(n) : undefined,
    );
  }

  /** The number of permits, or the amount, taken of each limit. */
  get reserved(): number[] {
    return this.costs.map(({ n }) => n);
  }

  /**
   * Settles for what was used, one number for each limit. Each rate or budget gets back what was not used, or is charged
   * for the excess, see `Reservation.settle` and `BudgetReservation.settle`. The permits of gauges are returned; their
   * numbers are ignored. Throws `DebtExceededError`, which names the first rate whose maximum debt is reached; all limits
   * are settled. Only the first call counts.
   */
  settle(...used: number[]): void {
    if (this.settled) return;
    const settling = pairs(this.costs, used);
    this.settled = true;
    this.amounts.settle(used);
    for (const cost of this.costs) {
      if (cost.opened.limiter.kind === "rate") continue;
      cost.giveBack();
      cost.driver.letGo(cost.opened);
    }
    eachRate(settling, (rate, n, index) => {
      const promised = this.promised[index];
      if (promised !== undefined) rate.settle(promised, n);
    });
  }

  /** Settles for everything that was reserved, unless it was settled already. */
  [Symbol.dispose](): void {
    this.settle(...this.reserved);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.settle(...this.reserved);
    return Promise.resolve();
  }
}

/** Each limit with its number. */
function pairs(costs: readonly Cost[], numbers: readonly number[]): [Cost, number][] {
  if (costs.length !== numbers.length) {
    throw new RangeError(`${numbers.length} numbers for ${costs.length} limits: pass one for each, in order`);
  }
  return costs.map((cost, at) => [cost, cost.check(numbers[at] ?? 0)]);
}

/** Does something at all rates, then throws the first error. */
function eachRate(limits: [Cost, number][], act: (rate: Rate, n: number, index: number) => void): void {
  let exceeded: DebtExceededError | undefined;
  for (const [index, [{ limit, opened }, n]] of limits.entries()) {
    if (opened.limiter.kind !== "rate") continue;
    try {
      act(limit as Rate, n, index);
    } catch (error) {
      if (!(error instanceof DebtExceededError)) throw error;
      exceeded ??= new DebtExceededError(error.uncharged, error.maxDebt, opened.id);
    }
  }
  if (exceeded !== undefined) throw exceeded;
}
