/** Permits of several limits at once. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";

import { Client, ClosedError, DebtExceededError, type Limits, Permits, Refusal, TimeoutError } from "../src/index.js";
import { Bucket } from "../src/limiter/bucket.js";
import { PermitCount } from "../src/limiter/count.js";
import { Joint } from "../src/limiter/joint.js";
import { Semaphore } from "../src/limiter/semaphore.js";
import { Fake } from "./fake.js";
import { random } from "./random.js";
import { eventually, Server, skip, template } from "./server.js";
import { VirtualTime } from "./virtual-time.js";

type Limit = { kind: "rate"; semaphore: Semaphore<Bucket> } | { kind: "gauge"; semaphore: Semaphore<PermitCount> };

interface Caller {
  readonly needs: number[];
  readonly abort: AbortController;
  isAdmitted: boolean;
  /** It has returned its permits, or has given up. */
  isDone: boolean;
}

/** Callers of several limits in virtual time. */
class Crowd {
  readonly time = new VirtualTime();
  readonly limits: Limit[];
  readonly callers: Caller[] = [];

  /** A rate is given by its burst. */
  constructor(limits: (number | "gauge")[]) {
    this.limits = limits.map((limit) =>
      limit === "gauge"
        ? { kind: "gauge", semaphore: new Semaphore(new PermitCount(), this.time) }
        : { kind: "rate", semaphore: new Semaphore(new Bucket({ permits: limit }, 0), this.time) },
    );
  }

  private limit(at: number): Limit {
    const limit = this.limits[at];
    assert.ok(limit);
    return limit;
  }

  private joint(needs: number[]): Joint {
    return new Joint(needs.map((n, at) => ({ semaphore: this.limit(at).semaphore, n })));
  }

  setCapacity(at: number, capacity: number): void {
    const limit = this.limit(at);
    if (limit.kind === "rate") limit.semaphore.change((bucket, now) => bucket.set(now, capacity));
    else
      limit.semaphore.change((count) => {
        count.capacity = capacity;
      });
  }

  charge(at: number, n: number): void {
    const limit = this.limit(at);
    assert.ok(limit.kind === "rate");
    limit.semaphore.charge((bucket, now) => bucket.charge(now, n));
  }

  async join(needs: number[]): Promise<Caller> {
    const caller: Caller = { needs, abort: new AbortController(), isAdmitted: false, isDone: false };
    this.callers.push(caller);
    const admitted = () => {
      caller.isAdmitted = true;
    };
    this.joint(needs)
      .acquire({ signal: caller.abort.signal })
      .then(admitted, () => {});
    await this.time.pass(0);
    return caller;
  }

  tryAcquire(needs: number[]) {
    const refused = this.joint(needs).tryAcquire();
    if (refused === undefined) this.giveBack(needs);
    return refused;
  }

  giveBack(needs: number[]): void {
    this.limits.forEach((limit, at) => {
      const n = needs[at] ?? 0;
      if (limit.kind === "gauge" && n > 0) limit.semaphore.change((count) => count.giveBack(n));
    });
  }

  async leave(caller: Caller): Promise<void> {
    if (caller.isAdmitted) return;
    caller.isDone = true;
    caller.abort.abort(new Error("it gives up"));
    await this.time.pass(0);
  }

  async release(caller: Caller): Promise<void> {
    if (!caller.isAdmitted || caller.isDone) return;
    caller.isDone = true;
    this.giveBack(caller.needs);
    await this.time.pass(0);
  }

  /** For each limit: permits taken of a rate or in use of a gauge, and permits that callers wait for. */
  permits(): number[][] {
    return this.limits.map(({ kind, semaphore }) => {
      const used = kind === "rate" ? semaphore.meter.taken : semaphore.meter.inUse;
      return [used, semaphore.waiting + semaphore.reserved];
    });
  }
}

const SCENARIOS = new URL("../../../go/internal/limiter/testdata/limits.json", import.meta.url);

describe("scenarios that all clients replay", () => {
  for (const { name, limits, steps } of JSON.parse(readFileSync(SCENARIOS, "utf8")).scenarios) {
    it(name, () => replay(limits, steps));
  }
});

// biome-ignore lint/suspicious/noExplicitAny: read from JSON
async function replay(limits: (number | "gauge")[], steps: any[][]): Promise<void> {
  const crowd = new Crowd(limits);
  const told = new Set<Caller>();
  for (const [number, [op, first, second]] of steps.entries()) {
    const what = `step ${number}: ${op} ${first}`;
    // The file has the numbers of callers.
    const caller = () => crowd.callers[first] as Caller;
    const act: Record<string, () => unknown> = {
      capacity: () => crowd.setCapacity(first, second === "unlimited" ? Number.POSITIVE_INFINITY : second),
      join: () => crowd.join(first),
      leave: () => crowd.leave(caller()),
      release: () => crowd.release(caller()),
      "release-all": async () => {
        for (const admitted of crowd.callers.filter(({ isAdmitted }) => isAdmitted)) await crowd.release(admitted);
      },
      try: () => assert.deepEqual(outcome(crowd.tryAcquire(first)), rounded(second), what),
      charge: () => crowd.charge(first, second),
      advance: () => crowd.time.pass(first),
      admitted: () => {
        const now = crowd.callers.filter((one) => one.isAdmitted && !told.has(one));
        for (const one of now) told.add(one);
        assert.deepEqual(
          now.map((one) => crowd.callers.indexOf(one)),
          first,
          what,
        );
      },
      permits: () => assert.deepEqual(crowd.permits(), first, what),
    };
    await act[op]?.();
    await crowd.time.pass(0);
  }
}

/** The result of a `try`, as the file has it. */
function outcome(refused: ReturnType<Joint["tryAcquire"]>): unknown {
  if (refused === undefined) return "taken";
  const { index, refusal } = refused;
  if (refusal.reason === "too-many") return [index, refusal.reason, refusal.burst];
  assert.equal(refusal.reason, "not-now");
  return rounded([index, refusal.reason, refusal.reason === "not-now" ? (refusal.retryAfterMs ?? null) : null]);
}

function rounded(result: unknown): unknown {
  if (!Array.isArray(result) || typeof result[2] !== "number") return result;
  return [result[0], result[1], Math.round(result[2] * 1e3) / 1e3];
}

describe("a hundred callers of two rates and two gauges", () => {
  for (let seed = 1; seed <= 20; seed += 1) {
    it(`lose nothing, and a refusal takes nothing: seed ${seed}`, () => history(seed));
  }
});

async function history(seed: number): Promise<void> {
  const next = random(seed);
  const below = (n: number) => Math.floor(next() * n);
  const crowd = new Crowd([10, 1, "gauge", "gauge"]);
  for (let at = 0; at < 4; at += 1) crowd.setCapacity(at, at < 2 ? 1 + below(40) : 9 + below(5));
  const taken = [0, 0];
  const counted = new Set<Caller>();
  const needs = (): number[] => {
    const chosen = [0, 1, 2, 3].map(() => (next() < 0.35 ? 0 : below(4)));
    if (next() < 0.15) chosen[below(4)] = 9;
    return chosen.some((n) => n > 0) ? chosen : needs();
  };
  const take = (permits: number[]) =>
    taken.forEach((n, at) => {
      taken[at] = n + (permits[at] ?? 0);
    });
  const check = () => {
    for (const caller of crowd.callers) {
      if (!caller.isAdmitted || counted.has(caller)) continue;
      counted.add(caller);
      take(caller.needs);
    }
    const sum = (at: number, holds: (caller: Caller) => boolean) =>
      crowd.callers.filter(holds).reduce((total, caller) => total + (caller.needs[at] ?? 0), 0);
    const expected = [0, 1, 2, 3].map((at) => [
      taken[at] ?? sum(at, ({ isAdmitted, isDone }) => isAdmitted && !isDone),
      sum(at, ({ isAdmitted, isDone }) => !isAdmitted && !isDone),
    ]);
    assert.deepEqual(crowd.permits(), expected);
  };
  while (crowd.callers.length < 100) {
    const caller = crowd.callers[below(Math.max(crowd.callers.length, 1))];
    switch (below(6)) {
      case 0:
      case 1:
        await crowd.join(needs());
        break;
      case 2:
        if (caller?.isAdmitted) await crowd.release(caller);
        else if (caller && !caller.isDone) await crowd.leave(caller);
        break;
      case 3: {
        const [before, wanted] = [crowd.permits(), needs()];
        if (crowd.tryAcquire(wanted) === undefined) take(wanted);
        else assert.deepEqual(crowd.permits(), before, "a refusal takes nothing");
        await crowd.time.pass(0);
        break;
      }
      case 4:
        if (below(8) === 0) crowd.setCapacity(below(4), [0, 5, 12][below(3)] ?? 0);
        await crowd.time.pass(0);
        break;
      default:
        await crowd.time.pass(below(200));
    }
    check();
  }
  for (let at = 0; at < 4; at += 1) crowd.setCapacity(at, 12);
  for (let turn = 0; turn < 300 && crowd.callers.some(({ isDone }) => !isDone); turn += 1) {
    for (const caller of crowd.callers) await crowd.release(caller);
    await crowd.time.pass(100);
    check();
  }
  assert.ok(
    crowd.callers.every(({ isDone }) => isDone),
    "every caller is served, if permits of gauges come back",
  );
  assert.ok(crowd.permits().every(([, waiting]) => waiting === 0));
}

describe("the limits of a client", () => {
  it("refuses a waiting caller when one of its resources is closed", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const [jobs, slots] = [client.gauge("jobs", { wants: 10 }), client.gauge("slots", { wants: 10 })];
    await client.ready();
    const held = await jobs.acquire(10);
    const waiting = assert.rejects(client.limits(slots.of(10), jobs.of(1)).acquire(), ClosedError);
    jobs.close();
    await waiting;
    (await slots.acquire(10, { timeoutMs: 1_000 })).release();
    held.release();
    await client.close();
  });

  it("gives permits of rates back if a client is closed before the caller has them", async (test) => {
    const server = await Fake.start(test);
    const [one, other] = [new Client(server.address), new Client(server.address)];
    const [tokens, slots] = [one.rate("tokens", { wants: 10, burst: 5 }), other.gauge("slots", { wants: 10 })];
    await Promise.all([one.ready(), other.ready()]);
    await eventually(() => tokens.available === 5, "a full burst");
    const late = assert.rejects(one.limits(tokens.of(5), slots.of(1)).acquire(), ClosedError);
    const closed = other.close();
    await late;
    assert.equal(tokens.available, 5, "nothing was taken");
    await Promise.all([closed, one.close()]);
  });

  it("are taken together or not at all", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const tokens = client.rate("tokens", { wants: 10, burst: 100, maxDebt: 50 });
    const slots = client.gauge("slots", { wants: 10 });
    await client.ready();
    assert.equal(slots.capacity, 10);
    const both = client.limits(tokens.of(20), slots.of());
    assert.deepEqual(both.resources, ["tokens", "slots"]);
    const permits = await both.acquire();
    assert.equal(slots.inUse, 1);
    const refusal = both.tryAcquire();
    assert.ok(refusal instanceof Refusal);
    assert.deepEqual([refusal.index, refusal.resource], [0, "tokens"]);
    assert.ok((refusal.retryAfterMs ?? 0) > 500 && (refusal.retryAfterMs ?? 0) <= 2_000, `${refusal.retryAfterMs}`);
    assert.equal(slots.inUse, 1);
    permits.release();
    permits.release();
    assert.equal(slots.inUse, 0);
    const two = both.withPermits(0, 10).tryAcquire();
    assert.ok(two instanceof Permits);
    await assert.rejects(both.withPermits(0, 1).acquire({ timeoutMs: 20 }), TimeoutError);
    const signal = AbortSignal.abort(new Error("it gives up"));
    await assert.rejects(both.acquire({ signal }), /gives up/);
    const refused = both.withPermits(0, 11).tryAcquire();
    assert.ok(refused instanceof Refusal && refused.retryAfterMs === undefined);
    two.release();
    assert.equal(await both.withPermits(0, 10).use(() => slots.inUse), 10);
    await client.close();
    await assert.rejects(both.acquire(), ClosedError);
    assert.throws(() => both.tryAcquire(), ClosedError);
  });

  it("are settled, charged and refunded by limit", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const tokens = client.rate("tokens", { wants: 10, burst: 20, maxDebt: 50 });
    const slots = client.gauge("slots", { wants: 2 });
    await client.ready();
    const both = client.limits(tokens.of(20), slots.of(1));
    const reservation = await both.reserve();
    assert.deepEqual([reservation.reserved, slots.inUse], [[20, 1], 1]);
    reservation.settle(5, 0);
    reservation.settle(5, 0);
    assert.equal(slots.inUse, 0);
    assert.ok(tokens.available >= 15, `${tokens.available}`);
    both.charge(15, 7);
    assert.ok(tokens.available < 15);
    both.refund(15, 7);
    assert.ok(tokens.available >= 15);
    const small = both.withPermits(1, 1).tryReserve();
    assert.ok(!(small instanceof Refusal));
    assert.throws(
      () => small.settle(500, 1),
      (error) => error instanceof DebtExceededError && error.resource === "tokens",
    );
    assert.equal(slots.inUse, 0);
    assert.throws(() => both.charge(1), /1 numbers for 2 limits/);
    assert.throws(() => tokens.of(-1), /-1/);
    await client.close();
  });

  it("may be budgets, of which real amounts are taken", async (test) => {
    const server = await Fake.start(test);
    for (const id of ["dollars", "joules"]) server.budgets.add(id);
    const client = new Client(server.address);
    const tokens = client.rate("tokens", { wants: 10, burst: 20 });
    const slots = client.gauge("slots", { wants: 2 });
    const [dollars, joules] = [client.budget("dollars"), client.budget("joules")];
    await client.ready();
    const all = client.limits(tokens.of(5), dollars.of(2.5), slots.of(), joules.of(4));
    const spent = () => [dollars.spent, joules.spent, slots.inUse];
    const permits = await all.acquire({ timeoutMs: 20_000 });
    assert.deepEqual(spent(), [2.5, 4, 1]);
    permits.release();
    assert.deepEqual(spent(), [2.5, 4, 0]);
    all.refund(5, 0.5, 1, 100);
    assert.deepEqual(spent(), [2.5, 4, 0], "amounts stay spent");
    all.charge(0, 0.25, 7, 1);
    assert.deepEqual(spent(), [2.75, 5, 0]);

    const reservations = await all.withPermits(1, 7.25, 1, 4).reserve({ timeoutMs: 20_000 });
    assert.deepEqual(
      [reservations.reserved, spent()],
      [
        [1, 7.25, 1, 4],
        [10, 9, 1],
      ],
    );
    const refusal = all.withPermits(1, 0.5, 1, 0).tryReserve();
    assert.ok(refusal instanceof Refusal);
    assert.deepEqual([refusal.index, refusal.resource, refusal.retryAfterMs], [1, "dollars", undefined]);
    assert.match(refusal.reason, /allowance/);
    await assert.rejects(all.acquire({ timeoutMs: 20 }), TimeoutError);
    assert.throws(() => reservations.settle(1, Number.NaN, 1, 8), RangeError);
    assert.throws(() => reservations.settle(1.5, 1, 1, 8), RangeError, "permits are whole");
    reservations.settle(1, 0.25, 1, 8.5);
    reservations.settle(0, 0, 0, 0);
    assert.deepEqual([spent(), joules.owed], [[3, 10, 0], 3.5]);
    assert.throws(() => dollars.of(-1), RangeError);

    const held = await client.limits(dollars.of(1)).reserve();
    dollars.close();
    const again = client.budget("dollars");
    assert.equal(again.spent, 4, "the reservation keeps it open");
    held[Symbol.dispose]();
    assert.equal(again.spent, 4);
    const closed = assert.rejects(client.limits(again.of(1), joules.of(1)).acquire(), ClosedError);
    await client.close();
    await closed;
  });

  it("give back amounts of budgets to a server when one refuses", { skip }, async (test) => {
    const budget = (glob: string, capacity: number) =>
      `${template({ glob, capacity, kind: "BUDGET", lease: 10 })}    parameters: {period: none}\n`;
    const server = await Server.start([budget("tokens", 100), budget("dollars", 50), template()]);
    test.after(() => server.kill());
    const clients = [new Client(server.address), new Client(server.address)] as const;
    const stop = new AbortController();
    let done = 0;
    const work = async (limits: Limits) => {
      for (;;) {
        const reserved = await limits.reserve({ signal: stop.signal });
        done += 1;
        reserved.settle(...reserved.reserved);
        // Later than the next refresh, which might let one more pass.
        if (done === 10) setTimeout(() => stop.abort(new Error("all is spent")), 1_500);
      }
    };
    const opened = clients.map((client) => {
      return {
        tokens: client.budget("tokens"),
        dollars: client.budget("dollars"),
        rate: client.rate("rate"),
        slots: client.gauge("slots"),
      };
    });
    // The budgets in both orders.
    const workers = opened.flatMap(({ tokens, dollars, rate, slots }, at) => {
      const client = clients[at] as Client;
      const first = client.limits(tokens.of(10), rate.of(), dollars.of(5), slots.of());
      return [first, client.limits(slots.of(), dollars.of(5), tokens.of(10))].map(work);
    });
    for (const worker of workers) await assert.rejects(worker, /all is spent/);
    const spent = (id: "tokens" | "dollars") => opened.reduce((sum, one) => sum + one[id].spent, 0);
    assert.deepEqual([spent("tokens"), spent("dollars"), done], [100, 50, 10]);
    await Promise.all(clients.map((client) => client.close()));
  });

  it("keep their resources open while permits are in use", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const slots = client.gauge("slots", { wants: 2 });
    await client.ready();
    const permits = await client.limits(slots.of(1)).acquire();
    slots.close();
    const again = client.gauge("slots");
    assert.equal(again.inUse, 1);
    permits.release();
    assert.equal(again.inUse, 0);
    await client.close();
  });
});
