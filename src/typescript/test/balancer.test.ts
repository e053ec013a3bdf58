/** Load balancing across backends. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it, type TestContext } from "node:test";

import { Balanced, Balancer, Client, ClosedError, OpenError, type Rate, TimeoutError } from "../src/index.js";
import { Fake } from "./fake.js";
import { eventually, Server, skip, template } from "./server.js";

const TESTDATA = new URL("../../../go/internal/balancer/testdata/", import.meta.url);

// The files describe their fields. The Rust, the Go and the Python client replay them, too.
const { scenarios } = JSON.parse(readFileSync(new URL("balancer.json", TESTDATA), "utf8"));
const { vectors } = JSON.parse(readFileSync(new URL("byrequests.json", TESTDATA), "utf8"));

function picks(balancer: Balancer<string>, count: number): string {
  return Array.from({ length: count }, () => balancer.pick()?.backend ?? "-").join("");
}

interface Scenario {
  readonly name: string;
  readonly weights?: number[];
  readonly capacities?: number[];
  readonly retry?: number;
  // biome-ignore lint/suspicious/noExplicitAny: read from JSON
  readonly steps: any[][];
}

function replay({ weights, capacities = [], retry = 60, steps }: Scenario): void {
  let now = 1_000;
  const names = [..."abcdefgh"].slice(0, (weights ?? capacities).length);
  const balancer = new Balancer(names, weights, { retryMs: retry * 1_000, now: () => now });
  capacities.forEach((capacity, index) => {
    balancer.setCapacity(index, capacity);
  });
  for (const [op, first, second, third] of steps) {
    const index = names.indexOf(first);
    const asked: string[] = [];
    const what = `${op} ${first}`;
    const act: Record<string, () => void> = {
      pick: () => assert.equal(picks(balancer, first.length), first, what),
      where: () => {
        const pick = balancer.pickWhere((name) => {
          asked.push(name);
          return !first.includes(name);
        });
        assert.deepEqual([asked.join(""), pick?.backend ?? "-"], [second, third], what);
      },
      sticky: () => assert.equal(balancer.pickSticky(index) !== undefined, second, what),
      capacity: () => balancer.setCapacity(index, second === "unlimited" ? Number.POSITIVE_INFINITY : second),
      weight: () => balancer.setWeight(index, second),
      pause: () => balancer.pause(index),
      resume: () => balancer.resume(index),
      fail: () => balancer.failed(index),
      advance: () => {
        now += first;
      },
      enabled: () => assert.equal(names.filter((_, index) => balancer.isEnabled(index)).join(""), first, what),
      next_retry: () => assert.equal(balancer.nextRetryMs() ?? null, first, what),
    };
    assert.ok(act[op] !== undefined, what);
    act[op]();
  }
}

interface Vector {
  readonly id: string;
  readonly members: { readonly name: string; readonly lbfactor: number; readonly enabled?: boolean }[];
  readonly initial_lbstatus?: object;
  readonly picks_count: number;
  readonly picks?: (string | null)[];
  readonly first_picks?: (string | null)[];
  readonly counts: Record<string, number>;
  readonly events?: { readonly before_pick: number; readonly op: string; readonly member: string }[];
}

/** Whether a balancer has all operations of a vector. */
function isReplayable({ events = [], initial_lbstatus }: Vector): boolean {
  return initial_lbstatus === undefined && events.every(({ op }) => ["disable", "enable", "force"].includes(op));
}

function replayVector({ members, picks_count, picks, first_picks, counts, events = [] }: Vector): void {
  const names = members.map(({ name }) => name);
  const balancer = new Balancer(
    names,
    members.map(({ lbfactor }) => lbfactor),
  );
  members.forEach(({ enabled }, index) => {
    if (enabled === false) balancer.pause(index);
  });
  const picked: (string | null)[] = [];
  for (let number = 0; number < picks_count; number += 1) {
    let forced: number | undefined;
    for (const { op, member } of events.filter(({ before_pick }) => before_pick === number)) {
      const index = names.indexOf(member);
      if (op === "force") forced = index;
      else if (op === "enable") balancer.resume(index);
      else balancer.pause(index);
    }
    picked.push((forced === undefined ? balancer.pick() : balancer.pickSticky(forced))?.backend ?? null);
  }
  const expected = first_picks ?? picks ?? [];
  assert.deepEqual(picked.slice(0, expected.length), expected);
  for (const [name, count] of Object.entries(counts)) {
    assert.equal(picked.filter((other) => other === name).length, count, name);
  }
}

describe("a balancer", () => {
  for (const scenario of scenarios as Scenario[]) it(scenario.name, () => replay(scenario));

  it("reproduces the documented vectors", () => {
    const replayable = (vectors as Vector[]).filter(isReplayable);
    assert.ok(replayable.length >= 15, `${replayable.length}`);
    replayable.forEach(replayVector);
  });

  it("rejects invalid arguments, and throws what a predicate throws", () => {
    const balancer = new Balancer("ab", [2, 1]);
    assert.throws(() => new Balancer("ab", [1]), /1 weights for 2 backends/);
    assert.throws(() => new Balancer("ab", [1, 1.5]), /weight 1.5/);
    assert.throws(() => new Balancer("ab", [1, 1], { retryMs: Number.NaN }), /retryMs/);
    assert.throws(() => balancer.pause(2), /there are 2 backends/);
    assert.throws(() => {
      balancer.pickWhere(() => {
        throw new Error("on purpose");
      });
    }, /on purpose/);
    balancer.setCapacity(0, Number.NaN);
    assert.equal(balancer.isEnabled(0), false);
    balancer.setWeight(0, 2);
    assert.equal(picks(balancer, 6), "abaaba");
  });

  it("lets a predicate use it", () => {
    const balancer = new Balancer("ab", [1, 1]);
    const pick = balancer.pickWhere((name) => {
      if (name === "a") balancer.pause(0);
      return true;
    });
    assert.equal(pick?.backend, "b");
  });
});

/** Balances across rates that want 1000 each. */
function balanced(client: Client, names: string[], retryMs?: number): Balanced {
  return new Balanced(
    names.map((name) => client.rate(name, { wants: 1_000 })),
    { retryMs },
  );
}

async function turns(search: Balanced, count: number): Promise<string> {
  let picked = "";
  for (let n = 0; n < count; n += 1) picked += (await search.acquire({ timeoutMs: 20_000 })).backend.id.slice(-1);
  return picked;
}

async function fake(test: TestContext, capacity: number, options = {}): Promise<[Fake, Client]> {
  const server = await Fake.start(test);
  Object.assign(server, { capacity, refresh: 1n });
  const client = new Client({ servers: server.address, ...options });
  test.after(() => client.close());
  return [server, client];
}

describe("balanced rates", () => {
  it("follow the leases", { skip }, async (test) => {
    const server = await Server.start([template({ glob: "a", capacity: 700 }), template({ glob: "b", capacity: 300 })]);
    test.after(() => server.kill());
    const client = new Client(server.address);
    const search = balanced(client, ["a", "b"]);
    await client.ready();
    assert.equal(await turns(search, 20), "abaaabaabaabaaabaaba");
    (await search.acquire()).failed();
    assert.equal(await turns(search, 5), "bbbbb");
    search.failed(1);
    // Without a backend, callers wait until the client is closed.
    const waiting = assert.rejects(search.acquire(), ClosedError);
    await client.close();
    await waiting;
  });

  it("are left by callers when they lose their lease", async (test) => {
    const [first, slow] = await fake(test, 0.001, { mode: "pessimistic" });
    const [second, other] = await fake(test, 0, { mode: "pessimistic" });
    const search = new Balanced([slow.rate("a", { wants: 1_000 }), other.rate("b", { wants: 1_000 })]);
    await eventually(() => search.balancer.isEnabled(0), "a lease");
    const waiting = search.acquire();
    const [rate] = search.balancer.backends as [Rate, Rate];
    assert.equal(rate.waiting, 1);
    first.capacity = 0;
    await eventually(() => !search.balancer.isEnabled(0), "the lease is cut");
    assert.equal(rate.waiting, 0);
    second.capacity = 1_000;
    assert.equal((await waiting).backend.id, "b");
  });

  it("are waited for until a back-off or a pause ends", async (test) => {
    const [, client] = await fake(test, 1_000);
    const search = balanced(client, ["a"], 50);
    await client.ready();
    search.failed(0);
    assert.equal(await turns(search, 1), "a");
    search.balancer.pause(0);
    await assert.rejects(search.acquire({ timeoutMs: 20 }), TimeoutError);
    await assert.rejects(search.acquire({ signal: AbortSignal.abort(new Error("given up")) }), /given up/);
    const waiting = search.acquire({ timeoutMs: 20_000, signal: new AbortController().signal });
    search.balancer.resume(0);
    assert.equal((await waiting).backend.id, "a");
  });

  it("are waited for even if the back-off ends while the wait begins", async (test) => {
    const [, client] = await fake(test, 1_000);
    const rate = client.rate("a", { wants: 1_000 });
    await client.ready();
    // Time passes between two reads of the clock, as when a process is preempted.
    for (const step of [7, 10, 14, 20, 26, 33, 49]) {
      let now = 0;
      const search = new Balanced([rate], {
        retryMs: 50,
        now: () => {
          now += step;
          return now;
        },
      });
      search.failed(0);
      assert.equal((await search.acquire({ timeoutMs: 5_000 })).backend.id, "a", `${step}`);
    }
  });

  it("are left in time even if a permit is gone when it is taken", async (test) => {
    const [, client] = await fake(test, 0.001);
    const search = balanced(client, ["a"]);
    await client.ready();
    // As if the lease had ended since.
    Object.defineProperty(search.balancer.backends[0], "available", { value: 1 });
    await assert.rejects(search.acquire({ timeoutMs: 20 }), TimeoutError);
  });

  it("end waits when they are closed, and release their leases", async (test) => {
    const [server, client] = await fake(test, 0.001);
    const search = balanced(client, ["a"]);
    await client.ready();
    const keeper = client.rate("a");
    const waiting = search.acquire();
    search.close();
    search.close();
    await assert.rejects(waiting, ClosedError);
    await assert.rejects(search.acquire(), ClosedError);
    keeper.close();
    await eventually(() => server.released.includes("a"), "the lease is released");
  });

  it("end waits when the client is closed before their first lease", async (test) => {
    const [server, client] = await fake(test, 1);
    server.answer = () => undefined;
    const search = balanced(client, ["a", "b"]);
    const waiting = assert.rejects(search.acquire(), ClosedError);
    await client.close();
    await waiting;
  });

  it("need wants", async (test) => {
    const [, client] = await fake(test, 1);
    assert.throws(() => new Balanced([client.rate("r")]), OpenError);
  });
});
