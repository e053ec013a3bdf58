/**
 * Limits per window: per minute, per day.
 *
 * The capacity of such a resource is the limit divided by the window. Unused capacity is saved up for the length of the
 * window, so all of it can be used at once, and wants are remembered for as long. Otherwise an occasional caller would
 * give up its share between two visits, and its savings with it.
 */

import type { DemandSettings } from "./demand.js";

/** A limit per window. */
export interface Window {
  /** The length of the window. */
  readonly lengthMs: number;
  /**
   * The limit in permits per second. Wants begin there, until demand is known. If the window is longer than a second,
   * they never exceed it.
   */
  readonly rate: number;
}

/** The whole limit is wanted for this long at first. */
const INITIAL_PERIOD = 5_000;
/** Minimum wants, as permits per window, so that the next callers find some. */
const SPARE_PERMITS = 10;
/** Upper bound of the minimum wants, as a fraction of the limit, because other clients cannot use it meanwhile. */
const MAX_SPARE_FRACTION = 0.02;
/** Lower bound of the minimum wants: with a lease, however small, a limiter keeps a permit for the next caller. */
const MIN_WANTS = 1e-3;
/** Arrivals are observed over the window, but over no less and no more than this. */
const MIN_OBSERVATION = 1_000;
const MAX_OBSERVATION = 5_000;
/** Guessed demand after a pause, as a multiple of the leased capacity. */
const MAX_GROWTH = 2;
/** Time constant in seconds of forgetting a refusal that is due to chance. */
const NOISE_DECAY_SECONDS = 20;
/** A lease suffices for a demand of at most this multiple. */
const SUFFICIENT_FACTOR = 1.05;
/** The refresh interval assumed by estimates. It does not depend on the server, because rising wants are sent at once. */
const NOMINAL_REFRESH = 5_000;

/** The period over which arrivals are observed. */
function observationSpan(window: Window): number {
  return Math.min(Math.max(window.lengthMs, MIN_OBSERVATION), MAX_OBSERVATION);
}

/** The settings of a demand estimate, with or without a window. */
export function estimating(kind: "rate" | "gauge", window: Window | undefined): DemandSettings {
  const refreshMs = window === undefined ? NOMINAL_REFRESH : Math.min(observationSpan(window), NOMINAL_REFRESH);
  return { kind, refreshMs, remembers: window === undefined };
}

/** A reading of a limiter. */
export interface WindowSample {
  /** The demand estimated from arrivals. */
  readonly estimated: number;
  /** Permits refused so far. */
  readonly refused: number;
  /** The current capacity. */
  readonly capacity: number;
}

/** The wants of a limit per window. */
export class WindowDemand {
  private begun: number | undefined;
  /** Remembered wants at the time `at`. */
  private level = 0;
  private at = 0;
  /** When callers first wanted more than the spare permits, or were refused, after a pause. */
  private awake: number | undefined;
  private refused = 0;
  /** The guess meanwhile. */
  private guess = 0;
  /** When a refusal was last due to chance. */
  private byChance: number | undefined;

  constructor(readonly window: Window) {}

  /** Takes a reading, and returns the wants. */
  wants(now: number, sample: WindowSample): number {
    const { lengthMs, rate } = this.window;
    this.begun ??= now;
    const isLong = lengthMs > 1_000;
    const passed = Math.max(now - this.at, 0);
    const remembered = this.level * Math.exp(-passed / Math.max(lengthMs, 1));
    const first = now - this.begun < INITIAL_PERIOD ? rate : 0;
    this.level = Math.max(remembered, isLong ? Math.min(sample.estimated, rate) : sample.estimated);
    this.at = Math.max(this.at, now);
    const refuses = sample.refused > this.refused;
    this.refused = sample.refused;
    const guess = this.guessed(now, refuses, sample.capacity);
    if (refuses && guess === 0 && !isLong && sample.capacity * SUFFICIENT_FACTOR >= this.level) this.byChance = now;
    return Math.max(this.level + this.spread(now), first, this.spare(), guess);
  }

  private spread(now: number): number {
    if (this.byChance === undefined) return 0;
    const seconds = observationSpan(this.window) / 1000;
    return Math.sqrt(this.level / seconds) * Math.exp(-(now - this.byChance) / 1000 / NOISE_DECAY_SECONDS);
  }

  private spare(): number {
    const { lengthMs, rate } = this.window;
    const spare = (SPARE_PERMITS * 1000) / Math.max(lengthMs, 1);
    return Math.max(Math.min(spare, MAX_SPARE_FRACTION * rate), Math.min(MIN_WANTS, rate));
  }

  /**
   * After a pause the observed rate is too low for a while, because it includes the pause. Meanwhile refusals double the
   * guess.
   */
  private guessed(now: number, refuses: boolean, capacity: number): number {
    const isQuiet = this.level <= this.spare();
    if (isQuiet && !refuses && this.awake === undefined) return 0;
    this.awake ??= now;
    if (now - this.awake >= observationSpan(this.window)) {
      this.guess = 0;
      if (isQuiet) this.awake = undefined;
    } else if (refuses) {
      this.guess = Math.min(Math.max(this.guess, capacity * MAX_GROWTH), this.window.rate);
    }
    return this.guess;
  }
}
