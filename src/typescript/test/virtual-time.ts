import type { Time } from "../src/limiter/semaphore.js";

/** A clock that stands still unless it is advanced. */
export class VirtualTime implements Time {
  private at = 0;
  private timers: { at: number; callback: () => void }[] = [];

  now(): number {
    return this.at;
  }

  setTimer(at: number, callback: () => void): () => void {
    const timer = { at, callback };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((other) => other !== timer);
    };
  }

  /** Advances by whole milliseconds. Timers fire at the first one at which they are due. */
  async pass(millis: number): Promise<void> {
    for (const end = this.at + millis; this.at < end; ) {
      this.at += 1;
      // A timer that is set meanwhile fires at the next one, as a real timer would.
      for (const timer of this.timers.filter(({ at }) => at <= this.at)) {
        if (!this.timers.includes(timer)) continue;
        this.timers = this.timers.filter((other) => other !== timer);
        timer.callback();
      }
    }
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** Advances to `until`, firing timers in order, and lets promises settle after each. */
  async advance(until: number): Promise<void> {
    for (;;) {
      this.timers.sort((a, b) => a.at - b.at);
      const next = this.timers[0];
      if (next === undefined || next.at > until) break;
      this.timers.shift();
      this.at = Math.max(this.at, next.at);
      next.callback();
      await new Promise((resolve) => setImmediate(resolve));
    }
    this.at = until;
    await new Promise((resolve) => setImmediate(resolve));
  }
}
