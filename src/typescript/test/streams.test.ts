/** Renewal by a stream, in virtual time. The rules are those of src/client/session/tests/streams.rs. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Client } from "../src/index.js";
import {
  DEFAULT_PACE,
  type Given,
  type Outgoing,
  Session,
  type StreamReply,
  type StreamRequest,
  seeded,
  type Wants,
} from "../src/session.js";
import { Fake } from "./fake.js";
import { eventually, freeAddress, Server, skip, sleep, template } from "./server.js";

function newSession(...endpoints: string[]): Session {
  return new Session({ endpoints, pace: { ...DEFAULT_PACE }, resourcesPerRequest: 1000, random: seeded(7) });
}

function wants(amount: number, other: Partial<Wants> = {}): Wants {
  return { amount, priority: 0, outstanding: 0, usage: undefined, ...other };
}

/** A lease of a minute, with a refresh interval of five seconds. */
function given(capacity: number, token: number): Given {
  const wire = { expiryTime: 60n, refreshInterval: 5n, capacity };
  return { id: "", length: 60_000, refresh: 5_000, token: BigInt(token), wire, safe: 1.5 };
}

function reply(other: Partial<StreamReply> = {}): StreamReply {
  return { unix: 0n, granted: [], leftOut: [], restart: false, ...other };
}

function poll(session: Session, at: number): Outgoing {
  const outgoing = session.poll(at);
  assert.ok(outgoing, `a request is due at ${at}`);
  return outgoing;
}

function message(session: Session, at: number): [number, StreamRequest] {
  const { number, body } = poll(session, at);
  assert.ok("stream" in body, JSON.stringify(Object.keys(body)));
  return [number, body.stream];
}

/** A session that renews resources by a stream, each with a lease of 10 and the token index + 1, given at 10 ms. */
function streaming(...names: string[]): Session {
  const session = newSession("a:1", "b:1");
  session.offerStream(session.target, 1);
  for (const name of names) session.want(0, name, wants(10), "safe");
  const [number, request] = message(session, 0);
  assert.deepEqual([request.sequence, request.renewed], [1, []]);
  const granted = request.stated.map(({ index }) => ({ index, given: given(10, index + 1) }));
  assert.deepEqual(session.streamAnswered(10, number, reply({ granted })), names);
  return session;
}

/** What a message states, as INDEX:ID:TOKEN with the token of the live lease, and what it renews, as FIRST+COUNT. */
function sends({ stated, renewed }: StreamRequest): string {
  const states = stated.map(({ index, ask }) => `${index}:${ask.id}:${ask.has?.token ?? 0}`);
  return [...states, ...renewed.map(({ first, count }) => `${first}+${count}`)].join(" ");
}

function end(session: Session, at: number, name: string): number | undefined {
  return session.lease(at, name)?.end;
}

describe("a stream of renewals", () => {
  it("renews what stays by its index, from when the message was sent", () => {
    const session = streaming("r", "s", "t");
    const [number, request] = message(session, 5_000);
    assert.deepEqual([request.sequence, sends(request)], [2, "0+3"]);
    assert.deepEqual(session.streamAnswered(5_040, number, reply({ unix: 105n })), ["r", "s", "t"]);
    const lease = session.lease(5_040, "s");
    assert.deepEqual([lease?.end, lease?.token, lease?.wire.expiryTime], [65_000, 2n, 165n]);
    const wake = session.wake(5_040) ?? 0;
    assert.ok(wake >= 9_500 && wake <= 10_040, `${wake}`);
  });

  it("states a changed demand, and renews the others", () => {
    const session = streaming("r", "s", "t");
    session.want(4_000, "s", wants(10.5), "safe");
    const [number, request] = message(session, 5_000);
    assert.equal(sends(request), "1:s:2 0+1 2+1");
    session.streamAnswered(5_040, number, reply({ granted: [{ index: 1, given: given(10.5, 9) }] }));
    assert.equal(session.lease(5_040, "s")?.capacity, 10.5);
    assert.equal(end(session, 5_040, "r"), 65_000);
    assert.equal(sends(message(session, 10_000)[1]), "0+3");
  });

  it("states what is outstanding or used, and does not renew others with an urgent change", () => {
    const session = streaming("r", "s", "t");
    const usage = { recharging: 0, units: 0, intervalMs: 0, counters: { at: 0, taken: 0, rechargingMs: 0 } };
    session.want(1_000, "t", wants(100), "safe");
    const [number, urgent] = message(session, 1_000);
    assert.equal(sends(urgent), "2:t:3");
    session.streamAnswered(1_010, number, reply({ granted: [{ index: 2, given: given(10, 4) }] }));
    session.want(4_000, "r", wants(10, { usage }), "safe");
    session.want(5_500, "t", wants(100, { outstanding: 0.5 }), "safe");
    assert.equal(sends(message(session, 5_500)[1]), "0:r:1 2:t:4 1+1");
  });

  it("states a cut lease although the demand is the same", () => {
    const session = streaming("r", "s");
    const cut = (token: number) => reply({ granted: [{ index: 0, given: given(4, token) }] });
    session.streamAnswered(5_040, message(session, 5_000)[0], cut(9));
    const [number, confirmation] = message(session, 5_140);
    assert.equal(sends(confirmation), "0:r:9");
    session.streamAnswered(5_150, number, cut(10));
    assert.equal(sends(message(session, 10_000)[1]), "0+2");
  });

  it("leaves out what was left out, and states it again", () => {
    const session = streaming("r", "s");
    session.streamAnswered(5_040, message(session, 5_000)[0], reply({ leftOut: [1, 7] }));
    assert.deepEqual([end(session, 5_040, "r"), end(session, 5_040, "s")], [65_000, 60_000]);
    assert.equal(sends(message(session, 10_000)[1]), "1:s:2 0+1");
  });

  it("ignores a grant that the message did not ask for, and states the lease that is held", () => {
    const session = streaming("r", "s", "t");
    session.want(1_000, "s", wants(100), "safe");
    const [number, request] = message(session, 1_000);
    assert.equal(sends(request), "1:s:2");
    const granted = [0, 1, 7, 2 ** 32, 2 ** 53].map((index) => ({ index, given: given(90, 8 + index) }));
    assert.deepEqual(session.streamAnswered(1_010, number, reply({ granted })), ["s"]);
    assert.deepEqual([session.lease(1_010, "r")?.capacity, end(session, 1_010, "r")], [10, 60_000]);
    assert.equal(session.lease(1_010, "s")?.capacity, 90);
    assert.equal(sends(message(session, 5_100)[1]), "0:r:1 1+2");
  });

  it("releases the lease that a renewal got after its resource was closed", () => {
    const session = streaming("r", "s");
    const [number, request] = message(session, 5_000);
    assert.equal(sends(request), "0+2");
    session.release("s");
    session.streamAnswered(5_010, number, reply({ granted: [{ index: 1, given: given(20, 9) }] }));
    const { body } = poll(session, 5_010);
    assert.ok("releases" in body && body.releases[0]?.token === 9n);
  });

  it("does not count a renewal that is answered after the end of the lease", () => {
    const session = streaming("r");
    assert.deepEqual(session.streamAnswered(60_500, message(session, 58_000)[0], reply()), []);
    assert.equal(session.lease(60_500, "r"), undefined);
    const [, request] = message(session, 60_500);
    assert.deepEqual([sends(request), request.stated[0]?.ask.had?.token], ["0:r:0", 1n]);
  });

  it("states everything on another stream after a restart", () => {
    const session = streaming("r", "s");
    const [number, before] = message(session, 5_000);
    assert.deepEqual(session.streamAnswered(5_010, number, reply({ restart: true })), []);
    const [, request] = message(session, 5_010);
    assert.ok(request.stream > before.stream && request.sequence === 1);
    assert.equal(sends(request), "0:r:1 1:s:2");
    assert.equal(end(session, 5_010, "r"), 60_000, "the lease is used meanwhile");
  });

  it("is given up after a lost answer, and an answer that comes later does not count", () => {
    const session = streaming("r");
    const [number, before] = message(session, 5_000);
    session.offerStream("b:1", 1);
    session.offerStream("a:1", 1);
    assert.equal(session.poll(8_000), undefined);
    assert.equal(session.streamAnswered(8_001, number, reply()), undefined);
    assert.equal(end(session, 8_001, "r"), 60_000);
    const [, request] = message(session, session.wake(8_001) ?? 0);
    assert.ok(request.stream > before.stream && request.sequence === 1);
  });

  it("is replaced by requests at once if it is refused, for ten minutes", () => {
    const session = newSession("a:1");
    session.offerStream("a:1", 1);
    session.want(0, "r", wants(10), "safe");
    assert.ok(session.streamRefused(5, message(session, 0)[0]));
    let at = 5;
    while (at < 600_000) {
      const { number, body } = poll(session, at);
      assert.ok("asks" in body && session.failures === 0, `at ${at}`);
      session.answered(at, number, [{ ...given(10, at), id: "r" }]);
      at = session.wake(at) ?? 0;
    }
    assert.equal(message(session, Math.max(at, 600_005))[1].sequence, 1);
  });

  it("is tried at once at a server other than the one that refused", () => {
    const session = newSession("a:1");
    for (const server of ["a:1", "b:1"]) session.offerStream(server, 1);
    session.want(0, "r", wants(10), "safe");
    assert.ok(session.streamRefused(5, message(session, 0)[0]));
    assert.ok(session.redirected(10, poll(session, 5).number, "b:1"));
    const [number, request] = message(session, 10);
    assert.deepEqual([session.target, request.sequence], ["b:1", 1]);
    assert.ok(session.redirected(20, number, "a:1"));
    session.offerStream("a:1", 1);
    const { number: asked, body } = poll(session, 20);
    assert.ok("asks" in body, "another offer does not end the pause");
    session.redirected(30, asked, "a:1");
    assert.ok("asks" in poll(session, session.wake(30) ?? 0).body);
  });

  it("is tried again at a server that knew no master", () => {
    const session = newSession("a:1");
    session.offerStream("a:1", 1);
    session.want(0, "r", wants(10), "safe");
    const [number, before] = message(session, 0);
    assert.ok(session.redirected(5, number, undefined));
    const [, request] = message(session, session.wake(5) ?? 0);
    assert.ok(request.stream > before.stream && request.sequence === 1);
  });

  it("is replaced by requests if its first message is not answered, or for few resources", () => {
    const session = newSession("a:1");
    session.offerStream("a:1", 1);
    session.want(0, "r", wants(10), "safe");
    message(session, 0);
    assert.equal(session.poll(3_000), undefined);
    assert.ok("asks" in poll(session, session.wake(3_000) ?? 0).body);
    const other = newSession("a:1");
    other.offerStream("a:1", 2);
    other.want(0, "r", wants(10), "safe");
    assert.ok("asks" in poll(other, 0).body);
  });

  it("does not use the index of a released resource again", () => {
    const session = streaming("r", "s", "t");
    session.release("s");
    const release = poll(session, 1_000);
    assert.ok("releases" in release.body);
    session.answered(1_010, release.number, []);
    session.want(1_100, "s", wants(10), "safe");
    const [number, request] = message(session, 1_200);
    assert.equal(sends(request), "3:s:0");
    session.streamAnswered(1_210, number, reply({ leftOut: [3] }));
    assert.match(sends(message(session, 5_000)[1]), /0\+1 2\+1$/);
  });

  it("ends with a redirect", () => {
    const session = streaming("r");
    assert.ok(session.redirected(5_010, message(session, 5_000)[0], "c:1"));
    const { target, body } = poll(session, 5_010);
    assert.equal(target, "c:1");
    assert.ok("asks" in body && body.asks[0]?.has?.token === 1n);
  });
});

/** Opens 150 rates, and waits for their leases. */
async function manyRates(client: Client) {
  const rates = Array.from({ length: 150 }, (_, n) => client.rate(`r${n}`, { wants: 10 }));
  await client.ready(20_000);
  return rates;
}

/** The number of the stream on which a client renews its leases. */
function streamOf(client: Client): number | undefined {
  return (client as unknown as { driver: { session: Session } }).driver.session.streamNumber;
}

describe("a client with many leases", () => {
  it("uses requests behind a proxy that does not pass streams", async (test) => {
    const server = await Fake.start(test);
    server.refresh = 1n;
    server.peers = () => ({ isMaster: true, endpoint: [], renewsByStream: true });
    const client = new Client(server.address);
    await manyRates(client);
    const before = server.asked;
    await eventually(() => server.asked >= before + 4, "refreshes");
    assert.deepEqual([streamOf(client), client.health().failures], [undefined, 0]);
    await client.close();
  });

  it("renews them by a stream, also after a restart of the server", { skip }, async () => {
    const address = await freeAddress();
    const start = () => Server.start([template({ lease: 20 })], ["--listen", address]);
    let server = await start();
    const client = new Client(server.address);
    const rates = await manyRates(client);
    const all = (leftMs: number) => rates.every(({ lease }) => lease?.capacity === 10 && lease.leftMs >= leftMs);
    await eventually(() => streamOf(client) !== undefined, "a stream");
    const stream = streamOf(client) ?? 0;
    await sleep(5_000);
    await eventually(() => all(15_000), "all leases are renewed");
    assert.equal(streamOf(client), stream);
    rates[7]?.setWants(20);
    await eventually(() => rates[7]?.capacity === 20, "the changed demand is met");
    rates[7]?.setWants(10);
    await server.kill();
    server = await start();
    await eventually(() => (streamOf(client) ?? 0) > stream, "another stream");
    await sleep(5_000);
    await eventually(() => all(15_000), "all leases are renewed");
    await client.close();
    await server.kill();
  });
});
