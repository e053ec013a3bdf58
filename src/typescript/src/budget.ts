import { ClosedError } from "./errors.js";
import { checkAmount } from "./limiter/budget-book.js";
import type { WaitOptions } from "./limiter/semaphore.js";
import type { Spender } from "./limiter/spender.js";
import { Cost } from "./limits.js";
import { Resource } from "./resource.js";

/**
 * A budget: a resource of kind BUDGET, which is an amount that may be spent in each period. All handles of a resource of
 * one client share the lease and the book.
 *
 * All clients together never spend more than the amount in a period. A client gets allowances in advance, so spending
 * needs no request most of the time. After the expiry of the lease nothing is spent, in any mode. What was spent cannot be
 * returned; for work whose cost is known only at its end, reserve an amount and settle it.
 */
export class Budget extends Resource {
  /**
   * Spends an amount if the allowance covers it now and no caller waits. If not, it takes nothing, and the client asks for
   * a larger allowance in the background.
   */
  trySpend(amount: number): boolean {
    const checked = checkAmount(amount);
    return !this.closed && this.spender.trySpend(checked) !== undefined;
  }

  /**
   * Waits until the allowance covers an amount, and spends it. Meanwhile no caller behind this one is served. If the budget
   * is spent, this waits for the next period.
   */
  async spend(amount: number, options?: WaitOptions): Promise<void> {
    const { spender } = this;
    if (this.closed) throw new ClosedError();
    await spender.spend(checkAmount(amount), options);
  }

  /** Waits until the allowance covers an amount, like `spend`, for work whose cost is known only at its end. */
  async reserve(amount: number, options?: WaitOptions): Promise<BudgetReservation> {
    const { spender } = this;
    const checked = checkAmount(amount);
    const era = await this.holdWhile(
      () => spender.spend(checked, options),
      (spentIn) => spender.settle(checked, 0, spentIn),
    );
    return this.reservation(checked, era);
  }

  /** Reserves an amount if the allowance covers it now and no caller waits, else returns `undefined`. */
  tryReserve(amount: number): BudgetReservation | undefined {
    const checked = checkAmount(amount);
    const era = this.closed ? undefined : this.spender.trySpend(checked);
    if (era === undefined) return undefined;
    this.driver.hold(this.opened);
    return this.reservation(checked, era);
  }

  /** An amount of this budget, for `Client.limits`. */
  of(amount: number): Cost {
    return new Cost(this, amount, this.driver, this.opened);
  }

  /**
   * Spends an amount that was used already. What the allowance does not cover is owed: the next allowances pay it before
   * any caller can spend, also those of a later period. Throws `ClosedError` if the budget or the client is closed.
   */
  charge(amount: number): void {
    if (!this.spender.charge(checkAmount(amount))) throw new ClosedError();
  }

  /** What was charged and is not covered by an allowance yet. Closing the last handle drops it. */
  get owed(): number {
    return this.spender.owed;
  }

  /** What may be spent now, without asking. */
  get left(): number {
    return this.spender.left;
  }

  /** What this client has spent in the current period, since the budget was opened. */
  get spent(): number {
    return this.spender.spent;
  }

  /** The current period; absent before the first lease, and for a budget that is spent once. */
  get period(): { readonly start: Date; readonly end: Date } | undefined {
    const { period } = this.spender;
    if (period?.end === undefined) return undefined;
    return { start: new Date(Number(period.start) * 1000), end: new Date(Number(period.end) * 1000) };
  }

  private reservation(amount: number, era: number): BudgetReservation {
    const { driver, opened, spender } = this;
    return new BudgetReservation(amount, (used) => {
      const isSettled = spender.settle(amount, used, era);
      // The last reservation of a closed budget releases its lease.
      driver.letGo(opened);
      if (!isSettled) throw new ClosedError();
    });
  }

  private get spender(): Spender {
    const { limiter } = this.opened;
    if (limiter.kind !== "budget") throw new TypeError(`resource \`${this.id}\` is not a budget`);
    return limiter.spender;
  }
}

/**
 * An amount of a budget for work whose cost is known only at its end. All of it is spent unless it is settled. Until then it
 * keeps its budget open.
 */
export class BudgetReservation {
  private end: ((used: number) => void) | undefined;

  /** @internal */
  constructor(
    /** The amount reserved. */
    readonly reserved: number,
    end: (used: number) => void,
  ) {
    this.end = end;
  }

  /**
   * Settles for `used`. Takes back what is left of the reservation, unless its period has ended or the client was closed.
   * Usage beyond the reservation is charged, see `Budget.charge`. Only the first call counts.
   */
  settle(used: number): void {
    const { end } = this;
    if (end === undefined) return;
    checkAmount(used);
    this.end = undefined;
    end(used);
  }

  /** Settles for everything that was reserved, unless it was settled already. */
  [Symbol.dispose](): void {
    this.settle(this.reserved);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.settle(this.reserved);
    return Promise.resolve();
  }
}
