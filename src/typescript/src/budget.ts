import { ClosedError } from "./errors.js";
import { MAX_AMOUNT } from "./limiter/budget-book.js";
import type { WaitOptions } from "./limiter/semaphore.js";
import type { Spender } from "./limiter/spender.js";
import { Resource } from "./resource.js";

/**
 * A budget: a resource of kind BUDGET, which is an amount that may be spent in each period. All handles of a resource of
 * one client share the lease and the book.
 *
 * All clients together never spend more than the amount in a period. A client gets allowances in advance, so spending
 * needs no request most of the time. What was spent cannot be returned. After the expiry of the lease nothing is spent, in
 * any mode.
 */
export class Budget extends Resource {
  /**
   * Spends an amount if the allowance covers it now and no caller waits. If not, it takes nothing, and the client asks for
   * a larger allowance in the background.
   */
  trySpend(amount: number): boolean {
    return !this.closed && this.spender.trySpend(checkAmount(amount));
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

  private get spender(): Spender {
    const { limiter } = this.opened;
    if (limiter.kind !== "budget") throw new TypeError(`resource \`${this.id}\` is not a budget`);
    return limiter.spender;
  }
}

function checkAmount(amount: number): number {
  if (amount >= 0 && amount <= MAX_AMOUNT) return amount;
  throw new RangeError(`invalid amount ${amount}: expected a number from 0 to ${MAX_AMOUNT}`);
}
