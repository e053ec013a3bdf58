/** Amounts of budgets beside permits of rates and gauges, in virtual time. */

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { describe, it } from "node:test";

import { ClosedError, TimeoutError } from "../src/index.js";
import { Bucket } from "../src/limiter/bucket.js";
import { PermitCount } from "../src/limiter/count.js";
import { Amounts, JointBudgets, type Need } from "../src/limiter/joint-budgets.js";
import { Semaphore } from "../src/limiter/semaphore.js";
import { Spender } from "../src/limiter/spender.js";
import type { Lease } from "../src/session.js";
import { random } from "./random.js";
import { VirtualTime } from "./virtual-time.js";

const FAR = 1e9;

/** A budget with leases of its own. */
class Purse {
  readonly spender: Spender;
  readonly semaphore: Semaphore<PermitCount>;
  private token = 0n;
  private allowance = 0;

  constructor(time: VirtualTime) {
    this.spender = new Spender(time);
    this.semaphore = new Semaphore(new PermitCount(), time);
  }

  of(n: number): Need {
    return { semaphore: this.semaphore, n, spender: this.spender };
  }

  /** Gives an allowance that leaves `left` to spend. */
  give(left: number, start = 1_000n): void {
    this.token += 1n;
    const isSame = this.spender.period?.start === start;
    const capacity = (isSame ? this.spender.spent : 0) + left;
    this.allowance = capacity;
    const budget = { start, end: start + 1_000n, startsOver: false };
    const wire = { expiryTime: 10n, refreshInterval: 2n, capacity };
    this.spender.take({ capacity, end: FAR, refresh: 2_000, token: this.token, wire, budget } satisfies Lease);
    assert.ok(this.spender.spent <= this.allowance);
  }

  /** What was spent, and what is asked for. */
  get state(): number[] {
    return [this.spender.spent, this.spender.wants(0).amount];
  }
}

async function setUp() {
  const time = new VirtualTime();
  const rate = new Semaphore(new Bucket({ permits: 10 }, 0), time);
  rate.change((bucket, now) => bucket.set(now, 10));
  const gauge = new Semaphore(new PermitCount(), time);
  gauge.change((count) => {
    count.capacity = 2;
  });
  // The rate saves its burst.
  await time.pass(1_000);
  return { time, rate, gauge, purses: [new Purse(time), new Purse(time)] as const };
}

/** Whether a promise has been fulfilled. */
function observed(promise: Promise<unknown>): { isDone: boolean } {
  const state = { isDone: false };
  promise.then(
    () => {
      state.isDone = true;
    },
    () => {},
  );
  return state;
}

describe("amounts of budgets and permits", () => {
  it("are taken together, or none of them", async () => {
    const { rate, gauge, purses } = await setUp();
    const [a, b] = purses;
    const joint = (x: number, y: number, n: number, m: number) =>
      new JointBudgets([a.of(x), { semaphore: rate, n }, b.of(y), { semaphore: gauge, n: m }]);
    a.give(10);
    b.give(5);
    const refused = (index: number, retryAfterMs?: number) => {
      return { index, refusal: { reason: "not-now", retryAfterMs } };
    };
    assert.ok(joint(3.5, 5, 4, 1).tryAcquire() instanceof Amounts);
    assert.deepEqual([a.spender.spent, rate.meter.taken, b.spender.spent, gauge.meter.inUse], [3.5, 4, 5, 1]);
    b.give(5);
    assert.deepEqual(joint(6.5, 5.5, 1, 1).tryAcquire(), refused(2));
    assert.deepEqual(
      [a.state, b.state],
      [
        [3.5, 7],
        [5, 6],
      ],
    );
    assert.deepEqual(joint(7, 5, 1, 1).tryAcquire(), refused(0));
    assert.deepEqual(joint(1, 1, 8, 1).tryAcquire(), refused(1, 200));
    assert.deepEqual(joint(1, 1, 0, 2).tryAcquire(), refused(3));
    assert.deepEqual(joint(9, 9, 8, 2).tryAcquire(), refused(0), "of unknown times, the first one");
    const tooMany = { index: 3, refusal: { reason: "too-many", burst: 2 } };
    assert.deepEqual(joint(9, 9, 1, 3).tryAcquire(), tooMany, "waiting is in vain");
    assert.deepEqual([a.spender.spent, rate.meter.taken, b.spender.spent, gauge.meter.inUse], [3.5, 4, 5, 1]);
    assert.ok(joint(0, 0, 1, 0).tryAcquire() instanceof Amounts, "nothing of a budget");
  });

  it("are held by nobody who waits for a budget", async () => {
    const { rate, purses } = await setUp();
    const [a, b] = purses;
    a.give(10);
    const joint = new JointBudgets([a.of(4), { semaphore: rate, n: 10 }, b.of(2)]);
    const { signal } = new AbortController();
    const waiting = joint.acquire({ signal });
    const state = observed(waiting);
    assert.deepEqual(
      [a.spender.spent, rate.meter.taken, a.spender.hasWaiting, b.spender.hasWaiting],
      [0, 0, false, true],
    );
    assert.deepEqual(
      [a.state, b.state],
      [
        [0, 4],
        [0, 2],
      ],
      "both are asked for",
    );
    assert.ok(a.spender.trySpend(7) !== undefined);
    b.give(2);
    await new Promise(setImmediate);
    assert.deepEqual(
      [b.spender.spent, a.spender.hasWaiting, b.spender.hasWaiting],
      [0, true, false],
      "now for the other",
    );
    assert.deepEqual([b.state[1], state.isDone, rate.meter.taken], [2, false, 0]);
    a.give(4);
    await waiting;
    assert.equal(getEventListeners(signal, "abort").length, 0);
    assert.deepEqual([a.spender.spent, b.spender.spent, rate.meter.taken], [11, 2, 10]);
  });

  it("are given back when a wait ends without them", async () => {
    const { time, gauge, purses } = await setUp();
    const [a, b] = purses;
    a.give(10);
    const acquire = (n: number, options = {}) =>
      new JointBudgets([a.of(4), { semaphore: gauge, n: 3 }, b.of(n)]).acquire(options);
    const nothing = () => assert.deepEqual([a.spender.spent, b.spender.spent, gauge.waiting], [0, 0, 0]);
    for (const ends of [1, 0]) {
      // First the wait for the budget ends, then the wait for the permits.
      const late = assert.rejects(acquire(ends, { timeoutMs: 100 }), TimeoutError);
      const abort = new AbortController();
      const aborted = assert.rejects(acquire(ends, { signal: abort.signal }), /enough/);
      await new Promise(setImmediate);
      assert.deepEqual([a.spender.spent, gauge.waiting], ends === 1 ? [0, 0] : [8, 6]);
      await time.pass(99);
      assert.equal(b.spender.hasWaiting, ends === 1);
      await time.pass(1);
      await late;
      abort.abort(new Error("enough"));
      await aborted;
      nothing();
    }
    await assert.rejects(acquire(0, { signal: AbortSignal.abort(new Error("before")) }), /before/);
    nothing();
    const closed = [acquire(0), acquire(1)].map((wait) => assert.rejects(wait, ClosedError));
    await new Promise(setImmediate);
    gauge.close();
    b.spender.close();
    await Promise.all(closed);
    nothing();
    await assert.rejects(acquire(0), ClosedError);
    nothing();
  });

  it("are limited by one timeout for all waits", async () => {
    const { time, gauge, purses } = await setUp();
    const [a, b] = purses;
    const needs = [a.of(1), b.of(1), { semaphore: gauge, n: 3 }];
    const late = assert.rejects(new JointBudgets(needs).acquire({ timeoutMs: 100 }), TimeoutError);
    await time.pass(40);
    a.give(1);
    await time.pass(40);
    b.give(1);
    await time.pass(19);
    assert.deepEqual([a.spender.spent, b.spender.spent, gauge.waiting], [1, 1, 3]);
    await time.pass(1);
    await late;
    assert.deepEqual([a.spender.spent, b.spender.spent, gauge.waiting], [0, 0, 0]);
  });

  it("add up if a budget is named twice", async () => {
    const { purses } = await setUp();
    const [a] = purses;
    a.give(1);
    const joint = new JointBudgets([a.of(0.75), a.of(0.75)]);
    assert.deepEqual(joint.tryAcquire(), { index: 0, refusal: { reason: "not-now", retryAfterMs: undefined } });
    const waiting = joint.acquire();
    assert.ok(a.spender.hasWaiting);
    a.give(1.5);
    const amounts = await waiting;
    assert.equal(a.spender.spent, 1.5);
    amounts.settle([0.25, 0.5]);
    assert.equal(a.spender.spent, 0.75);
    assert.throws(() => new JointBudgets([a.of(1e15), a.of(1e15)]), RangeError);
  });

  it("are settled, also those of which 0 was reserved", async () => {
    const { purses } = await setUp();
    const [a, b] = purses;
    a.give(10);
    const amounts = await new JointBudgets([a.of(4), b.of(0)]).acquire();
    amounts.settle([2.5, 1]);
    assert.deepEqual([a.spender.spent, b.spender.owed], [2.5, 1]);
  });
});

describe("callers of three budgets, a rate and a gauge", () => {
  for (let seed = 1; seed <= 20; seed += 1) {
    it(`spend what they get, and all get something: seed ${seed}`, () => history(seed));
  }
});

async function history(seed: number): Promise<void> {
  const next = random(seed);
  const below = (n: number) => Math.floor(next() * n);
  const { time, rate, gauge } = await setUp();
  const purses = [0, 1, 2].map(() => new Purse(time));
  const used = [0, 0, 0];
  let [waiting, permits] = [0, 0];
  const call = async () => {
    const amounts = purses.map(() => below(4) / 2);
    const [n, m] = [below(3), below(3)];
    // In any order.
    const order = next() < 0.5 ? [2, 0, 1] : [1, 0, 2];
    const needs = order.map((at) => purses[at]?.of(amounts[at] ?? 0) as Need);
    const joint = new JointBudgets([{ semaphore: rate, n }, ...needs, { semaphore: gauge, n: m }]);
    const gives = next() < 0.3 ? { timeoutMs: 1 + below(2_000) } : {};
    waiting += 1;
    try {
      const taken = await joint.acquire(gives);
      const settled = amounts.map((amount) => (next() < 0.5 ? amount : below(4) / 2));
      taken.settle([n, ...order.map((at) => settled[at] ?? 0), m]);
      settled.forEach((amount, at) => {
        used[at] = (used[at] ?? 0) + amount;
      });
      permits += n;
      gauge.change((count) => count.giveBack(m));
    } catch (error) {
      assert.ok(error instanceof TimeoutError);
    }
    waiting -= 1;
  };
  for (let calls = 0; calls < 100; calls += 1) {
    void call();
    if (next() < 0.3) purses[below(3)]?.give(below(8) / 2);
    await time.pass(below(100));
  }
  for (let turn = 0; turn < 300 && waiting > 0; turn += 1) {
    // As a server does: it takes back what is not needed.
    for (const purse of purses) purse.give(Math.min(purse.state[1] ?? 0, 8));
    await time.pass(100);
  }
  assert.equal(waiting, 0, "all are served, though allowances shrink");
  for (const purse of purses) purse.give(100);
  assert.deepEqual(
    purses.map(({ spender }) => [spender.spent, spender.owed]),
    used.map((amount) => [amount, 0]),
  );
  assert.deepEqual([rate.meter.taken, rate.waiting + rate.reserved, gauge.meter.inUse], [permits, 0, 0]);
}
