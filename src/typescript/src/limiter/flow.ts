/**
 * Estimates the rate of a flow of arrivals from counts at a few times. Times are milliseconds.
 *
 * A short observation of a slow flow says little, and a long observation of a flow that has changed gives its former
 * rate. So the estimator compares spans of one to `MAX_SPAN_REFRESHES` refresh intervals, and uses the longest span that
 * agrees with all shorter ones. A count of k in t seconds agrees with every rate whose expected count is within `slack`
 * of k. A larger change is recognised as soon as the shortest span shows it, and older counts are ignored from then on.
 */

/** The longest span, in refresh intervals. */
const MAX_SPAN_REFRESHES = 32;

/** Counts are kept at most this often per refresh interval. The inverse is the shortest span. */
const MARKS_PER_REFRESH = 8;

/**
 * An observation begins right after the first arrivals and misses them. This underestimates evenly spaced arrivals by
 * half of the first arrivals, and independent ones not at all; the constant is the mean.
 */
const UNSEEN_FRACTION = 0.25;

/** Counts of a flow up to a time, since the limiter was created. */
export interface FlowCounts {
  readonly count: number;
  /** Arrivals that found no caller waiting. */
  readonly freely: number;
  /** Total time in which callers were waiting. */
  readonly queuedMs: number;
}

/** Arrivals per second. */
export interface Flow {
  all: number;
  /** Arrivals that found nobody waiting, divided by the time in which nobody waited. */
  freely: number;
}

interface Mark extends FlowCounts {
  readonly at: number;
}

export class FlowEstimator {
  private readonly refresh: number;
  private marks: Mark[] = [];
  /** The number of arrivals when the observation began. */
  private first = 0;

  constructor(refreshMs: number) {
    this.refresh = Math.max(Math.floor(refreshMs), 1);
  }

  /** Arrivals within the last refresh interval, or in the whole observation if that is shorter. */
  recent(now: number, count: number): number {
    let mark = this.marks[0];
    if (mark === undefined) return 0;
    for (let index = this.marks.length - 1; index >= 0; index -= 1) {
      const earlier = this.marks[index];
      if (earlier !== undefined && now - earlier.at >= this.refresh) {
        mark = earlier;
        break;
      }
    }
    return Math.max(count - mark.count, 0);
  }

  /** Whether anything has arrived since the observation began. */
  hasFewerThan(count: number): boolean {
    const oldest = this.marks[0];
    return oldest === undefined || oldest.count < count;
  }

  /** Whether callers with which the observation began are still waiting, given the number of permits served. */
  initialCallersWait(served: number): boolean {
    const oldest = this.marks[0];
    return oldest !== undefined && served < oldest.count;
  }

  /** Begins a new observation, with `first` arrivals to begin with. */
  restart(first: number): void {
    this.marks = [];
    this.first = first;
  }

  /** The age of the observation. */
  age(now: number): number {
    const oldest = this.marks[0];
    return oldest === undefined ? 0 : Math.max(now - oldest.at, 0);
  }

  /** Whether the observation is younger than a refresh interval. */
  isYoung(now: number): boolean {
    return this.age(now) <= this.refresh;
  }

  /** Takes the counts up to `now`. Returns the estimated rates. */
  sample(now: number, counts: FlowCounts): Flow {
    const newest = this.marks.at(-1) ?? { at: now, ...counts };
    // Time and counts never run backwards.
    const here: Mark = {
      at: Math.max(now, newest.at),
      count: Math.max(counts.count, newest.count),
      freely: Math.max(counts.freely, newest.freely),
      queuedMs: Math.max(counts.queuedMs, newest.queuedMs),
    };
    const flow = this.flow(here);
    this.keep(here);
    return flow;
  }

  private flow(here: Mark): Flow {
    const leastSpan = Math.max(Math.floor(this.refresh / MARKS_PER_REFRESH), 1);
    const shortest = this.isYoung(here.at) ? leastSpan : this.refresh;
    const oldest = this.marks[0];
    let least = 0;
    let most = Number.POSITIVE_INFINITY;
    const flow: Flow = { all: 0, freely: 0 };
    for (let index = this.marks.length - 1; index >= 0; index -= 1) {
      const mark = this.marks[index];
      if (mark === undefined || oldest === undefined) break;
      const span = here.at - mark.at;
      const isOldest = mark.at === oldest.at;
      // The oldest count is always used: there is no longer span.
      if (span < shortest && !isOldest) continue;
      const seconds = Math.max(span, leastSpan) / 1000;
      const arrived = here.count - mark.count;
      least = Math.max(least, (arrived - slack(arrived)) / seconds);
      most = Math.min(most, (arrived + slack(arrived)) / seconds);
      if (least > most) break;
      const unseen = isOldest && this.isYoung(here.at) ? UNSEEN_FRACTION * this.first : 0;
      flow.all = Math.min(Math.max((arrived + unseen) / seconds, least), most);
      flow.freely = freely(mark, here);
    }
    return flow;
  }

  private keep(here: Mark): void {
    const newest = this.marks.at(-1);
    if (newest === undefined || here.at - newest.at >= Math.floor(this.refresh / MARKS_PER_REFRESH)) {
      this.marks.push(here);
    }
    const horizon = this.refresh * MAX_SPAN_REFRESHES;
    const kept = this.marks.findIndex((mark) => here.at - mark.at <= horizon);
    if (kept > 0) this.marks.splice(0, kept);
  }
}

function freely(since: Mark, until: Mark): number {
  const free = Math.max(until.at - since.at - (until.queuedMs - since.queuedMs), 0) / 1000;
  // The first arrival is excluded, because it may begin that time.
  const arrived = until.freely - since.freely - 1;
  return Math.max(arrived / Math.max(free, 1e-4), 0);
}

/**
 * How far a count may be from the expected one: 1 for evenly spaced arrivals, depending on the phase, plus the standard
 * deviation of independent arrivals.
 */
function slack(arrived: number): number {
  return 1 + Math.sqrt(arrived);
}
