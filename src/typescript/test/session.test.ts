/** The rules of a session one by one, in virtual time. They are those of src/client/session/tests.rs. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { type Ask, DEFAULT_PACE, type Given, type Outgoing, Session, seeded, type Wants } from "../src/session.js";

/** The expiry of the lease of `leased`. */
const END = 60_000;

function newSession(endpoints: string[], resourcesPerRequest = 1000): Session {
  return new Session({ endpoints, pace: { ...DEFAULT_PACE }, resourcesPerRequest, random: seeded(7) });
}

function wants(amount: number): Wants {
  return { amount, priority: 0, outstanding: 0, usage: undefined };
}

/** A lease of a minute, with a refresh interval of five seconds and a safe capacity of 1.5. */
function given(id: string, capacity: number, token: number | undefined, other: Partial<Given> = {}): Given {
  const wire = { expiryTime: 60n, refreshInterval: 5n, capacity };
  const name = token === undefined ? undefined : BigInt(token);
  return { id, length: 60_000, refresh: 5_000, token: name, wire, safe: 1.5, ...other };
}

function poll(session: Session, at: number): Outgoing {
  const outgoing = session.poll(at);
  assert.ok(outgoing !== undefined, `a request is due at ${at}`);
  return outgoing;
}

function asks({ body }: Outgoing): readonly Ask[] {
  assert.ok("asks" in body, "a release");
  return body.asks;
}

function released({ body }: Outgoing): [string, bigint | undefined][] {
  assert.ok("releases" in body, "no release");
  return body.releases.map(({ id, token }) => [id, token]);
}

function named(outgoing: Outgoing): [bigint | undefined, bigint | undefined] {
  const [ask] = asks(outgoing);
  return [ask?.has?.token, ask?.had?.token];
}

function wake(session: Session, now: number): number {
  const at = session.wake(now);
  assert.ok(at !== undefined, "a wake-up");
  return at;
}

function asking(): [Session, number] {
  const session = newSession(["a:1"]);
  session.want(0, "r", wants(100), "safe");
  return [session, poll(session, 0).number];
}

/** A session that received a lease of 40 at 10 ms, for a request sent at time 0. */
function leased(): Session {
  const [session, number] = asking();
  assert.ok(session.answered(10, number, [given("r", 40, 1)]));
  return session;
}

function refreshing(at: number): [Session, number] {
  const session = leased();
  session.hint(at, "r");
  const outgoing = poll(session, at);
  assert.deepEqual(named(outgoing), [1n, undefined]);
  return [session, outgoing.number];
}

const capacity = (session: Session, at: number) => session.usable(at, "r")?.capacity;

describe("when requests are sent", () => {
  it("a new resource is asked for at once and refreshed after its interval", () => {
    const session = leased();
    assert.equal(session.poll(10), undefined);
    const at = wake(session, 10);
    assert.ok(at >= 4_500 && at <= 5_010, `${at}`);
    assert.equal(session.poll(at - 1), undefined);
    const refresh = poll(session, at);
    assert.deepEqual(named(refresh), [1n, undefined]);
    assert.equal(refresh.deadline, at + 3_000);
  });

  it("one request asks for all resources when the first is due", () => {
    const session = newSession(["a:1"]);
    for (const id of ["a", "b", "c"]) session.want(0, id, wants(1), "safe");
    const first = poll(session, 0);
    assert.equal(asks(first).length, 3);
    const slow = (id: string) => given(id, 1, 1, { refresh: 50_000 });
    session.answered(1, first.number, [slow("a"), given("b", 1, 2), slow("c")]);
    const at = wake(session, 1);
    assert.ok(at <= 5_001, "the shortest interval counts");
    assert.equal(asks(poll(session, at)).length, 3);
  });

  it("the resources that waited longest go into the request first", () => {
    const session = newSession(["a:1"], 1);
    for (const [at, id] of [...["z", "m", "a"].entries()]) session.want(at, id, wants(1), "safe");
    const order: string[] = [];
    for (let n = 0; n < 3; n += 1) {
      const outgoing = poll(session, 3);
      const id = asks(outgoing)[0]?.id ?? "";
      order.push(id);
      session.answered(3, outgoing.number, [given(id, 1, 1)]);
    }
    assert.deepEqual(order, ["z", "m", "a"]);
  });

  it("a change of demand by more than a tenth is sent at once", () => {
    const session = leased();
    session.want(1_000, "r", wants(109), "safe");
    assert.equal(session.poll(1_000), undefined);
    session.want(1_000, "r", wants(111), "safe");
    assert.equal(asks(poll(session, 1_000))[0]?.demand.amount, 111);
  });

  it("a hint during a request is followed after its answer, 100 ms after the last request", () => {
    const [session, number] = refreshing(1_000);
    session.hint(1_005, "r");
    session.hint(1_005, "unknown");
    assert.equal(session.poll(1_005), undefined);
    session.answered(1_010, number, [given("r", 40, 2)]);
    assert.equal(session.wake(1_010), 1_100);
  });

  it("a shrunk lease is confirmed after 100 ms if it has a token", () => {
    const [session, number] = refreshing(1_000);
    session.answered(1_010, number, [given("r", 20, 2)]);
    assert.equal(session.wake(1_010), 1_110);
    const confirm = poll(session, 1_110);
    assert.deepEqual(named(confirm), [2n, undefined]);
    session.answered(1_120, confirm.number, []);
    assert.ok(wake(session, 1_120) > 5_000, "confirmed once");
    const [nameless, second] = refreshing(1_000);
    nameless.answered(1_010, second, [given("r", 20, undefined)]);
    assert.ok(wake(nameless, 1_010) > 5_000);
  });
});

describe("where requests go, and what follows a failure", () => {
  it("failures are followed by growing pauses and the next endpoint", () => {
    const session = newSession(["a:1", "b:1"]);
    session.want(0, "r", wants(1), "safe");
    const pauses: number[] = [];
    const targets: string[] = [];
    let now = 0;
    for (let n = 0; n < 14; n += 1) {
      const outgoing = poll(session, now);
      targets.push(outgoing.target);
      assert.ok(session.failed(now, outgoing.number));
      assert.equal(session.poll(now), undefined);
      const at = wake(session, now);
      pauses.push(at - now);
      now = at;
    }
    assert.ok(targets.every((target, n) => n === 0 || target !== targets[n - 1]));
    assert.ok((pauses[0] ?? 0) >= 50 && (pauses[0] ?? 0) <= 100, `${pauses}`);
    assert.ok((pauses[13] ?? 0) >= 1_250 && (pauses[13] ?? 0) <= 2_500, `${pauses}`);
  });

  it("redirects are followed at once but at most five in a row", () => {
    const session = newSession(["a:1"]);
    session.want(0, "r", wants(1), "safe");
    const targets: string[] = [];
    for (let outgoing = session.poll(0); outgoing !== undefined; outgoing = session.poll(0)) {
      targets.push(outgoing.target);
      assert.ok(session.redirected(0, outgoing.number, outgoing.target === "b:1" ? "a:1" : "b:1"));
    }
    assert.deepEqual(targets, ["a:1", "b:1", "a:1", "b:1", "a:1", "b:1"]);
    assert.equal(session.failures, 1);
  });

  it("servers without a master are asked again within a second", () => {
    const session = newSession(["a:1"]);
    session.want(0, "r", wants(1), "safe");
    let now = 0;
    for (let n = 0; n < 20; n += 1) {
      session.redirected(now, poll(session, now).number, undefined);
      const at = wake(session, now);
      assert.ok(at - now <= 1_000);
      now = at;
    }
  });
});

describe("what may be used", () => {
  it("a lease starts when its request was sent", () => {
    const session = newSession(["a:1"]);
    session.want(0, "r", wants(100), "safe");
    session.answered(2_000, poll(session, 100).number, [given("r", 40, 1)]);
    assert.equal(capacity(session, 60_099), 40);
    assert.equal(capacity(session, 60_100), 1.5, "the safe capacity");
  });

  it("the mode decides after the expiry and after a failure", () => {
    const cases = [
      ["safe", 1.5, 0],
      ["pessimistic", 0, 0],
      ["optimistic", 100, 100],
    ] as const;
    for (const [mode, expired, failed] of cases) {
      const session = leased();
      session.want(20, "r", wants(100), mode);
      assert.equal(capacity(session, END - 1), 40);
      assert.equal(capacity(session, END), expired, mode);
      const [other, number] = asking();
      other.want(0, "r", wants(100), mode);
      assert.equal(other.usable(1, "r")?.basis, "unknown");
      other.failed(2, number);
      assert.deepEqual(other.usable(2, "r"), { capacity: failed, basis: "fallback" });
    }
  });

  it("negative grants open nothing and negative safe capacities are unlimited", () => {
    const [session, number] = asking();
    session.answered(1, number, [given("r", -40, 1, { safe: -1 })]);
    assert.equal(capacity(session, 1), 0);
    assert.equal(capacity(session, END), Number.POSITIVE_INFINITY);
  });

  it("changes are reported once and an expiry wakes", () => {
    const session = leased();
    const changes = (at: number) => {
      const reported: number[] = [];
      session.changes(at, (_, usable) => reported.push(usable.capacity));
      return reported;
    };
    assert.deepEqual(changes(10), [40]);
    assert.deepEqual(changes(11), []);
    poll(session, END - 1_000);
    assert.equal(session.wake(END - 1_000), END, "before the deadline of the request");
    assert.deepEqual(changes(END), [1.5]);
  });
});

describe("which answers count", () => {
  it("only the answer to the latest request counts", () => {
    const [session, first] = asking();
    assert.equal(session.poll(3_000), undefined, "abandoned: a pause");
    assert.ok(!session.answered(3_001, first, [given("r", 40, 1)]));
    const second = poll(session, 3_100);
    assert.ok(!session.answered(3_101, first, [given("r", 40, 1)]));
    assert.ok(!session.redirected(3_101, first, "elsewhere:1"));
    assert.equal(session.lease(3_101, "r"), undefined);
    assert.equal(session.inFlight, second.number);
  });

  it("an answer counts only before the expiry of the lease that its request named", () => {
    for (const [at, counts] of [
      [END - 1, true],
      [END, false],
      [END + 1_000, false],
    ] as const) {
      const [session, number] = refreshing(END - 500);
      session.answered(at, number, [given("r", 50, 2)]);
      assert.equal(session.lease(at, "r")?.token, counts ? 2n : undefined, `${at}`);
      if (counts) continue;
      const again = poll(session, Math.max(at, END - 400));
      assert.deepEqual(named(again), [undefined, 1n], "named as expired");
    }
  });
});

describe("releases", () => {
  it("a release names the newest lease and never overtakes a request in flight", () => {
    const [session, number] = refreshing(1_000);
    session.release("r");
    assert.equal(session.poll(1_001), undefined);
    session.answered(1_010, number, [given("r", 40, 2)]);
    const release = poll(session, 1_010);
    assert.deepEqual(released(release), [["r", 2n]]);
    session.answered(1_020, release.number, []);
    assert.ok(session.isIdle());
  });

  it("a lease whose release was sent is not used again", () => {
    const session = leased();
    session.release("r");
    session.failed(20, poll(session, 20).number);
    session.want(30, "r", wants(1), "safe");
    assert.equal(session.usable(30, "r")?.basis, "unknown");
  });
});
