/**
 * Amounts of budgets, and permits of several semaphores: a caller takes all of them, or nothing.
 *
 * A caller waits for the amount of one budget at a time, and holds nothing meanwhile. Then it tries the other budgets without
 * waiting. If one refuses, it gives back what it has taken, and waits for that one instead. With the amounts of all budgets
 * reserved it waits for the permits, see `joint.ts`. If that wait fails, it gives the amounts back. So no budget is waited
 * for while anything is held, and no order of the budgets leads to a deadlock.
 *
 * Amounts that are given back are asked for, like those that were refused. Otherwise one allowance would shrink while the
 * caller waits for another.
 */

import { addUp, checkAmount } from "./budget-book.js";
import { Joint, type JointRefusal, type Part } from "./joint.js";
import { type WaitOptions, watchWait } from "./semaphore.js";
import type { Spender } from "./spender.js";

/** Permits of a semaphore or, with a spender, an amount `n` of its budget. */
export interface Need extends Part {
  readonly spender?: Spender | undefined;
}

/** A budget, and what is needed of it. */
interface BudgetNeed {
  readonly spender: Spender;
  /** The sum of the needs that name it. */
  readonly amount: number;
  /** The indices of these needs, from the first one on. */
  readonly indices: readonly [number, ...number[]];
}

type Eras = Map<BudgetNeed, number>;

/** Several budgets and semaphores with what is needed of each. One of which 0 is needed is not waited for. */
export class JointBudgets {
  private readonly joint: Joint;
  private readonly budgets: readonly BudgetNeed[];
  /** Those of which more than 0 is needed. */
  private readonly needed: readonly BudgetNeed[];

  constructor(needs: readonly Need[]) {
    this.joint = new Joint(needs.map(({ semaphore, n, spender }) => ({ semaphore, n: spender === undefined ? n : 0 })));
    this.budgets = budgetsOf(needs);
    this.needed = this.budgets.filter(({ amount }) => amount > 0);
  }

  /** Takes all amounts and permits if they are available now, else says why not. */
  tryAcquire(): Amounts | JointRefusal {
    const eras: Eras = new Map();
    const refusals: JointRefusal[] = [];
    for (const budget of this.needed) {
      const era = budget.spender.trySpend(budget.amount);
      if (era !== undefined) eras.set(budget, era);
      else refusals.push({ index: budget.indices[0], refusal: { reason: "not-now", retryAfterMs: undefined } });
    }
    const refused = this.joint.tryAcquire(refusals);
    const amounts = new Amounts(this.budgets, eras);
    if (refused === undefined) return amounts;
    amounts.giveBack();
    for (const { spender, amount } of eras.keys()) spender.ask(amount);
    return refused;
  }

  /** Waits for all amounts and permits, and takes them. */
  async acquire(options: WaitOptions = {}): Promise<Amounts> {
    const [first] = this.needed;
    if (first === undefined) {
      await this.joint.acquire(options);
      return new Amounts(this.budgets, new Map());
    }
    options.signal?.throwIfAborted();
    // One limit for several waits.
    const ended = new AbortController();
    const stop = watchWait(first.spender.time, options, (reason) => ended.abort(reason));
    try {
      const amounts = await this.reserveAmounts(ended.signal);
      try {
        await this.joint.acquire({ signal: ended.signal });
      } catch (error) {
        amounts.giveBack();
        throw error;
      }
      return amounts;
    } finally {
      stop?.();
    }
  }

  private async reserveAmounts(signal: AbortSignal): Promise<Amounts> {
    let eras: Eras = new Map();
    for (;;) {
      const refusing = this.needed.find((budget) => !eras.has(budget) && !spendNow(budget, eras));
      const amounts = new Amounts(this.budgets, eras);
      if (refusing === undefined) return amounts;
      amounts.giveBack();
      for (const { spender, amount } of this.needed.filter((budget) => budget !== refusing)) spender.ask(amount);
      eras = new Map([[refusing, await refusing.spender.spend(refusing.amount, { signal })]]);
    }
  }
}

/** Amounts of budgets that were reserved. They are spent unless they are settled or given back. */
export class Amounts {
  constructor(
    private readonly budgets: readonly BudgetNeed[],
    /** The budgets of which an amount was taken, with the era of each. */
    readonly eras: ReadonlyMap<BudgetNeed, number>,
  ) {}

  /** Settles for what was used, one number for each need. Those of semaphores are ignored. */
  settle(used: readonly number[]): void {
    for (const budget of this.budgets) {
      const { spender, amount, indices } = budget;
      spender.settle(amount, sumAt(indices, used), this.eras.get(budget) ?? 0);
    }
  }

  giveBack(): void {
    for (const [{ spender, amount }, era] of this.eras) spender.settle(amount, 0, era);
  }
}

function budgetsOf(needs: readonly Need[]): BudgetNeed[] {
  const found = new Map<Spender, [number, ...number[]]>();
  for (const [index, { spender }] of needs.entries()) {
    if (spender === undefined) continue;
    const indices = found.get(spender);
    if (indices === undefined) found.set(spender, [index]);
    else indices.push(index);
  }
  const numbers = needs.map(({ n }) => n);
  return [...found].map(([spender, indices]) => {
    return { spender, indices, amount: checkAmount(sumAt(indices, numbers)) };
  });
}

function sumAt(indices: readonly number[], numbers: readonly number[]): number {
  return addUp(indices.map((index) => numbers[index] ?? 0));
}

function spendNow(budget: BudgetNeed, eras: Eras): boolean {
  const era = budget.spender.spendNow(budget.amount);
  if (era !== undefined) eras.set(budget, era);
  return era !== undefined;
}
