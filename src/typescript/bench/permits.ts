/** Measures the cost of a permit, and of 50,000 waiting callers. Run it with `npm run bench`. */

import { SystemClock } from "../src/clock.js";
import { Bucket } from "../src/limiter/bucket.js";
import { PermitCount } from "../src/limiter/count.js";
import { Line } from "../src/limiter/line.js";

const CALLS = 1_000_000;
const WAITERS = 50_000;
const ROUNDS = 7;

function rate(capacity: number): Line<Bucket> {
  const clock = new SystemClock();
  const line = new Line(new Bucket({ windowMs: 3_600_000 }, clock.now(), true), clock);
  line.change((bucket, now) => bucket.set(now, capacity));
  return line;
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

const line = rate(1e9);
const tried = await nanoseconds(CALLS, () => {
  for (let n = 0; n < CALLS; n += 1) line.tryTake(1);
});
console.log(`rate, tryAcquire: ${tried}`);
const awaited = await nanoseconds(CALLS, async () => {
  for (let n = 0; n < CALLS; n += 1) await line.wait(1);
});
console.log(`rate, await acquire: ${awaited}`);

const gauge = new Line(new PermitCount(), new SystemClock());
gauge.change((count) => {
  count.capacity = 10;
});
const held = await nanoseconds(CALLS, () => {
  for (let n = 0; n < CALLS; n += 1) {
    gauge.tryTake(1);
    gauge.change((count) => count.giveBack(1));
  }
});
console.log(`gauge, tryAcquire and release: ${held}`);

const CAPACITY = 25_000;
const clock = new SystemClock();
const slow = new Line(new Bucket("smooth", clock.now()), clock);
slow.change((bucket, now) => bucket.set(now, CAPACITY));
globalThis.gc?.();
const before = process.memoryUsage().heapUsed;
const begun = performance.now();
const keep = setInterval(() => {}, 1_000);
const waits = Array.from({ length: WAITERS }, () => slow.wait(1));
const queued = performance.now() - begun;
globalThis.gc?.();
const bytes = (process.memoryUsage().heapUsed - before) / WAITERS;
await Promise.all(waits);
const took = performance.now() - begun;
clearInterval(keep);
console.log(`${WAITERS} waiters at ${CAPACITY}/s: queued in ${queued.toFixed(0)} ms, ${bytes.toFixed(0)} bytes each,`);
console.log(`served in ${took.toFixed(0)} ms (${(WAITERS / CAPACITY) * 1000} ms at least)`);
