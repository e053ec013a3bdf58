/** The bucket and the semaphore, in virtual time. */

import assert from "node:assert/strict";
import { getEventListeners, setMaxListeners } from "node:events";
import { describe, it } from "node:test";

import { ClosedError, TimeoutError } from "../src/index.js";
import { Bucket } from "../src/limiter/bucket.js";
import { PermitCount } from "../src/limiter/count.js";
import { Semaphore } from "../src/limiter/semaphore.js";
import { OpenResource } from "../src/open-resource.js";
import { VirtualTime } from "./virtual-time.js";

function rate(capacity: number, burst: ConstructorParameters<typeof Bucket>[0] = { permits: 1 }) {
  const time = new VirtualTime();
  const semaphore = new Semaphore(new Bucket(burst, 0), time);
  semaphore.change((bucket, now) => bucket.set(now, capacity));
  return { time, semaphore };
}

describe("a capacity", () => {
  it("that has expired before it is applied admits nobody", async () => {
    for (const kind of ["rate", "gauge"] as const) {
      const time = new VirtualTime();
      const [wants, burst, maxDebt] = [1, { permits: 5 }, undefined];
      const settings = { kind, mode: "safe", priority: 0, wants, burst, window: undefined, maxDebt, set: {} } as const;
      const resource = new OpenResource("r", settings, time, {});
      const { semaphore } = resource.limiter;
      const apply = (capacity: number, end: number) => {
        resource.apply({ capacity, basis: "lease" }, end, (at) => resource.expire(at, 0));
      };
      apply(kind === "rate" ? 5 : 0, Number.POSITIVE_INFINITY);
      await time.pass(1_000);
      while (semaphore.tryAcquire(1) === undefined) {}
      let admitted = 0;
      const wait = semaphore.acquire(1).then(() => {
        admitted += 1;
      });
      await time.pass(100);
      apply(1_000, 1_050);
      await time.pass(10);
      assert.equal(admitted, 0, kind);
      assert.equal(semaphore.meter.capacity, 0);
      semaphore.close();
      await assert.rejects(wait, ClosedError);
    }
  });
});

describe("wants", () => {
  const opened = (kind: "rate" | "gauge") => {
    const time = new VirtualTime();
    const [wants, window, maxDebt] = [undefined, undefined, undefined];
    const settings = { kind, mode: "safe", priority: 0, wants, burst: "smooth", window, maxDebt, set: {} } as const;
    return new OpenResource("r", settings, time, {});
  };

  it("that are estimated stay if they are to be estimated", () => {
    const gauge = opened("gauge");
    gauge.apply({ capacity: 10, basis: "lease" }, Number.POSITIVE_INFINITY, () => {});
    assert.equal(gauge.limiter.semaphore.tryAcquire(7), undefined);
    assert.equal(gauge.wants(0).amount, 7);
    if (gauge.limiter.kind === "gauge") gauge.limiter.semaphore.change((count) => count.giveBack(7));
    assert.equal(gauge.wants(1_000).amount, 7, "the peak since then");
    gauge.estimateWants();
    assert.equal(gauge.wants(2_000).amount, 7, "it is remembered");
    gauge.setFixedWants(3);
    gauge.estimateWants();
    assert.equal(gauge.wants(3_000).amount, 0);
  });

  it("are not more than servers accept", () => {
    const rate = opened("rate");
    for (let n = 0; n < 3; n += 1) rate.limiter.semaphore.acquire(1e15).catch(() => {});
    rate.wants(1);
    assert.equal(rate.wants(1_000).amount, 1e15);
    rate.close();
  });
});

describe("a bucket", () => {
  it("begins empty and never lets more through than capacity and burst", () => {
    const bucket = new Bucket({ permits: 5 }, 0);
    bucket.set(0, 10);
    assert.ok(!bucket.take(0, 1));
    let taken = 0;
    for (let at = 0; at <= 10_000; at += 7.3) while (bucket.take(at, 1)) taken += 1;
    assert.ok(taken <= 105 && taken >= 99, `${taken}`);
  });

  it("does not drift, however often it is settled", () => {
    const bucket = new Bucket({ permits: 1e9 }, 0);
    bucket.set(0, 1 / 3);
    for (let n = 1; n <= 300_000; n += 1) bucket.standing(n * 10);
    assert.ok(Math.abs(bucket.standing(3_000_000).available - 1_000) < 1e-9);
  });

  it("pays debt before anything passes, up to the maximum", () => {
    const bucket = new Bucket({ permits: 10 }, 0);
    bucket.maxDebt = 20;
    bucket.set(0, 10);
    assert.equal(bucket.charge(1_000, 100), 30, "10 saved and 20 owed");
    assert.equal(bucket.owed(1_000), 20);
    assert.ok(!bucket.take(2_900, 1));
    assert.ok(bucket.take(3_101, 1));
  });

  it("restores at most what there would be if permits had never been taken", () => {
    const bucket = new Bucket({ permits: 10 }, 0);
    bucket.set(0, 10);
    assert.ok(bucket.take(1_000, 10));
    const reservation = bucket.promise(10);
    bucket.usePart(1_500, reservation, 4);
    assert.equal(bucket.available(1_500), 10, "5 grown and 6 back, 10 at most");
    assert.ok(bucket.take(1_500, 10));
    const late = bucket.promise(10);
    bucket.set(3_000, 10);
    assert.equal(bucket.available(3_000), 10);
    assert.ok(bucket.take(3_000, 10));
    bucket.usePart(3_000, late, 0);
    assert.equal(bucket.available(3_000), 0, "the bucket was full meanwhile");
  });

  it("cuts what is saved when the capacity is cut", () => {
    const bucket = new Bucket({ windowMs: 1_000 }, 0);
    bucket.set(0, 100);
    bucket.set(5_000, 10);
    assert.equal(bucket.available(5_000), 10);
  });
});

describe("a semaphore", () => {
  it("serves first come, first served, and large requests are not starved", async () => {
    const { time, semaphore } = rate(10);
    const served: string[] = [];
    const wait = (name: string, n: number) =>
      semaphore.acquire(n).then(() => served.push(`${name}@${Math.round(time.now())}`));
    void wait("a", 1);
    void wait("b", 5);
    void wait("c", 1);
    await time.advance(50);
    assert.equal(semaphore.tryAcquire(1)?.reason, "not-now");
    await time.advance(2_000);
    assert.deepEqual(served, ["a@100", "b@600", "c@700"]);
  });

  it("an aborted or timed out wait takes nothing", async () => {
    const { time, semaphore } = rate(10);
    const gone = new AbortController();
    const aborted = assert.rejects(semaphore.acquire(5, { signal: gone.signal }), /enough/);
    const late = assert.rejects(semaphore.acquire(5, { timeoutMs: 300 }), TimeoutError);
    let servedAt = 0;
    void semaphore.acquire(1).then(() => {
      servedAt = time.now();
    });
    await time.advance(200);
    gone.abort(new Error("enough"));
    await aborted;
    await time.advance(1_000);
    await late;
    assert.ok(servedAt >= 300 && servedAt < 301, `${servedAt}`);
    assert.equal(semaphore.meter.taken, 1);
  });

  it("listens to a signal only while the caller waits", async () => {
    const { time, semaphore } = rate(10);
    const { signal } = new AbortController();
    setMaxListeners(0, signal);
    const waits = Array.from({ length: 100 }, () => semaphore.acquire(1, { signal, timeoutMs: 5_050 }));
    assert.equal(getEventListeners(signal, "abort").length, 100);
    const settled = Promise.allSettled(waits);
    await time.advance(6_000);
    const results = await settled;
    assert.equal(results.filter(({ status }) => status === "fulfilled").length, 50);
    assert.equal(getEventListeners(signal, "abort").length, 0);
  });

  it("without capacity nobody is admitted, and closing rejects", async () => {
    const { time, semaphore } = rate(0);
    const closed = assert.rejects(semaphore.acquire(1), ClosedError);
    await time.advance(100_000);
    assert.equal(semaphore.waiting, 1);
    semaphore.close();
    await closed;
    await assert.rejects(semaphore.acquire(1), ClosedError);
  });

  it("tells its owner that a capacity has expired before it admits", () => {
    const { time, semaphore } = rate(10, { permits: 100 });
    semaphore.expireAt(1_000, (at) => semaphore.meter.set(at, 0));
    void time.advance(1_000);
    assert.equal(semaphore.tryAcquire(1)?.reason, "not-now");
  });

  it("admits nobody when permits come back or a caller leaves after the expiry", async () => {
    const time = new VirtualTime();
    const semaphore = new Semaphore(new PermitCount(), time);
    semaphore.change((count) => {
      count.capacity = 2;
    });
    await semaphore.acquire(1);
    let admitted = 0;
    const gone = new AbortController();
    const aborted = assert.rejects(semaphore.acquire(2, { signal: gone.signal }));
    void semaphore.acquire(1).then(() => {
      admitted += 1;
    });
    semaphore.expireAt(1_000, () => {
      semaphore.meter.capacity = 0;
    });
    await time.advance(2_000);
    gone.abort();
    await aborted;
    semaphore.change((count) => count.giveBack(1));
    await time.advance(3_000);
    assert.equal(admitted, 0);
  });

  it("a caller that the fallback admits cannot leave any more", async () => {
    const { time, semaphore } = rate(0);
    const gone = new AbortController();
    const first = semaphore.acquire(1, { signal: gone.signal });
    semaphore.expireAt(1_000, () => semaphore.change((bucket, now) => bucket.set(now, Number.POSITIVE_INFINITY)));
    await time.advance(2_000);
    gone.abort();
    await first;
    assert.equal(semaphore.waiting, 0);
    assert.equal(semaphore.meter.taken, 1);
  });

  it("credit grows at the capacity of a lease until its expiry only", async () => {
    const { time, semaphore } = rate(10, { windowMs: 60_000 });
    semaphore.expireAt(1_000, (at) => semaphore.meter.set(at, 1));
    await time.advance(10_000);
    semaphore.change((bucket, now) => bucket.set(now, 1));
    assert.equal(semaphore.meter.available(semaphore.now()), 10 + 9);
  });

  it("a gauge admits when permits come back, not after a cut", async () => {
    const time = new VirtualTime();
    const semaphore = new Semaphore(new PermitCount(), time);
    const capacity = (permits: number) =>
      semaphore.change((count) => {
        count.capacity = permits;
      });
    capacity(2.9);
    await semaphore.acquire(1);
    await semaphore.acquire(1);
    let served = false;
    void semaphore.acquire(1).then(() => {
      served = true;
    });
    capacity(1);
    assert.equal(semaphore.meter.outstanding(), 2);
    semaphore.change((count) => count.giveBack(1));
    await time.advance(1);
    assert.ok(!served, "one is in use, and the capacity is one");
    semaphore.change((count) => count.giveBack(1));
    await time.advance(2);
    assert.ok(served);
  });
});
