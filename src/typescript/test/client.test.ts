/** A client and a server in one process, which answers as it is told. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Client, ClosedError } from "../src/index.js";
import { Fake } from "./fake.js";
import { eventually, runProgram, sleep } from "./server.js";

describe("a redirect", () => {
  const redirect = (masterAddress: string) => () => ({ response: [], mastership: { masterAddress }, problem: [] });

  it("to a valid address is followed", async (test) => {
    const [follower, master] = [await Fake.start(test), await Fake.start(test)];
    follower.answer = redirect(master.address);
    const client = new Client(follower.address);
    await client.rate("r", { wants: 1 }).ready();
    assert.equal(client.health().server, master.address);
    await client.close();
  });

  for (const address of [
    "not an address",
    "unix:///tmp/leaseway",
    "https://elsewhere:1",
    "a:0",
    "a:b:c",
    "x".repeat(300),
  ]) {
    it(`to ${address.slice(0, 20)} is not followed`, async (test) => {
      const server = await Fake.start(test);
      let redirects = 0;
      server.answer = (request) => {
        redirects += 1;
        return redirects > 3 ? server.grant(request) : redirect(address)();
      };
      const client = new Client(server.address);
      const rate = client.rate("r", { wants: 1 });
      await eventually(() => client.stats().redirects > 0, "a redirect");
      assert.equal(client.health().server, server.address);
      assert.match(client.health().lastError ?? "", /names an invalid master/);
      await rate.ready();
      assert.deepEqual(client.health().endpoints, [server.address]);
      assert.equal(client.stats().requestErrors, 0);
      await client.close();
    });
  }

  it("names no invalid peers", async (test) => {
    const server = await Fake.start(test);
    const endpoint = ["good:1", "bad:0", "https://secured:1", "unix:/tmp/socket", ""];
    server.peers = () => ({ isMaster: true, endpoint });
    const client = new Client(server.address);
    await client.rate("r", { wants: 1 }).ready();
    await eventually(() => client.health().endpoints.length > 1, "peers");
    assert.deepEqual(client.health().endpoints, [server.address, "good:1"]);
    await client.close();
  });
});

describe("a log", () => {
  it("has bounded lines of what servers say, and few of them", async (test) => {
    const server = await Fake.start(test);
    server.refresh = 1n;
    server.lengthMs = 400;
    const lines: string[] = [];
    const client = new Client({ servers: server.address, refreshMinMs: 100, log: (_, line) => lines.push(line) });
    const text = `\u001b[31m\n${"long ".repeat(1_000)}`;
    for (let n = 0; n < 50; n += 1) client.rate(`r${n}`, { wants: 1 });
    await client.ready();
    server.answer = (request) => {
      const response = request.resource.map(() => ({ resourceId: text }));
      return { response, problem: [{ reason: "busy", message: text }] };
    };
    await eventually(() => client.stats().leasesEnded >= 50 && server.asked > 4, "the end of the leases");
    assert.match(client.health().lastError ?? "", /malformed lease for .* and 45 more$/);
    server.answer = () => ({ response: [], problem: [{ reason: "busy", message: text }] });
    await eventually(() => client.health().failures > 4, "failures");
    await client.close();
    assert.ok(lines.every((line) => line.length < 3_500 && !/\p{Cc}/u.test(line)));
    const count = (part: string) => lines.filter((line) => line.includes(part)).length;
    assert.deepEqual([count("malformed"), count("could not be renewed")], [1, 1]);
  });
});

describe("a request for peers", () => {
  it("is repeated soon after a failure", async (test) => {
    const server = await Fake.start(test);
    server.peers = () => undefined;
    const client = new Client({ servers: server.address, deadlineMs: 300 });
    const rate = client.rate("r", { wants: 1 });
    await rate.ready();
    const { driver } = client as unknown as { driver: { discovered: { again: number }; clock: { now(): number } } };
    await eventually(() => driver.discovered.again - driver.clock.now() <= 10_000, "its failure");
    driver.discovered.again = 0;
    server.peers = () => ({ isMaster: true, endpoint: ["peer:1"] });
    rate.setWants(10);
    await eventually(() => client.health().endpoints.length === 2, "its answer");
    await client.close();
  });
});

describe("a closed client", () => {
  it("releases its leases although a refresh fails meanwhile", async (test) => {
    const server = await Fake.start(test);
    const client = new Client({ servers: server.address, deadlineMs: 300 });
    const rate = client.rate("r", { wants: 1 });
    await rate.ready();
    server.answer = () => undefined;
    rate.setWants(10);
    await eventually(() => server.asked === 2, "a refresh");
    await client.close();
    assert.deepEqual(server.released, ["r"]);
  });
});

describe("a closed handle", () => {
  it("is not ready", async (test) => {
    const server = await Fake.start(test);
    server.answer = () => undefined;
    const client = new Client(server.address);
    const jobs = client.gauge("jobs", { wants: 10 });
    const closed = assert.rejects(jobs.ready(60_000), ClosedError);
    const other = client.rate("other", { wants: 10 });
    const all = client.ready(60_000);
    jobs.close();
    await closed;
    await assert.rejects(jobs.ready(60_000), ClosedError);
    other.close();
    await all;
    client.abandon();
  });

  it("keeps the lease of a gauge while its permits are in use", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const jobs = client.gauge("jobs", { wants: 10 });
    const [first, second] = [await jobs.acquire(), jobs.tryAcquire(9)];
    const waiting = assert.rejects(jobs.acquire(), ClosedError);
    jobs.close();
    await waiting;
    first.release();
    await sleep(50);
    assert.deepEqual(server.released, []);
    assert.equal(jobs.capacity, 10);
    assert.equal(jobs.tryAcquire(), undefined, "a closed handle gets no permits");
    await assert.rejects(jobs.acquire(), ClosedError);
    second?.release();
    await eventually(() => server.released.length === 1, "the release");
    first.release();
    await client.close();
  });

  it("a gauge that is opened again counts permits that are still in use", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const before = client.gauge("jobs", { wants: 10 });
    const permit = await before.acquire(7);
    before.close();
    const jobs = client.gauge("jobs");
    assert.equal(jobs.inUse, 7);
    assert.equal(jobs.tryAcquire(4), undefined);
    permit.release();
    jobs.tryAcquire(10)?.release();
    await sleep(50);
    assert.deepEqual(server.released, []);
    await client.close();
    assert.deepEqual(server.released, ["jobs"]);
  });

  it("keeps the lease of a permit that its caller has not seen yet", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const jobs = client.gauge("jobs", { wants: 10 });
    await jobs.ready();
    const granted = jobs.acquire();
    jobs.close();
    const permit = await granted;
    await sleep(50);
    assert.deepEqual(server.released, []);
    permit.release();
    await eventually(() => server.released.length === 1, "the release");
    const others = client.gauge("jobs", { wants: 10 });
    await others.ready();
    const late = others.acquire();
    const closed = client.close();
    await assert.rejects(late, ClosedError, "the lease is released with the client");
    await closed;
    assert.equal(others.inUse, 0);
  });

  it("keeps the lease of a rate until its reservations are settled", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const tokens = client.rate("tokens", { wants: 10, windowMs: 60_000 });
    const reservation = await tokens.reserve(1);
    tokens.close();
    await sleep(50);
    assert.deepEqual(server.released, []);
    reservation.settle(0);
    await eventually(() => server.released.length === 1, "the release");
    await client.close();
  });
});

describe("a lease that has expired unnoticed", () => {
  /** Keeps the event loop busy. */
  const block = (ms: number) => {
    const end = performance.now() + ms;
    while (performance.now() < end);
  };

  it("admits nobody when a permit is released", async (test) => {
    const server = await Fake.start(test);
    Object.assign(server, { capacity: 1, lengthMs: 1_000 });
    const client = new Client(server.address);
    const jobs = client.gauge("jobs", { wants: 1 });
    const permit = await jobs.acquire();
    let basis = "";
    const next = jobs.acquire().then((permit) => {
      basis = jobs.basis;
      return permit;
    });
    block(1_100);
    permit.release();
    (await next).release();
    assert.equal(basis, "lease", "admitted by the next lease");
    await client.close();
  });

  it("saves up nothing after its expiry", async (test) => {
    const server = await Fake.start(test);
    Object.assign(server, { capacity: 1_000, lengthMs: 1_000, safe: 1 });
    const client = new Client({ servers: server.address, refreshMinMs: 60_000 });
    const searches = client.rate("searches", { wants: 1_000, windowMs: 3_600_000 });
    await searches.ready();
    block(2_000);
    const { available } = searches.standing;
    assert.equal(searches.basis, "fallback");
    assert.ok(available <= 1_010, `${available}`);
    await client.close();
  });
});

describe("a request that is refused", () => {
  it("leaves the connection open", async (test) => {
    const server = await Fake.start(test);
    const problem = [{ resourceId: "r", reason: "busy", message: "too many clients" }];
    server.answer = () => ({ response: [], problem });
    const client = new Client(server.address);
    client.rate("r", { wants: 1 });
    await eventually(() => client.stats().requestErrors >= 3, "three refusals");
    assert.match(client.health().lastError ?? "", /too many clients \(busy\)/);
    assert.equal(server.connections.size, 1);
    await client.close();
  });
});

describe("the code of a user", () => {
  it("that throws does not stop the client", async (test) => {
    const server = await Fake.start(test);
    Object.assign(server, { refresh: 1n, lengthMs: 3_000 });
    const { output, code } = await runProgram(`
      import { Client } from "leaseway";
      let thrown = 0;
      process.on("uncaughtException", (error) => {
        if (error.message === "of the user") thrown += 1;
      });
      const fail = () => {
        throw new Error("of the user");
      };
      const servers = ["127.0.0.1:1", ${JSON.stringify(server.address)}];
      const client = new Client({ servers, refreshMinMs: 100, log: fail, onLeaseChange: fail });
      client.onChange(fail);
      const rate = client.rate("r", { wants: 5 });
      rate.onChange(fail);
      await rate.ready();
      await new Promise((resolve) => setTimeout(resolve, 3_500));
      console.log(rate.basis, thrown >= 3);
      await client.close();`);
    assert.deepEqual([output, code], ["lease true\n", 0]);
    assert.deepEqual(server.released, ["r"]);
  });
});

describe("the end of a process", () => {
  for (const [how, end] of [
    ["closed", "await client.close();"],
    ["open", ""],
  ]) {
    it(`does not wait for a server that names no peers, with a client that is ${how}`, async (test) => {
      const server = await Fake.start(test);
      server.peers = () => undefined;
      const program = `
        import { Client } from "leaseway";
        const client = new Client({ servers: ${JSON.stringify(server.address)}, deadlineMs: 500 });
        await client.rate("r", { wants: 5 }).ready();
        ${end}
        console.log("done");`;
      const begun = performance.now();
      assert.deepEqual(await runProgram(program), { output: "done\n", code: 0 });
      assert.ok(performance.now() - begun < 10_000);
      assert.deepEqual(server.released, ["r"]);
    });
  }
});

describe("waiting for a lease", () => {
  it("leaves nothing behind", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const rate = client.rate("r", { wants: 5 });
    await rate.ready();
    const collect = async (): Promise<number> => {
      await sleep(10);
      (runInNewContext("gc") as () => void)();
      return process.memoryUsage().heapUsed;
    };
    setFlagsFromString("--expose-gc");
    for (let n = 0; n < 1_000; n += 1) await client.ready();
    const before = await collect();
    for (let n = 0; n < 20_000; n += 1) await client.ready();
    const bytes = ((await collect()) - before) / 20_000;
    assert.ok(bytes < 50, `${bytes} bytes per call`);
    await client.close();
  });

  it("ends with the client", async () => {
    const client = new Client("127.0.0.1:1");
    const rate = client.rate("r", { wants: 5 });
    const refused = [client.ready(), rate.ready(60_000)].map((ready) =>
      assert.rejects(ready, /no lease yet for `r`: the client was closed/),
    );
    await client.close();
    await Promise.all(refused);
    await assert.rejects(client.ready(), ClosedError);
    await assert.rejects(rate.ready(), ClosedError);
  });
});
