/** Budgets: the book and its queue in virtual time, the messages, and a client with a server. */

import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";

import { Client, ClosedError, OpenError, TimeoutError } from "../src/index.js";
import { BudgetBook } from "../src/limiter/budget-book.js";
import { Spender } from "../src/limiter/spender.js";
import { getCapacity, leasesOf, releaseCapacity } from "../src/protocol/wire.js";
import { type BudgetUse, isUrgent, type Lease, type Wants } from "../src/session.js";
import { Fake } from "./fake.js";
import { eventually, Server, skip, template } from "./server.js";
import { VirtualTime } from "./virtual-time.js";

/** The end of each lease. */
const END = 10_000;

function allowance(token: bigint, capacity: number, start = 1_000n, startsOver = false): Lease {
  const wire = { expiryTime: 10n, refreshInterval: 2n, capacity };
  const budget = { start, end: start + 1_000n, startsOver };
  return { capacity, end: END, refresh: 2_000, token, wire, budget };
}

const two = () => 2n;

describe("the book of a budget", () => {
  it("never exceeds the allowance", () => {
    const book = new BudgetBook(0, 1n);
    assert.ok(!book.spend(0, 1), "no lease yet");
    book.take(0, allowance(1n, 10), two);
    const spent = [7, 4, 3, 0.0001, 0].map((amount) => book.spend(0, amount));
    assert.deepEqual(spent, [true, false, true, false, true]);
    book.take(0, allowance(2n, 12), two);
    assert.deepEqual([book.left(END - 1), book.left(END), book.spend(END, 1)], [2, 0, false]);
    book.take(0, allowance(3n, 5), two);
    assert.deepEqual([book.left(0), book.spent, book.spend(0, 1)], [0, 10, false], "it has spent more");
  });

  it("begins with nothing spent in another period and as another incarnation", () => {
    const book = new BudgetBook(0, 1n);
    book.take(0, allowance(1n, 10), two);
    assert.ok(book.spend(0, 7));
    book.take(0, allowance(2n, 4, 2_000n), two);
    const report = { spent: 0, period: 2_000n, incarnation: 1n, need: 0, token: 2n, isShort: false };
    assert.deepEqual(book.wants(0).spent, report);
    assert.ok(!book.spend(0, 5) && book.spend(0, 3));
    assert.ok(!book.take(0, allowance(2n, 4, 2_000n), two) && book.left(0) === 1, "the same lease changes nothing");
    assert.ok(book.take(0, allowance(3n, 0, 2_000n, true), two), "it asks at once");
    assert.deepEqual(book.wants(0).spent, { ...report, incarnation: 2n, token: undefined });
    assert.ok(!book.spend(0, 1));
  });

  it("takes an amount back where it was spent", () => {
    const book = new BudgetBook(0, 1n);
    book.take(0, allowance(1n, 10), two);
    assert.ok(book.spend(0, 7));
    let { era } = book;
    book.settle(0, 7, 2, era);
    assert.deepEqual([book.spent, book.left(0)], [2, 8]);
    book.settle(2 * END, 1, 0, era);
    assert.deepEqual([book.spent, book.left(2 * END)], [1, 0], "the lease has ended");
    book.take(0, allowance(2n, 4, 2_000n), two);
    book.spend(0, 1);
    book.settle(0, 1, 0, era);
    assert.equal(book.spent, 1, "another period");
    era = book.era;
    book.take(0, allowance(3n, 0, 2_000n, true), two);
    book.take(0, allowance(4n, 4, 2_000n), two);
    book.spend(0, 1);
    book.settle(0, 1, 0, era);
    assert.equal(book.spent, 1, "another incarnation");
    book.take(0, allowance(5n, 4, 1_000n), two);
    book.take(0, allowance(6n, 4, 2_000n), two);
    book.settle(0, 1, 0, era);
    assert.equal(book.spent, 0, "the period is set back");
    book.spend(0, 1);
    book.settle(0, 2, 0, book.era);
    assert.equal(book.spent, 0, "no more than was spent");
  });

  it("pays what is owed before anything is spent", () => {
    const book = new BudgetBook(0, 1n);
    book.charge(0, 3);
    const { amount, spent } = book.wants(0);
    assert.deepEqual([book.owed, amount, spent.spent, spent.isShort], [3, 3, 0, true]);
    book.take(0, allowance(1n, 2), two);
    assert.deepEqual([book.owed, book.spent, book.left(0)], [1, 2, 0]);
    book.take(0, allowance(2n, 10), two);
    assert.deepEqual([book.owed, book.spent, book.left(0)], [0, 3, 7]);
    assert.ok(book.spend(0, 6));
    const { era } = book;
    book.settle(0, 1, 5, era);
    assert.ok(book.owed === 3 && !book.spend(0, 0), "even if nothing is spent");
    book.settle(0, 5, 0, era);
    assert.deepEqual([book.owed, book.left(0)], [0, 2], "what comes back pays");
    book.charge(END, 1);
    assert.deepEqual([book.owed, book.spent], [1, 8], "the lease has ended");
    book.take(0, allowance(3n, 4, 2_000n), two);
    assert.deepEqual([book.owed, book.spent], [0, 1], "paid from the next period");
  });

  it("measures no rate of spending when more is taken back than spent", () => {
    const book = new BudgetBook(0, 1n);
    book.take(0, allowance(1n, 1e15), two);
    assert.ok(book.spend(0, 1e15 - 0.125));
    book.wants(1_000);
    book.settle(1_000, 1e15 - 0.125, 0.001, book.era);
    assert.equal(book.wants(2_000).amount, 0);
  });

  it("adds small amounts up exactly", () => {
    const book = new BudgetBook(0, 1n);
    book.take(0, allowance(1n, 1), two);
    let spent = 0;
    while (book.spend(0, 0.0001)) spent += 1;
    assert.ok(spent === 9_999 || spent === 10_000, `${spent}`);
    assert.ok(book.spent + book.left(0) <= 1 + Number.EPSILON, `${book.spent} and ${book.left(0)}`);
  });

  it("wants what is spent in two refresh intervals, waited for, or refused", () => {
    const book = new BudgetBook(0, 1n);
    book.setWaiting(50, 20);
    assert.deepEqual([book.wants(0).amount, book.wants(0).spent.need, book.isShort(0)], [50, 20, true]);
    book.setWaiting(0, 0);
    book.refuse(0, 30);
    book.refuse(1_000, 5);
    assert.deepEqual([book.wants(1_000).amount, book.wants(1_000).spent.need], [30, 30]);
    book.take(0, allowance(1n, 1e6), two);
    assert.ok(!book.isShort(1_000), "it is covered");
    assert.ok(book.spend(1_000, 30));
    assert.equal(book.wants(1_000).spent.need, 0);
    for (let second = 2; second < 60; second += 1) {
      book.spend(0, 100);
      book.wants(second * 1_000);
    }
    assert.equal(book.wants(59_000).amount, 400);
  });
});

describe("callers that spend a budget", () => {
  it("are served first come, first served", async () => {
    const time = new VirtualTime();
    const waiting: boolean[] = [];
    const spender = new Spender(time, { waiting: (callersWait) => waiting.push(callersWait) });
    const served: number[] = [];
    const spends = [10, 1].map((amount) => spender.spend(amount).then(() => served.push(amount)));
    assert.deepEqual([spender.wants(0).amount, spender.wants(0).spent.need], [11, 10]);
    spender.take(allowance(1n, 9));
    assert.equal(spender.trySpend(1), undefined, "others wait");
    spender.take(allowance(2n, 10));
    spender.take(allowance(3n, 11));
    await Promise.all(spends);
    assert.deepEqual([served, spender.spent, spender.left, waiting], [[10, 1], 11, 0, [true, false]]);
  });

  it("are served from what is taken back, once nothing is owed", async () => {
    let asked = 0;
    const spender = new Spender(new VirtualTime(), { pressure: () => (asked += 1) });
    spender.take(allowance(1n, 10));
    const era = await spender.spend(8);
    assert.equal(asked, 0);
    spender.charge(4);
    assert.deepEqual([spender.owed, spender.left, asked], [2, 0, 1]);
    const waiting = spender.spend(3);
    spender.settle(4, 1, era);
    assert.deepEqual([spender.owed, spender.spent, spender.hasWaiting], [0, 9, true]);
    spender.settle(4, 1, era);
    assert.equal(await waiting, era);
    assert.equal(spender.spent, 9);
  });

  it("learn in which period they have spent, even if it ends before they run", async () => {
    const spender = new Spender(new VirtualTime());
    const waiting = spender.spend(3);
    spender.take(allowance(1n, 10));
    spender.take(allowance(2n, 10, 2_000n));
    spender.settle(3, 0, await waiting);
    assert.deepEqual([spender.spent, spender.left], [0, 10], "it was spent in the period before");
  });

  it("have spent nothing when their wait ends", async () => {
    const time = new VirtualTime();
    const spender = new Spender(time);
    spender.take(allowance(1n, 5));
    const abort = new AbortController();
    const waits = [spender.spend(6, { signal: abort.signal }), spender.spend(7, { timeoutMs: 100 })];
    const last = spender.spend(5);
    abort.abort(new Error("enough"));
    await assert.rejects(waits[0] as Promise<number>, /enough/);
    const late = assert.rejects(waits[1] as Promise<number>, TimeoutError);
    await time.advance(100);
    await late;
    await last;
    assert.equal(spender.spent, 5);
    const closed = assert.rejects(spender.spend(1), ClosedError);
    spender.close();
    await closed;
    await assert.rejects(spender.spend(0), ClosedError);
    assert.equal(spender.wants(0).amount, 0);
  });
});

describe("the messages of a budget", () => {
  const use: BudgetUse = { spent: 3, period: 1_000n, incarnation: 5n, need: 0, token: 9n, isShort: false };
  const wants = (spent: BudgetUse): Wants => ({ amount: 0, priority: 0, outstanding: 0, usage: undefined, spent });

  it("name the lease of the allowance, and what was spent", () => {
    const lease = allowance(9n, 7.5);
    const asks = [
      { id: "r", demand: wants(use), has: lease, had: undefined },
      { id: "s", demand: wants({ ...use, spent: 8, need: 2 }), has: undefined, had: lease },
      { id: "t", demand: wants({ ...use, token: 7n }), has: lease, had: undefined },
    ];
    const { resource } = getCapacity("c", asks);
    assert.deepEqual(
      resource.map(({ has, had }) => [has?.capacity, had]),
      [
        [7.5, undefined],
        [8, undefined],
        [undefined, undefined],
      ],
    );
    const spent = { amount: 8, period: 1_000n, incarnation: 5n, need: 2 };
    assert.deepEqual(resource[1]?.spent, spent);
    const releases = [
      { id: "a", token: 7n },
      { id: "b", token: 9n, spent: { ...use, spent: 8, need: 2 } },
    ];
    assert.deepEqual(releaseCapacity("c", releases).spent, [{}, spent]);
    const gets = { expiryTime: 1_000n, refreshInterval: 5n, capacity: 7.5, token: 9n };
    const { given } = leasesOf([{ resourceId: "r", gets, budget: { periodStart: 1_000n, startsOver: true } }], 0);
    assert.deepEqual(given[0]?.budget, { start: 1_000n, end: undefined, startsOver: true });
  });

  it("are sent promptly if an allowance is missing", () => {
    const urgent = (other: Partial<BudgetUse>) => isUrgent(wants({ ...use, ...other }), wants(use));
    assert.ok(urgent({ spent: 4, isShort: true }) && urgent({ need: 1, isShort: true }));
    assert.ok(urgent({ period: 2_000n }) && urgent({ incarnation: 6n }));
    assert.ok(!urgent({ spent: 4 }) && !urgent({ isShort: true }));
  });
});

/** A server of a budget. */
async function treasury(test: TestContext): Promise<Fake> {
  const server = await Fake.start(test);
  server.budgets.add("tokens");
  return server;
}

describe("a client of a budget", () => {
  it("spends its allowance and no more", async (test) => {
    const server = await treasury(test);
    const client = new Client(server.address);
    const tokens = client.budget("tokens");
    assert.ok(!tokens.trySpend(1) && tokens.period === undefined, "no lease yet");
    await tokens.spend(7, { timeoutMs: 20_000 });
    assert.deepEqual(tokens.period, { start: new Date(3_600_000), end: new Date(7_200_000) });
    assert.ok(!tokens.trySpend(4) && tokens.trySpend(1));
    const again = client.budget("tokens");
    assert.deepEqual([again.spent, again.left], [8, 2], "handles share one book");
    for (const bad of [-1, Number.NaN, 1e16]) assert.throws(() => tokens.trySpend(bad), RangeError);
    assert.throws(() => client.rate("tokens"), OpenError);
    again.close();
    tokens.close();
    await assert.rejects(tokens.spend(0), ClosedError);
    await eventually(() => server.released.length === 1, "a release");
    await client.close();
  });

  it("settles reservations once, and owes what they exceed the allowance by", async (test) => {
    const server = await treasury(test);
    const client = new Client(server.address);
    const tokens = client.budget("tokens");
    const reservation = await tokens.reserve(7, { timeoutMs: 20_000 });
    assert.deepEqual([reservation.reserved, tokens.spent], [7, 7]);
    assert.equal(tokens.tryReserve(4), undefined);
    const small = tokens.tryReserve(3);
    assert.ok(small !== undefined);
    for (const bad of [-1, Number.NaN, 1e16]) assert.throws(() => reservation.settle(bad), RangeError);
    reservation.settle(2.5);
    reservation.settle(0);
    assert.deepEqual([tokens.spent, tokens.left], [5.5, 4.5]);
    small[Symbol.dispose]();
    small.settle(0);
    assert.equal(tokens.spent, 5.5, "it was spent in full");
    for (const bad of [-1, Number.NaN, 1e16]) assert.throws(() => tokens.charge(bad), RangeError);
    tokens.charge(1);
    (await tokens.reserve(1)).settle(5);
    assert.deepEqual([tokens.spent, tokens.owed, tokens.left], [10, 1.5, 0]);
    assert.ok(!tokens.trySpend(0) && tokens.tryReserve(0) === undefined);
    server.capacity = 20;
    const waiting = tokens.reserve(2, { timeoutMs: 20_000 });
    assert.equal((await waiting).reserved, 2);
    assert.deepEqual([tokens.spent, tokens.owed], [13.5, 0]);
    await client.close();
  });

  it("reports all that was spent although a listener closes the client meanwhile", async (test) => {
    const server = await treasury(test);
    const client = new Client(server.address);
    const tokens = client.budget("tokens");
    await tokens.spend(7, { timeoutMs: 20_000 });
    let closed: Promise<void> | undefined;
    tokens.onChange(() => {
      closed ??= client.close();
    });
    tokens.close();
    await closed;
    assert.deepEqual([server.released, server.spent], [["tokens"], [7]]);
  });

  it("charges nothing after the close, and says so", async (test) => {
    const server = await treasury(test);
    const client = new Client(server.address);
    const tokens = client.budget("tokens");
    const [less, more] = [await tokens.reserve(3, { timeoutMs: 20_000 }), await tokens.reserve(4)];
    const several = await client.limits(tokens.of(1)).reserve();
    await client.close();
    assert.throws(() => tokens.charge(1), ClosedError);
    less.settle(1);
    assert.throws(() => more.settle(5), ClosedError);
    several.settle(0);
    assert.deepEqual([tokens.spent, tokens.owed, server.spent], [8, 0, [8]], "it is the last report");
  });

  it("keeps a budget open while reservations are not settled", async (test) => {
    const server = await treasury(test);
    const client = new Client(server.address);
    const tokens = client.budget("tokens");
    const reservation = await tokens.reserve(7, { timeoutMs: 20_000 });
    const small = tokens.tryReserve(1);
    const waiting = assert.rejects(tokens.reserve(7), ClosedError);
    await assert.rejects(tokens.reserve(7, { timeoutMs: 20 }), TimeoutError);
    tokens.close();
    await waiting;
    assert.equal(tokens.tryReserve(1), undefined);
    await assert.rejects(tokens.reserve(1), ClosedError);
    const spent = () => {
      const again = client.budget("tokens");
      try {
        return again.spent;
      } finally {
        again.close();
      }
    };
    assert.equal(spent(), 8);
    reservation.settle(2);
    assert.equal(spent(), 3);
    assert.equal(server.released.length, 0);
    small?.settle(0);
    await eventually(() => server.released.length === 1, "a release");
    await client.close();
  });

  it("settles and owes with a server, and spends no more than the budget", { skip }, async (test) => {
    const budget = template({ kind: "BUDGET", lease: 10 });
    const server = await Server.start([`${budget}    parameters: {period: none}\n`]);
    test.after(() => server.kill());
    const [first, second] = [new Client(server.address), new Client(server.address)];
    const [tokens, others] = [first.budget("tokens"), second.budget("tokens")];
    const reservation = await tokens.reserve(60, { timeoutMs: 20_000 });
    await assert.rejects(others.spend(50, { timeoutMs: 1_500 }), TimeoutError);
    reservation.settle(20.5);
    tokens.charge(29.5);
    assert.deepEqual([tokens.spent, tokens.owed], [50, 0], "charged to what was taken back");
    tokens.charge(20);
    assert.ok(tokens.owed > 0 && tokens.left === 0, `${tokens.owed}`);
    await eventually(() => tokens.owed === 0, "the next allowance pays");
    assert.equal(tokens.spent, 70);
    await others.spend(30, { timeoutMs: 20_000 });
    for (const client of [tokens, others]) await assert.rejects(client.reserve(1, { timeoutMs: 1_500 }), TimeoutError);
    await Promise.all([first.close(), second.close()]);
  });

  it("spends a budget of a server, and no more", { skip }, async () => {
    const budget = template({ kind: "BUDGET", lease: 10 });
    const server = await Server.start([`${budget}    parameters: {period: none}\n`]);
    const client = new Client(server.address);
    const tokens = client.budget("tokens");
    for (let n = 0; n < 10; n += 1) await tokens.spend(10, { timeoutMs: 20_000 });
    await assert.rejects(tokens.spend(1, { timeoutMs: 1_500 }), TimeoutError);
    assert.deepEqual([tokens.spent, tokens.left], [100, 0]);
    await client.close();
    await server.kill();
  });
});
