/** Measures the cost of a permit, and of 50,000 waiting callers. Run it with `npm run bench`. */

import { Balancer } from "../src/balancer.js";
import { SystemClock } from "../src/clock.js";
import { Bucket } from "../src/limiter/bucket.js";
import { PermitCount } from "../src/limiter/count.js";
import { Semaphore } from "../src/limiter/semaphore.js";

const CALLS = 1_000_000;
const WAITERS = 50_000;
const ROUNDS = 7;

function rate(capacity: number): Semaphore<Bucket> {
  const clock = new SystemClock();
  const semaphore = new Semaphore(new Bucket({ windowMs: 3_600_000 }, clock.now(), true), clock);
  semaphore.change((bucket, now) => bucket.set(now, capacity));
  return semaphore;
}

async function nanoseconds(calls: number, work: () => void | Promise<void>): Promise<string> {
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const begun = performance.now();
    await work();
    rounds.push(((performance.now() - begun) * 1e6) / calls);
  }
  rounds.sort((a, b) => a - b);
  return `${Math.round(rounds[Math.floor(ROUNDS / 2)] ?? 0)} ns`;
}

const semaphore = rate(1e9);
const tried = await nanoseconds(CALLS, () => {
  for (let n = 0; n < CALLS; n += 1) semaphore.tryAcquire(1);
});
console.log(`rate, tryAcquire: ${tried}`);
const awaited = await nanoseconds(CALLS, async () => {
  for (let n = 0; n < CALLS; n += 1) await semaphore.acquire(1);
});
console.log(`rate, await acquire: ${awaited}`);

const gauge = new Semaphore(new PermitCount(), new SystemClock());
gauge.change((count) => {
  count.capacity = 10;
});
const held = await nanoseconds(CALLS, () => {
  for (let n = 0; n < CALLS; n += 1) {
    gauge.tryAcquire(1);
    gauge.change((count) => count.giveBack(1));
  }
});
console.log(`gauge, tryAcquire and release: ${held}`);

for (const backends of [4, 64]) {
  const weights = Array.from({ length: backends }, (_, index) => index + 1);
  const balancer = new Balancer(weights, weights);
  const picked = await nanoseconds(CALLS / backends, () => {
    for (let n = 0; n < CALLS / backends; n += 1) balancer.pick();
  });
  console.log(`balancer, pick among ${backends}: ${picked}`);
}

const CAPACITY = 25_000;
const clock = new SystemClock();
const slow = new Semaphore(new Bucket("smooth", clock.now()), clock);
slow.change((bucket, now) => bucket.set(now, CAPACITY));
globalThis.gc?.();
const before = process.memoryUsage().heapUsed;
const begun = performance.now();
const keep = setInterval(() => {}, 1_000);
const waits = Array.from({ length: WAITERS }, () => slow.acquire(1));
const queued = performance.now() - begun;
globalThis.gc?.();
const bytes = (process.memoryUsage().heapUsed - before) / WAITERS;
await Promise.all(waits);
const took = performance.now() - begun;
clearInterval(keep);
console.log(`${WAITERS} waiters at ${CAPACITY}/s: queued in ${queued.toFixed(0)} ms, ${bytes.toFixed(0)} bytes each,`);
console.log(`served in ${took.toFixed(0)} ms (${(WAITERS / CAPACITY) * 1000} ms at least)`);
