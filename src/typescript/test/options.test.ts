/** The options of a client, and the environment. */

import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";

import { SystemClock } from "../src/clock.js";
import { BuildError, Client, type ClientOptions } from "../src/index.js";
import { Fake } from "./fake.js";
import { eventually, scratch } from "./server.js";

describe("the environment", () => {
  const endpoints = (test: TestContext, env: Record<string, string>, options: Partial<ClientOptions> = {}) => {
    const client = Client.fromEnv(options, env);
    test.after(() => client.abandon());
    return client.health().endpoints;
  };

  it("names the servers", (test) => {
    assert.deepEqual(endpoints(test, {}), ["127.0.0.1:5100"]);
    assert.deepEqual(endpoints(test, { LEASEWAY_SERVER: "a, b:1" }), ["a:5100", "b:1"]);
    assert.deepEqual(endpoints(test, { LEASEWAY_SERVER: "a" }, { servers: "c" }), ["c:5100"]);
  });

  it("an empty variable counts as not set", (test) => {
    const names = ["SERVER", "TLS", "TLS_CA", "TLS_CERT", "TLS_KEY", "TLS_SERVER_NAME", "TOKEN_FILE", "INSECURE"];
    const env = Object.fromEntries(names.map((name) => [`LEASEWAY_${name}`, ""]));
    assert.deepEqual(endpoints(test, env), ["127.0.0.1:5100"]);
  });

  it("switches things on and off with true and false", (test) => {
    const LEASEWAY_SERVER = "http://a";
    endpoints(test, { LEASEWAY_SERVER, LEASEWAY_TLS: "False", LEASEWAY_INSECURE: "true" });
    assert.throws(() => endpoints(test, { LEASEWAY_SERVER, LEASEWAY_TLS: "TRUE" }), /conflicts with TLS/);
    assert.throws(() => endpoints(test, { LEASEWAY_TLS: "1" }), /LEASEWAY_TLS=1: expected true or false/);
  });

  it("a token among the options replaces the file", (test) => {
    endpoints(test, { LEASEWAY_TOKEN_FILE: scratch("token", "secret") }, { token: "other" });
  });
});

describe("another handle of a resource", () => {
  it("has the same options", () => {
    const client = new Client("192.0.2.1:1");
    const window = { lengthMs: 60_000, rate: 5 };
    const first = client.rate("r", { wants: 1, priority: 2, burst: 3, window });
    const others = [{ wants: 2 }, { priority: 0 }, { mode: "optimistic" }, { burst: 4 }, { windowMs: 1 }] as const;
    for (const other of [...others, { window: { lengthMs: 1_000, rate: 5 } }, { maxDebt: 7 }]) {
      const [name] = Object.keys(other);
      assert.throws(() => client.rate("r", other), { name: "OpenError", message: new RegExp(`another \`${name}\``) });
    }
    first.setWants(5);
    const same = client.rate("r", { wants: 1, priority: 2, mode: "safe", burst: 3, window: { ...window } });
    for (const handle of [first, same, client.rate("r")]) handle.close();
    client.rate("r", { wants: 2 });
    client.abandon();
  });
});

describe("a token", () => {
  it("is sent in the clear to other machines only if that is allowed", async (test) => {
    const elsewhere = "192.0.2.1:1";
    const isRefused = { name: "BuildError", message: /refusing to send the token to 192\.0\.2\.1:1/ };
    assert.throws(() => new Client({ servers: ["127.0.0.1:1", elsewhere], token: "secret" }), isRefused);
    const server = await Fake.start(test);
    server.answer = () => ({ response: [], mastership: { masterAddress: elsewhere }, problem: [] });
    for (const allowClearToken of [false, true]) {
      const client = new Client({ servers: server.address, token: "secret", allowClearToken, deadlineMs: 200 });
      client.rate("r", { wants: 1 });
      await eventually(() => /^192\.0\.2\.1:1/.test(client.health().lastError ?? ""), "an error");
      assert.equal(/refusing to send the token/.test(client.health().lastError ?? ""), !allowClearToken);
      client.abandon();
    }
  });
});

describe("times", () => {
  it("a deadline is positive", () => {
    for (const deadlineMs of [0, -1, Number.NaN]) {
      assert.throws(() => new Client({ servers: "a", deadlineMs }), BuildError);
    }
  });

  it("a timer further away than those of Node does not fire early", (test) => {
    test.mock.timers.enable({ apis: ["setTimeout"] });
    let monotonic = 0;
    const clock = new SystemClock({ monotonicMs: () => monotonic, wallMs: () => monotonic, uptimeMs: () => undefined });
    let fired = false;
    clock.setTimer(2 ** 31 + 10, () => {
      fired = true;
    });
    const advance = (ms: number) => {
      monotonic += ms;
      test.mock.timers.tick(ms);
    };
    advance(2 ** 31 - 1);
    assert.equal(fired, false);
    advance(10);
    assert.equal(fired, false);
    advance(1);
    assert.equal(fired, true);
  });
});
