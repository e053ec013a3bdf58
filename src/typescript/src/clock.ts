import { uptime } from "node:os";

import type { Time } from "./limiter/semaphore.js";

/** Two clocks that are read one after the other differ by less than this. */
const TOLERANCE_MS = 100;

/** Node fires timers beyond this at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Milliseconds since the client was created, including the time during which the machine was suspended. On Linux the
 * monotonic clock stops during a suspend, but leases do not: after waking up a client would use an expired lease.
 */
export class SystemClock implements Time {
  private readonly origin = performance.now();
  private readonly booted = SystemClock.uptimeMs();
  private suspended = 0;

  now(): number {
    return performance.now() - this.origin + this.suspended;
  }

  /** The current time in whole milliseconds, rounded down, so a lease starts no later than its request was sent. */
  nowMs(): number {
    return Math.floor(this.now());
  }

  /** Notices a suspend. To be called about once per second. */
  checkSuspended(): void {
    if (this.booted === undefined) return;
    const booted = SystemClock.uptimeMs();
    if (booted === undefined) return;
    const suspended = booted - this.booted - (performance.now() - this.origin);
    // Time must not run backwards.
    if (suspended > this.suspended + TOLERANCE_MS) this.suspended = suspended;
  }

  /** Timers do not keep the process running: see `KeepAlive`. */
  setTimer(at: number, callback: () => void): () => void {
    const delay = Math.min(Math.max(Math.ceil(at - this.now()), 0), MAX_TIMER_MS);
    const timer = setTimeout(callback, delay).unref();
    return () => clearTimeout(timer);
  }

  private static uptimeMs(): number | undefined {
    try {
      return uptime() * 1000;
    } catch {
      return undefined;
    }
  }
}

/** Keeps the process running while anybody waits. */
export class KeepAlive {
  private holders = 0;
  private timer: NodeJS.Timeout | undefined;

  hold(): void {
    this.holders += 1;
    if (this.timer === undefined) this.timer = setInterval(() => {}, MAX_TIMER_MS);
    else if (this.holders === 1) this.timer.ref();
  }

  letGo(): void {
    this.holders -= 1;
    if (this.holders === 0) this.timer?.unref();
  }

  close(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }
}
