/** The public names: each operation has one. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Client, Gauge, Rate, TimeoutError } from "../src/index.js";
import { Fake } from "./fake.js";

/** The public methods and properties of a handle. */
function names(handle: { prototype: object }): string[] {
  const found: string[] = [];
  for (let at = handle.prototype; at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    found.push(...Object.getOwnPropertyNames(at));
  }
  return found.sort();
}

describe("the names of a handle", () => {
  it("a caller waits with acquire alone", () => {
    for (const handle of [Rate, Gauge]) {
      assert.ok(names(handle).includes("acquire"));
      assert.ok(!names(handle).includes("wait"));
    }
  });

  it("are those of the other clients", () => {
    const own = names(Rate);
    for (const name of ["tryAcquire", "reserve", "tryReserve", "charge", "refund", "retryAfterMs", "setWindow"]) {
      assert.ok(own.includes(name), name);
    }
    for (const name of ["refuse", "readyIn"]) assert.ok(!own.includes(name), name);
  });
});

describe("acquire", () => {
  it("takes the number of permits first, for rates and for gauges", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const [rate, gauge] = [client.rate("rate", { wants: 10 }), client.gauge("gauge", { wants: 10 })];
    await rate.acquire(2);
    const permit = await gauge.acquire(2, { timeoutMs: 10_000 });
    assert.deepEqual([permit.n, gauge.inUse], [2, 2]);
    assert.equal(await gauge.use(() => gauge.inUse, { n: 3 }), 5);
    assert.equal(await rate.use(() => 7, { n: 2 }), 7);
    await assert.rejects(gauge.acquire(9, { timeoutMs: 20 }), TimeoutError);
    await client.close();
  });

  it("is refused with the time after which to retry", async (test) => {
    const server = await Fake.start(test);
    const client = new Client(server.address);
    const rate = client.rate("rate", { wants: 10, burst: 1 });
    assert.equal(rate.retryAfterMs(), undefined);
    await rate.acquire();
    rate.charge(100);
    assert.equal(rate.tryAcquire(), false);
    const wait = rate.retryAfterMs() ?? 0;
    assert.ok(wait > 5_000 && wait <= 10_200, `${wait}`);
    const left = client.stats().resources["rate"]?.leaseLeftMs ?? 0;
    assert.ok(left > 50_000 && left <= 60_000, `${left}`);
    await client.close();
  });
});
