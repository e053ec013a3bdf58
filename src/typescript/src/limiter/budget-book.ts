import type { BudgetLease, BudgetUse, Lease } from "../session.js";

/** The bound of servers. */
const MAX_AMOUNT = 1e15;

export function checkAmount(amount: number): number {
  if (amount >= 0 && amount <= MAX_AMOUNT) return amount;
  throw new RangeError(`invalid amount ${amount}: expected a number from 0 to ${MAX_AMOUNT}`);
}

/** The rate is a mean over about this time. */
const RATE_SECONDS = 5;

/** The shortest time over which the rate is measured. */
const MIN_SAMPLE_MS = 100;

/** How long an amount that was refused is asked for: callers that do not wait may try again. */
const REFUSED_FOR_MS = 60_000;

/**
 * Sums are exact, in units of 2⁻⁵². Every number from 1 upwards is a whole number of these units. Below 1 an amount counts
 * as the next whole number of units, so sums err upwards. Servers count in the same way.
 */
const UNITS = 2 ** 52;

function unitsOf(amount: number): bigint {
  return BigInt(Math.ceil(amount * UNITS));
}

/** An amount that does not exceed the sum. */
function floor(units: bigint): number {
  let near = Number(units);
  while (BigInt(near) > units) near *= 1 - Number.EPSILON / 2;
  return near / UNITS;
}

/** An amount that is not less than the sum. */
function ceil(units: bigint): number {
  let near = Number(units);
  while (BigInt(near) < units) near *= 1 + Number.EPSILON;
  return near / UNITS;
}

/** A sum of amounts, rounded up. */
export function addUp(amounts: readonly number[]): number {
  return ceil(amounts.reduce((sum, amount) => sum + unitsOf(amount), 0n));
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

/**
 * The book of a budget: what one incarnation of a client has spent, and how far its allowance goes.
 *
 * The lease of a budget is a cumulative allowance for the period. The book adds up exactly what its incarnation has spent.
 * It never spends beyond the allowance, after the end of the lease, or in another period. Times are in milliseconds.
 *
 * What is charged after it was used is *owed* as far as the allowance does not cover it. The next allowances pay it before
 * anything else is spent. What was spent in advance can be taken back as long as the report that it was spent can be taken
 * back: in the same period, by the same incarnation.
 */
export class BudgetBook {
  /** The current period; absent before the first lease. */
  period: BudgetLease | undefined;
  /** The lease that gave the allowance, and the lease that was taken last. */
  private token: bigint | undefined;
  private seen: bigint | undefined;
  private allowance = 0n;
  /** The end of the lease. */
  private until = 0;
  private sum = 0n;
  /**
   * The number of times that the book began with nothing spent, with another period or as another incarnation. An amount
   * can be taken back only in the era in which it was spent.
   */
  era = 0;
  /** Charged, but not covered by an allowance yet. */
  private debt = 0n;
  /** What callers wait for: in total, and the first of them. */
  private waiting = 0;
  private first = 0;
  private refused = 0;
  private refusedAt = 0;
  /** The refresh interval of the lease, and the rate of spending per second. */
  private refreshMs = 5_000;
  private rate = 0;
  /** When the rate was last updated, and what had been spent then. */
  private sampledAt: number;
  private sampled = 0n;
  /** The demand that was last reported. */
  private wanted = 0;

  /** An empty book. `incarnation` is a random number. */
  constructor(
    now: number,
    private incarnation: bigint,
  ) {
    this.sampledAt = now;
  }

  /**
   * Takes the newest lease of the session, if it is not known yet. `fresh` makes the next incarnation, for a client that is
   * told to start over. Returns whether the client should ask again at once.
   */
  take(now: number, { budget, token, capacity, end, refresh }: Lease, fresh: () => bigint): boolean {
    if (budget === undefined || token === undefined || token === this.seen) return false;
    if (budget.startsOver || this.period?.start !== budget.start) {
      this.sum = 0n;
      this.sampled = 0n;
      this.era += 1;
    }
    this.seen = token;
    this.period = budget;
    this.refreshMs = refresh;
    if (budget.startsOver) {
      this.incarnation = fresh();
      this.token = undefined;
      this.allowance = 0n;
      this.until = 0;
      return true;
    }
    this.token = token;
    this.allowance = unitsOf(Math.min(capacity, MAX_AMOUNT));
    this.until = end;
    this.pay(now);
    return false;
  }

  /** Pays what is owed, as far as the allowance covers it. */
  private pay(now: number): void {
    const paid = min(this.debt, this.unspent(now));
    this.debt -= paid;
    this.sum += paid;
  }

  /** The part of the allowance that is not spent. Zero after the end of the lease. */
  private unspent(now: number): bigint {
    return now < this.until && this.allowance > this.sum ? this.allowance - this.sum : 0n;
  }

  /** Spends an amount, from 0 to `MAX_AMOUNT`, if the allowance covers all of it. */
  spend(now: number, amount: number): boolean {
    const after = this.sum + unitsOf(amount);
    if (now >= this.until || this.debt > 0n || after > this.allowance) return false;
    this.sum = after;
    if (amount >= this.refused) this.refused = 0;
    return true;
  }

  /**
   * Of an amount that was spent in advance in an era, `used` was used. Takes back the rest, unless the era has ended; what
   * exceeds the amount is charged.
   */
  settle(now: number, reserved: number, used: number, era: number): void {
    const excess = unitsOf(used) - unitsOf(reserved);
    if (excess >= 0n) this.debt += excess;
    else if (era === this.era) this.sum -= min(this.sum, -excess);
    this.pay(now);
  }

  /** Spends an amount that was used already. What the allowance does not cover is owed. */
  charge(now: number, amount: number): void {
    this.debt += unitsOf(amount);
    this.pay(now);
  }

  /** What was charged and is not covered by an allowance yet. */
  get owed(): number {
    return ceil(this.debt);
  }

  /** Notes an amount that was refused to a caller that does not wait, so that it is asked for. */
  refuse(now: number, amount: number): void {
    this.refused = Math.max(this.refusedLately(now), amount);
    this.refusedAt = now;
  }

  private refusedLately(now: number): number {
    return now - this.refusedAt < REFUSED_FOR_MS ? this.refused : 0;
  }

  /** What may be spent now, without asking. */
  left(now: number): number {
    return this.debt > 0n ? 0 : floor(this.unspent(now));
  }

  /** What this incarnation has spent in the current period. */
  get spent(): number {
    return ceil(this.sum);
  }

  /** Sets what callers wait for: in total, and the first of them. */
  setWaiting(total: number, first: number): void {
    this.waiting = total;
    this.first = first;
  }

  /** Whether callers wait, something is owed, or less is left than was refused or than half of what was last wanted. */
  isShort(now: number): boolean {
    const left = this.left(now);
    return (
      this.waiting > 0 || this.debt > 0n || left < this.refusedLately(now) || (this.rate > 0 && left < this.wanted / 2)
    );
  }

  /** Nothing can be spent from now on. */
  close(): void {
    this.until = 0;
  }

  /** The demand: what is spent in two refresh intervals, what callers wait for, what was refused, and what is owed. */
  wants(now: number): { amount: number; spent: BudgetUse } {
    this.pay(now);
    const elapsed = (now - this.sampledAt) / 1000;
    if (elapsed * 1000 >= MIN_SAMPLE_MS) {
      // Negative if more was taken back than spent.
      const recent = Number(this.sum - this.sampled) / UNITS / elapsed;
      this.rate += (recent - this.rate) * (1 - Math.exp(-elapsed / RATE_SECONDS));
      if (this.rate < 1e-6) this.rate = 0;
      this.sampledAt = now;
      this.sampled = this.sum;
    }
    const refused = this.refusedLately(now);
    const wanted = Math.ceil((this.rate * this.refreshMs) / 500 + this.waiting + refused + this.owed);
    this.wanted = Math.min(wanted, MAX_AMOUNT);
    const spent: BudgetUse = {
      spent: this.spent,
      period: this.period?.start ?? 0n,
      incarnation: this.incarnation,
      need: this.waiting > 0 ? this.first : refused,
      token: this.token,
      isShort: this.isShort(now),
    };
    return { amount: this.wanted, spent };
  }
}
