/** Timeouts, refresh intervals and back-off. All times are milliseconds. */

/** The timeouts and intervals of a session, in milliseconds. */
export interface Pace {
  /** The timeout of a request. */
  deadline: number;
  /**
   * The minimum refresh interval, whatever the server says. Hints and changes of demand are exempt. Less than 100 ms
   * counts as 100 ms, here and below, so that no setting makes a client hammer a server.
   */
  refreshMin: number;
  /** The pause after the first failure; each further failure makes it 1.6 times as long. */
  backoffFirst: number;
  /** The maximum pause. It is also bounded such that all endpoints are tried once per refresh interval. */
  backoffMax: number;
  /** The maximum pause while servers answer that they have no master: they will elect one soon. */
  masterlessMax: number;
  /** Resources that will be due within this time are asked for together with those that are due now. */
  ahead: number;
}

export const DEFAULT_PACE: Readonly<Pace> = {
  deadline: 3_000,
  refreshMin: 1_000,
  backoffFirst: 100,
  backoffMax: 15_000,
  masterlessMax: 1_000,
  ahead: Number.POSITIVE_INFINITY,
};

/** A source of random numbers in [0, 1). */
export type Random = () => number;

/** The minimum time between requests outside the refresh interval (hints, changes of demand, early confirmations). */
export const MIN_REQUEST_GAP = 100;

const BACKOFF_GROWTH = 1.6;

/** The refresh interval assumed without a lease: the default of servers. */
const DEFAULT_REFRESH = 5_000;

/**
 * The maximum time between two attempts. Each endpoint is tried within `refresh`, the shortest interval of the known
 * leases, so the session notices within one interval that a server is back.
 */
export function longestRetry(pace: Pace, refresh: number | undefined, endpoints: number): number {
  return Math.floor(Math.max(refresh ?? DEFAULT_REFRESH, pace.refreshMin) / Math.max(endpoints, 1));
}

/**
 * The pause after `failures` in a row, the last of which took `took`. Attempts are sent at most `longest` apart. The
 * pause is a random part, at least half, of the computed one, so that clients that failed together do not retry
 * together.
 */
export function backoff(pace: Pace, failures: number, longest: number, took: number, random: Random): number {
  const apart = Math.min(pace.backoffFirst * BACKOFF_GROWTH ** (failures - 1), longest);
  return Math.floor(Math.max(apart - took, MIN_REQUEST_GAP) * (0.5 + random() / 2));
}

/**
 * The time until the next refresh: a little less than the interval, so that clients drift apart, and always while a
 * third of the lease is left, so that one lost answer costs nothing.
 */
export function refreshIn(pace: Pace, interval: number, left: number, random: Random): number {
  const least = Math.max(pace.refreshMin, MIN_REQUEST_GAP);
  const jittered = Math.floor(Math.max(interval, least) * (0.9 + random() / 10));
  return Math.max(Math.min(jittered, Math.floor(left / 3) * 2), Math.min(least, jittered));
}

/** A seeded generator (mulberry32), for reproducible tests and simulations. */
export function seeded(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
