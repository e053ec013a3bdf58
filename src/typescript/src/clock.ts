import { uptime } from "node:os";

import type { Time } from "./limiter/semaphore.js";

/** Clocks that are read one after the other differ by less than this. */
const TOLERANCE_MS = 100;

/** Node fires timers beyond this at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The clocks of the system, in milliseconds. */
export interface Clocks {
  /** Never set, but on Linux it stops during a suspend. */
  monotonicMs(): number;
  /** Advances during a suspend, but can be set. */
  wallMs(): number;
  /** The time since the machine was started, including suspends; `undefined` if the system does not tell. */
  uptimeMs(): number | undefined;
}

const SYSTEM: Clocks = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  uptimeMs: () => {
    try {
      return uptime() * 1000;
    } catch {
      return undefined;
    }
  },
};

/**
 * Milliseconds since the client was created, including the time during which the machine was suspended. On Linux the
 * monotonic clock stops during a suspend, but leases do not: after waking up a client would use an expired lease.
 *
 * Node has no clock that advances during a suspend and cannot be set, other than `uptime`, which reads a file. So it is
 * read about once per second, and whenever the wall clock has jumped, which it does at the end of a suspend.
 */
export class SystemClock implements Time {
  private readonly origin: number;
  private readonly booted: number | undefined;
  private suspended = 0;
  /** The difference of the wall clock and the monotonic clock at the last check. */
  private wallOffset: number;

  constructor(private readonly clocks: Clocks = SYSTEM) {
    this.booted = clocks.uptimeMs();
    this.origin = clocks.monotonicMs();
    this.wallOffset = clocks.wallMs() - this.origin;
  }

  now(): number {
    const monotonic = this.clocks.monotonicMs();
    const jumped = Math.abs(this.clocks.wallMs() - monotonic - this.wallOffset) > TOLERANCE_MS;
    if (jumped) this.checkSuspended();
    return monotonic - this.origin + this.suspended;
  }

  /** The current time in whole milliseconds, rounded down, so a lease starts no later than its request was sent. */
  nowMs(): number {
    return Math.floor(this.now());
  }

  /** Notices a suspend. To be called about once per second. */
  checkSuspended(): void {
    const monotonic = this.clocks.monotonicMs();
    this.wallOffset = this.clocks.wallMs() - monotonic;
    const uptimeMs = this.clocks.uptimeMs();
    if (this.booted === undefined || uptimeMs === undefined) return;
    const suspended = uptimeMs - this.booted - (monotonic - this.origin);
    // Time must not run backwards.
    if (suspended > this.suspended + TOLERANCE_MS) this.suspended = suspended;
  }

  /** Timers do not keep the process running: see `KeepAlive`. They may be as far away as wanted. */
  setTimer(at: number, callback: () => void): () => void {
    let timer: NodeJS.Timeout;
    const start = () => {
      const delay = Math.max(Math.ceil(at - this.now()), 0);
      const fired = delay > MAX_TIMER_MS ? start : callback;
      timer = setTimeout(fired, Math.min(delay, MAX_TIMER_MS)).unref();
    };
    start();
    return () => clearTimeout(timer);
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
