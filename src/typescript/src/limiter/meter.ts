/** The interface of a semaphore to what it meters. Times are milliseconds, with fractions. */

/** Permits that were taken in advance and may come back. */
export interface Promised {
  readonly n: number;
  /** The period in which they were taken, as the meter counts periods. */
  readonly era: number;
}

/** Decides when permits are available. The two kinds of limiter differ in their meter. */
export interface Meter {
  /** The current capacity; infinite if unlimited. */
  readonly capacity: number;
  /** Permits in use that will be returned; 0 for a rate. */
  readonly inUse: number;
  /** Permits taken and not returned so far. */
  readonly taken: number;
  /** Whether `n` permits are available beyond `reserved` ones. Takes nothing. */
  check(now: number, reserved: number, n: number): boolean;
  /** Time until they are, if nothing else is taken; `undefined` if that does not depend on time alone. */
  waitFor(now: number, reserved: number, n: number): number | undefined;
  /** Takes `n` permits, or none. Returns whether it did. */
  take(now: number, n: number): boolean;
  /** Time until `permits` are available, if nothing else is taken; `undefined` if that does not depend on time. */
  readyIn(now: number, permits: number): number | undefined;
  /** The maximum number of permits that can be available at once; `undefined` without capacity. */
  maxAtOnce(): number | undefined;
  /** The head of the queue needs `n` permits: save up for it. */
  saveFor(now: number, n: number): void;
  /** The head of the queue has left. */
  stopSaving(now: number): void;
  /** Debt in permits. No caller is admitted before it is paid. */
  owed(now: number): number;
}
