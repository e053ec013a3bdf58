/** Budgets: the book and its queue in virtual time, the messages, and a client with a server. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

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
    book.take(allowance(1n, 10), two);
    const spent = [7, 4, 3, 0.0001, 0].map((amount) => book.spend(0, amount));
    assert.deepEqual(spent, [true, false, true, false, true]);
    book.take(allowance(2n, 12), two);
    assert.deepEqual([book.left(END - 1), book.left(END), book.spend(END, 1)], [2, 0, false]);
    book.take(allowance(3n, 5), two);
    assert.deepEqual([book.left(0), book.spent, book.spend(0, 1)], [0, 10, false], "it has spent more");
  });

  it("begins with nothing spent in another period and as another incarnation", () => {
    const book = new BudgetBook(0, 1n);
    book.take(allowance(1n, 10), two);
    assert.ok(book.spend(0, 7));
    book.take(allowance(2n, 4, 2_000n), two);
    const report = { spent: 0, period: 2_000n, incarnation: 1n, need: 0, token: 2n, isShort: false };
    assert.deepEqual(book.wants(0).spent, report);
    assert.ok(!book.spend(0, 5) && book.spend(0, 3));
    assert.ok(!book.take(allowance(2n, 4, 2_000n), two) && book.left(0) === 1, "the same lease changes nothing");
    assert.ok(book.take(allowance(3n, 0, 2_000n, true), two), "it asks at once");
    assert.deepEqual(book.wants(0).spent, { ...report, incarnation: 2n, token: undefined });
    assert.ok(!book.spend(0, 1));
  });

  it("adds small amounts up exactly", () => {
    const book = new BudgetBook(0, 1n);
    book.take(allowance(1n, 1), two);
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
    book.take(allowance(1n, 1e6), two);
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
    assert.ok(!spender.trySpend(1), "others wait");
    spender.take(allowance(2n, 10));
    spender.take(allowance(3n, 11));
    await Promise.all(spends);
    assert.deepEqual([served, spender.spent, spender.left, waiting], [[10, 1], 11, 0, [true, false]]);
  });

  it("have spent nothing when their wait ends", async () => {
    const time = new VirtualTime();
    const spender = new Spender(time);
    spender.take(allowance(1n, 5));
    const abort = new AbortController();
    const waits = [spender.spend(6, { signal: abort.signal }), spender.spend(7, { timeoutMs: 100 })];
    const last = spender.spend(5);
    abort.abort(new Error("enough"));
    await assert.rejects(waits[0] as Promise<void>, /enough/);
    const late = assert.rejects(waits[1] as Promise<void>, TimeoutError);
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

describe("a client of a budget", () => {
  it("spends its allowance and no more", async (test) => {
    const server = await Fake.start(test);
    server.answer = (request) => {
      const { response, problem } = server.grant(request);
      const budget = { periodStart: 3_600n, periodEnd: 7_200n };
      return { response: response.map((one) => ({ ...one, budget })), problem };
    };
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
