import { randomBytes } from "node:crypto";

import { ClosedError } from "../errors.js";
import type { BudgetLease, BudgetUse, Lease } from "../session.js";
import { BudgetBook } from "./budget-book.js";
import { type SemaphoreEvents, type Time, type WaitOptions, watchWait } from "./semaphore.js";

/** A caller that waits for an allowance. */
interface Waiter {
  readonly amount: number;
  readonly resolve: (era: number) => void;
  readonly reject: (reason: unknown) => void;
  /** Removes the listener of the signal and the timer. */
  cleanUp: (() => void) | undefined;
}

function newIncarnation(): bigint {
  return randomBytes(8).readBigUInt64LE() || 1n;
}

/** Spends from the allowance of a budget, first come, first served. */
export class Spender {
  private readonly book: BudgetBook;
  /** The callers that wait. The allowance does not cover the first. */
  private readonly waiters: Waiter[] = [];
  /** What they wait for, in total. */
  private waiting = 0;
  private closed = false;

  constructor(
    readonly time: Time,
    private readonly events: SemaphoreEvents = {},
  ) {
    this.book = new BudgetBook(time.now(), newIncarnation());
  }

  /**
   * Spends an amount if the allowance covers it now and no caller waits. Returns the era in which it was spent. If the
   * allowance does not cover it, asks for it in the background.
   */
  trySpend(amount: number): number | undefined {
    const era = this.spendNow(amount);
    if (era === undefined && !this.hasWaiting) this.ask(amount);
    return era;
  }

  /** Like `trySpend`, but asks for nothing. */
  spendNow(amount: number): number | undefined {
    if (this.closed || this.hasWaiting) return undefined;
    const now = this.time.now();
    if (!this.book.spend(now, amount)) return undefined;
    if (this.book.isShort(now)) this.events.pressure?.();
    return this.book.era;
  }

  /** Asks for an amount in the background, as for one that was refused. */
  ask(amount: number): void {
    if (this.closed) return;
    const now = this.time.now();
    this.book.refuse(now, amount);
    if (this.book.isShort(now)) this.events.pressure?.();
  }

  /** Waits until the allowance covers an amount, and spends it. Returns the era in which it was spent. */
  async spend(amount: number, options: WaitOptions = {}): Promise<number> {
    if (this.closed) throw new ClosedError();
    options.signal?.throwIfAborted();
    const era = this.spendNow(amount);
    if (era !== undefined) return era;
    return await new Promise<number>((resolve, reject) => {
      const waiter: Waiter = { amount, resolve, reject, cleanUp: undefined };
      waiter.cleanUp = watchWait(this.time, options, (reason) => this.leave(waiter, reason));
      this.waiters.push(waiter);
      this.waiting += amount;
      if (this.waiters.length === 1) this.events.waiting?.(true);
      this.serve();
    });
  }

  private leave(waiter: Waiter, reason: unknown): void {
    this.waiters.splice(this.waiters.indexOf(waiter), 1);
    this.dequeued(waiter);
    waiter.reject(reason);
    this.serve();
  }

  /** A caller waits no longer. */
  private dequeued({ amount, cleanUp }: Waiter): void {
    cleanUp?.();
    // Rounding errors end with the last caller.
    this.waiting = this.hasWaiting ? Math.max(this.waiting - amount, 0) : 0;
    if (!this.hasWaiting) this.events.waiting?.(false);
  }

  /** Spends for the callers at the head of the queue, as far as the allowance goes. */
  private serve(): void {
    const now = this.time.now();
    for (let [next] = this.waiters; next !== undefined && this.book.spend(now, next.amount); [next] = this.waiters) {
      this.waiters.shift();
      this.dequeued(next);
      next.resolve(this.book.era);
    }
    this.book.setWaiting(this.waiting, this.waiters[0]?.amount ?? 0);
    if (this.book.isShort(now)) this.events.pressure?.();
  }

  /**
   * Of an amount that was spent in advance in an era, `used` was used. Returns false if more was used and cannot be
   * charged, because the budget is closed: then its last report does not change any more.
   */
  settle(reserved: number, used: number, era: number): boolean {
    if (this.closed) return used <= reserved;
    this.book.settle(this.time.now(), reserved, used, era);
    this.serve();
    return true;
  }

  /** Spends an amount that was used already. Returns false, and does nothing, if the budget is closed. */
  charge(amount: number): boolean {
    if (this.closed) return false;
    const now = this.time.now();
    this.book.charge(now, amount);
    if (this.book.isShort(now)) this.events.pressure?.();
    return true;
  }

  /** What was charged and is not covered by an allowance yet. */
  get owed(): number {
    return this.book.owed;
  }

  /** Takes the newest lease. Returns whether the client should ask again at once. */
  take(lease: Lease): boolean {
    if (this.closed) return false;
    const asks = this.book.take(this.time.now(), lease, newIncarnation);
    if (this.hasWaiting) this.serve();
    return asks;
  }

  /** The demand and the report for a request. */
  wants(now: number): { amount: number; spent: BudgetUse } {
    return this.book.wants(now);
  }

  get hasWaiting(): boolean {
    return this.waiters.length > 0;
  }

  /** What may be spent now, without asking. */
  get left(): number {
    return this.book.left(this.time.now());
  }

  /** What was spent in the current period. */
  get spent(): number {
    return this.book.spent;
  }

  /** The current period; absent before the first lease. */
  get period(): BudgetLease | undefined {
    return this.book.period;
  }

  /** Refuses the callers that wait, and all that come later. */
  close(): void {
    this.closed = true;
    this.book.close();
    this.refuseWaiters();
  }

  /** Waiting callers get `ClosedError`. */
  refuseWaiters(): void {
    const waiters = this.waiters.splice(0);
    if (waiters.length > 0) this.events.waiting?.(false);
    for (const waiter of waiters) {
      waiter.cleanUp?.();
      waiter.reject(new ClosedError());
    }
    this.waiting = 0;
    this.book.setWaiting(0, 0);
  }
}
