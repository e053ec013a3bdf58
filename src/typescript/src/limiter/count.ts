import type { Meter } from "./meter.js";

/** Counts permits in use. */
export class PermitCount implements Meter {
  capacity = 0;
  inUse = 0;
  taken = 0;

  /** Returns permits. */
  giveBack(n: number): void {
    this.inUse = Math.max(this.inUse - n, 0);
  }

  check(_now: number, reserved: number, n: number): boolean {
    return this.inUse + reserved + n <= this.whole();
  }

  waitFor(): undefined {
    return undefined;
  }

  take(_now: number, n: number): boolean {
    if (this.inUse + n > this.whole()) return false;
    this.inUse += n;
    this.taken += n;
    return true;
  }

  readyIn(): undefined {
    return undefined;
  }

  maxAtOnce(): number | undefined {
    return this.whole() > 0 ? this.whole() : undefined;
  }

  saveFor(): void {}

  stopSaving(): void {}

  owed(): number {
    return 0;
  }

  /**
   * The amount to report to the server: all permits in use if they exceed the capacity, as after a cut, else 0. The
   * server counts the larger of this and the lease as held.
   */
  outstanding(): number {
    return this.inUse > this.capacity ? this.inUse : 0;
  }

  /** The capacity in whole permits: 2.9 allows two. */
  private whole(): number {
    return Math.floor(this.capacity);
  }
}
