/**
 * The client side of the lease protocol, as a state machine without clock and I/O. Time and randomness are arguments.
 *
 * `want` adds a resource with its demand. `poll` returns the next request, if one is due. The owner sends it, reports
 * the outcome with `answered`, `redirected` or `failed`, and collects what changed with `changes`. `wake` says when to
 * come back at the latest. All times are whole milliseconds on one clock.
 *
 * Rules (the numbers are those of src/core/lease/protocol.md):
 *
 * - One request in flight (rules 6 and E9). Only the answer to the latest request counts, and releases are requests,
 *   too. A lease starts when its request was sent, so the client never uses it for longer than the server counts it.
 * - Late answers (rule 6). A request names the lease that the client has. If that lease expires before the answer
 *   arrives, the answer is dropped and the resource is asked for again at once. Requests announce this with
 *   `drops_late`. An expired lease is named as such (`had`) until there is a new one.
 * - Batching. When the first resource is due, one request asks for all of them.
 * - Confirmation (rule 10). A lease is confirmed by echoing it with the next request. If a lease shrinks, that request
 *   follows after 100 ms, because another client may be waiting for the difference.
 * - Back-off. Pauses after failures grow until every endpoint is tried once per refresh interval. Redirects are
 *   followed at once, up to five in a row.
 * - Releases. A release names the newest lease and never overtakes a request in flight. Without a lease to name,
 *   nothing is released; the unanswered grant expires.
 */

import type { Usage } from "./limiter/usage.js";
import { backoff, longestRetry, MIN_REQUEST_GAP, type Pace, type Random, refreshIn } from "./session/pace.js";
import { Route } from "./session/route.js";
import {
  MAX_RENEWED,
  type OpenStream,
  type Place,
  RenewalStream,
  ranges,
  type StreamReply,
  type StreamRequest,
} from "./session/stream.js";

export { DEFAULT_PACE, type Pace, type Random, seeded } from "./session/pace.js";
export type { StreamReply, StreamRequest } from "./session/stream.js";

/**
 * What to use when a lease expires unrenewed, or none could be obtained. The server does not guarantee this capacity,
 * because it counts expired leases as free.
 *
 * - `safe`: the safe capacity that was last received (negative: unlimited); nothing if none was received.
 * - `pessimistic`: nothing. For work that can be postponed.
 * - `optimistic`: all of the wants. For interactive work on a resource that protects itself.
 */
export type Mode = "safe" | "pessimistic" | "optimistic";

/**
 * Where a capacity comes from.
 *
 * - `unknown`: neither an answer nor a failure yet.
 * - `lease`: a live lease.
 * - `fallback`: the lease has expired, or none could be obtained; the mode decides.
 */
export type Basis = "unknown" | "lease" | "fallback";

/** What may be used of a resource now, and why. An infinite capacity is unlimited. */
export interface Usable {
  readonly capacity: number;
  readonly basis: Basis;
}

/** The fields of a lease that are echoed exactly as they were received. */
export interface Wire {
  /** Seconds since the epoch. */
  readonly expiryTime: bigint;
  /** Seconds. */
  readonly refreshInterval: bigint;
  readonly capacity: number;
}

/** A lease as its holder knows it. */
export interface Lease {
  /** The amount that may be used: finite and not negative. */
  readonly capacity: number;
  /** The expiry, counted from when the request was sent: never later than the server believes. */
  readonly end: number;
  /** The refresh interval. */
  readonly refresh: number;
  /** The name of the lease; absent from servers that speak only the original protocol. */
  readonly token: bigint | undefined;
  readonly wire: Wire;
  /** Budgets: the period. The capacity is what may be spent in it, in all. */
  readonly budget?: BudgetLease | undefined;
}

/** What the lease of a budget says besides its capacity. */
export interface BudgetLease {
  /** The period in Unix seconds. It has no end if the budget is spent once. */
  readonly start: bigint;
  readonly end: bigint | undefined;
  /** All that this incarnation had counts as spent. The client continues as another one. */
  readonly startsOver: boolean;
}

/** The report of a client of a budget. */
export interface BudgetUse {
  /** All that this incarnation has spent in the period. */
  readonly spent: number;
  /** The start of the period; 0 before the first lease. */
  readonly period: bigint;
  readonly incarnation: bigint;
  /** The smallest useful slice. */
  readonly need: number;
  /** The lease that gave the allowance. Requests name no other. */
  readonly token: bigint | undefined;
  /** Whether a larger allowance is needed soon. */
  readonly isShort: boolean;
}

/** The demand for one resource. */
export interface Wants {
  readonly amount: number;
  /** The claimed priority; its meaning depends on the resource. */
  readonly priority: number;
  /** Gauges: the amount in use, if that is more than the lease allows. */
  readonly outstanding: number;
  /** Pools: usage of the lease that is echoed with this demand. */
  readonly usage: Usage | undefined;
  /** Budgets: what was spent. */
  readonly spent?: BudgetUse | undefined;
}

/** One resource of a request for capacity. */
export interface Ask {
  readonly id: string;
  readonly demand: Wants;
  /** The newest lease, while it is live. */
  readonly has: Lease | undefined;
  /** The newest lease once it has expired: a new master may still find it among the stored promises. */
  readonly had: Lease | undefined;
}

/** One resource to release. */
export interface Release {
  readonly id: string;
  /** The name of the newest lease. */
  readonly token: bigint | undefined;
  /** Budgets: the last report. */
  readonly spent?: BudgetUse | undefined;
}

/** A request to send. */
export interface Outgoing {
  /** Identifies the request when its outcome is reported. */
  readonly number: number;
  /** The server, as `host:port`. */
  readonly target: string;
  /** When the session abandons it. */
  readonly deadline: number;
  readonly body:
    | { readonly asks: readonly Ask[] }
    | { readonly releases: readonly Release[] }
    /** A message on a stream of renewals. */
    | { readonly stream: StreamRequest };
}

/** One lease of an answer. */
export interface Given {
  readonly id: string;
  /** The length, counted from when the request was sent. */
  readonly length: number;
  readonly refresh: number;
  readonly token: bigint | undefined;
  readonly wire: Wire;
  /** The safe capacity: what to use after the lease has expired. */
  readonly safe: number | undefined;
  /** Budgets: the period. */
  readonly budget?: BudgetLease | undefined;
}

/** The settings of a session. */
export interface SessionSettings {
  /** Servers of the node, as `host:port`; at least one. */
  endpoints: readonly string[];
  pace: Pace;
  /** Maximum number of resources in one request. Others follow in the next request. */
  resourcesPerRequest: number;
  /** The source of jitter. */
  random: Random;
}

const NEVER = Number.POSITIVE_INFINITY;

/** A lease that shrinks by more than this fraction is confirmed early. */
const SHRINK_THRESHOLD = 0.005;

/** A change of demand by more than this fraction is sent at once. */
const CHANGE_THRESHOLD = 0.1;

/**
 * Resources join a message of others on a stream if they are due within this part of their refresh interval: jitter
 * spreads refreshes over a tenth of it.
 */
const JOINS_PART = 5;

/** A finite capacity. Negative numbers and NaN count as 0: a bad number must never open a limiter. */
function finiteCapacity(amount: number): number {
  return amount > 0 ? amount : 0;
}

function changed(is: number, was: number): boolean {
  return Math.abs(is - was) > was * CHANGE_THRESHOLD;
}

/** Whether a demand differs enough from the one `asked` for last that it should not wait for the next refresh. */
export function isUrgent(demand: Wants, asked: Wants): boolean {
  if (demand.spent !== undefined) return asked.spent === undefined || isReportUrgent(demand.spent, asked.spent);
  return (
    changed(demand.amount, asked.amount) ||
    changed(demand.outstanding, asked.outstanding) ||
    demand.priority !== asked.priority
  );
}

function isReportUrgent(report: BudgetUse, asked: BudgetUse): boolean {
  const hasMoved = report.spent > asked.spent || report.need > asked.need;
  return report.incarnation !== asked.incarnation || report.period !== asked.period || (report.isShort && hasMoved);
}

/**
 * Whether a renewal stands for a request with this demand. What is outstanding, was used or was spent is in each request.
 */
function isSame(demand: Wants, asked: Wants): boolean {
  const isPlain = [demand, asked].every(
    ({ outstanding, usage, spent }) => outstanding === 0 && usage === undefined && spent === undefined,
  );
  return isPlain && demand.amount === asked.amount && demand.priority === asked.priority;
}

class ResourceState {
  /** The demand in the last request. */
  asked: Wants | undefined;
  lease: Lease | undefined;
  /** The length of the lease, counted from when its request was sent. */
  length = 0;
  place: Place | undefined;
  /** The request in flight that renews the lease by its index on a stream; 0 if there is none. */
  renewedBy = 0;
  /** The expiry of the lease that the last request named, if it named one. */
  namedUntil: number | undefined;
  safe: number | undefined;
  /** Whether a request has failed since the last lease was received. */
  failed = false;
  due: number;
  /** The resource is not asked for earlier, not even together with others. */
  notBefore = 0;
  /** A release was sent: the lease must not be used any more, even if the release is lost. */
  givenBack = false;
  /** The last value given to `changes`. */
  reported: Usable | undefined;

  constructor(
    readonly id: string,
    public demand: Wants,
    public mode: Mode,
    now: number,
  ) {
    this.due = now;
  }

  schedule(at: number): void {
    this.due = Math.min(this.due, Math.max(at, this.notBefore));
  }

  liveLease(now: number): Lease | undefined {
    return this.lease !== undefined && now < this.lease.end ? this.lease : undefined;
  }

  /**
   * Whether it is due, or soon enough to join a message of others. In a steady state all resources are, once per refresh
   * interval. If one is due early, as after a cut or a hint, it does not renew all others.
   */
  joins(now: number): boolean {
    const ahead = Math.floor((this.lease?.refresh ?? 0) / JOINS_PART);
    return this.due < NEVER && this.due <= now + ahead && this.notBefore <= now;
  }

  /** Whether its index on this stream stands for a request that names its lease and its demand. */
  isRenewable(stream: number, now: number): boolean {
    const { place, asked } = this;
    if (place?.stream !== stream || !place.isKnown || asked === undefined) return false;
    return this.liveLease(now) !== undefined && isSame(this.demand, asked);
  }

  usable(now: number): Usable {
    const live = this.liveLease(now);
    if (live !== undefined) return { capacity: live.capacity, basis: "lease" };
    if (this.lease === undefined && !this.failed) return { capacity: 0, basis: "unknown" };
    return { capacity: this.fallback(), basis: "fallback" };
  }

  private fallback(): number {
    switch (this.mode) {
      case "safe":
        if (this.safe === undefined) return 0;
        return this.safe < 0 ? Number.POSITIVE_INFINITY : finiteCapacity(this.safe);
      case "pessimistic":
        return 0;
      case "optimistic":
        return finiteCapacity(this.demand.amount);
    }
  }
}

interface InFlight {
  readonly number: number;
  readonly sent: number;
  readonly deadline: number;
  readonly ids: ReadonlySet<string>;
  readonly kind: "ask" | "release" | "stream";
  /** The resources that a message on a stream renews. */
  readonly renewed: readonly ResourceState[];
}

/**
 * A cached minimum of many times, recomputed only after the current minimum was removed. A session may have a hundred
 * thousand resources, so they are scanned once per request and not with every call.
 */
class CachedMin {
  private first: number | undefined;

  insert(at: number): void {
    if (this.first !== undefined && at < this.first) this.first = at;
  }

  remove(at: number): void {
    if (this.first !== undefined && at <= this.first) this.first = undefined;
  }

  get(times: () => Iterable<number>): number {
    if (this.first === undefined) {
      let least = NEVER;
      for (const at of times()) if (at < least) least = at;
      this.first = least;
    }
    return this.first;
  }

  /** Whether it is known, without recomputing it, that the minimum is after `at`. */
  isAfter(at: number): boolean {
    return this.first !== undefined && this.first > at;
  }

  invalidate(): void {
    this.first = undefined;
  }
}

export class Session {
  private readonly pace: Pace;
  private readonly resourcesPerRequest: number;
  private readonly random: Random;
  private readonly route: Route;
  private readonly entries = new Map<string, ResourceState>();
  /** Resources whose usable capacity may differ from what was reported, apart from those whose leases have expired. */
  private unreported = new Set<string>();
  private readonly firstDue = new CachedMin();
  private readonly firstEnd = new CachedMin();
  /** Resources that are no longer wanted and not yet released. */
  private readonly leaving = new Map<string, ResourceState>();
  private current: InFlight | undefined;
  private number = 0;
  private failureCount = 0;
  /** The last request was a release and failed: resources that are due go before the next release. */
  private releaseFailed = false;
  /** End of the back-off. */
  private pauseUntil = 0;
  private lastSent: number | undefined;
  private readonly stream = new RenewalStream();

  constructor(settings: SessionSettings) {
    this.pace = settings.pace;
    this.resourcesPerRequest = Math.max(settings.resourcesPerRequest, 1);
    this.random = settings.random;
    this.route = new Route(settings.endpoints, this.random());
  }

  /**
   * Sets the demand for a resource. A new resource is asked for at once, a known one if its demand has changed enough,
   * else with the next refresh. Returns whether it will be asked for early.
   */
  want(now: number, id: string, demand: Wants, mode: Mode): boolean {
    const soon = this.earliestRequest(now);
    this.unreported.add(id);
    let returning = this.leaving.get(id);
    if (returning !== undefined) {
      this.leaving.delete(id);
      returning.due = Math.max(soon, returning.notBefore);
      // It may have been opened anew, by a handle that does not know of the lease yet.
      returning.reported = undefined;
      // The allowance of a budget belongs to the incarnation that was closed.
      if (returning.givenBack || demand.spent !== undefined) {
        // The server may have processed the release.
        const { safe } = returning;
        returning = new ResourceState(id, demand, mode, now);
        returning.safe = safe;
      }
      this.firstDue.insert(returning.due);
      if (returning.lease !== undefined) this.firstEnd.insert(returning.lease.end);
      this.entries.set(id, returning);
    }
    const entry = this.entries.get(id);
    if (entry === undefined) {
      this.firstDue.insert(now);
      this.entries.set(id, new ResourceState(id, demand, mode, now));
      return true;
    }
    const urgent = entry.asked === undefined || isUrgent(demand, entry.asked);
    if (urgent) this.schedule(entry, soon);
    entry.demand = demand;
    entry.mode = mode;
    return urgent;
  }

  /** Drops the demand for a resource; its lease is released. */
  release(id: string): void {
    const entry = this.entries.get(id);
    if (entry === undefined) return;
    this.entries.delete(id);
    this.firstDue.remove(entry.due);
    if (entry.lease !== undefined) this.firstEnd.remove(entry.lease.end);
    if (entry.asked !== undefined) this.leaving.set(id, entry);
  }

  /** Ends a back-off, so that releases are sent at once. */
  endBackoff(): void {
    this.failureCount = 0;
    this.pauseUntil = 0;
  }

  /** Reports a hint of the server: asking for this resource now would change its lease. */
  hint(now: number, id: string): void {
    const entry = this.entries.get(id);
    if (entry !== undefined) this.schedule(entry, this.earliestRequest(now));
  }

  /** As `hint`, for all resources. */
  hintAll(now: number): void {
    const soon = this.earliestRequest(now);
    for (const entry of this.entries.values()) this.schedule(entry, soon);
  }

  /** Asks for a resource no earlier than `at`, not even together with others. */
  postpone(id: string, at: number): void {
    const entry = this.entries.get(id);
    if (entry === undefined) return;
    this.firstDue.remove(entry.due);
    entry.due = Math.max(entry.due, at);
    entry.notBefore = at;
  }

  /** The request to send now, if any. A request whose deadline has passed is abandoned first. */
  poll(now: number): Outgoing | undefined {
    if (this.current !== undefined && this.current.deadline <= now) {
      const late = this.current;
      this.current = undefined;
      this.requestFailed(now, late, this.pace.backoffMax);
    }
    if (this.current !== undefined || now < this.pauseUntil) return undefined;
    // Releases that always fail must not let all other leases expire.
    const asksFirst = this.releaseFailed && this.firstDueTime() <= now;
    this.releaseFailed = false;
    const releases = asksFirst ? [] : this.releases(now);
    if (releases.length > 0) return this.begin(now, "release", releases, [], { releases });
    if (this.usesStream(now)) return this.streamRequest(now);
    // On another stream everything has to be stated again.
    this.stream.giveUp();
    const asks = this.asks(now);
    return asks.length === 0 ? undefined : this.begin(now, "ask", asks, [], { asks });
  }

  private begin(
    now: number,
    kind: InFlight["kind"],
    named: readonly { id: string }[],
    renewed: readonly ResourceState[],
    body: Outgoing["body"],
  ): Outgoing {
    this.number += 1;
    const deadline = now + this.pace.deadline;
    this.current = { number: this.number, sent: now, deadline, ids: new Set(named.map(({ id }) => id)), kind, renewed };
    this.lastSent = now;
    return { number: this.number, target: this.route.target, deadline, body };
  }

  // -- Renewal by a stream, see `session/stream.ts`.

  /**
   * Reports whether `server` accepts streams of renewals. One is used from `resources` resources on; `undefined` means
   * that it does not.
   */
  offerStream(server: string, resources: number | undefined): void {
    this.stream.offer(server, resources);
  }

  /** The number of the stream on which leases are renewed at present. */
  get streamNumber(): number | undefined {
    return this.stream.open?.number;
  }

  /** The resource with this index on the stream. */
  streamId(index: number): string | undefined {
    return this.stream.open?.ids[index];
  }

  private usesStream(now: number): boolean {
    return this.stream.isUsed(now, this.route.target, this.entries.size);
  }

  private streamRequest(now: number): Outgoing | undefined {
    if (this.firstDueTime() > now) return undefined;
    const open = this.stream.openTo(this.route.target, this.entries.size);
    const renewed = this.renewDue(open, now);
    const stated = this.earliest((entry) => entry.joins(now) && !entry.isRenewable(open.number, now)).map((entry) => {
      let index = entry.place?.index ?? 0;
      if (entry.place?.stream !== open.number) index = open.ids.push(entry.id) - 1;
      entry.place = { stream: open.number, index, isKnown: false };
      return { index, ask: this.askFor(entry, now) };
    });
    if (stated.length === 0 && renewed.length === 0) return undefined;
    const request: StreamRequest = {
      stream: open.number,
      sequence: open.next,
      stated,
      renewed: ranges(renewed.map(({ place }) => place?.index ?? 0)),
    };
    const named = stated.map(({ ask }) => ask);
    return this.begin(now, "stream", named, renewed, { stream: request });
  }

  /** Makes the renewable resources that are due part of the next request. Returns them in order of their indexes. */
  private renewDue(open: OpenStream, now: number): ResourceState[] {
    const renewed: ResourceState[] = [];
    for (const entry of this.entries.values()) {
      if (renewed.length === MAX_RENEWED) break;
      if (!entry.joins(now) || !entry.isRenewable(open.number, now)) continue;
      renewed.push(entry);
      entry.namedUntil = entry.lease?.end;
      entry.renewedBy = this.number + 1;
      this.firstDue.remove(entry.due);
      entry.due = NEVER;
    }
    return renewed.sort((a, b) => (a.place?.index ?? 0) - (b.place?.index ?? 0));
  }

  /**
   * Reports the answer of the master to request `number`, which was a message on a stream. Returns the resources whose
   * leases it renews or replaces, or `undefined` if it does not count.
   */
  streamAnswered(now: number, number: number, reply: StreamReply): string[] | undefined {
    const inFlight = this.takeInFlight(number);
    const { open } = this.stream;
    if (inFlight?.kind !== "stream") return undefined;
    this.route.succeeded();
    if (open === undefined) return undefined;
    if (reply.restart) {
      // A server that does not even accept the first message would be asked again and again.
      this.stream.fail(now);
      this.retry(now, inFlight);
      return [];
    }
    this.failureCount = 0;
    this.stream.succeeded(open.target);
    open.next += 1;
    const answered: string[] = [];
    for (const { index, given } of reply.granted) {
      const id = open.ids[index];
      if (id === undefined) continue;
      if (!this.isAskedBy(inFlight, id)) {
        // The server takes it for the newest lease now. The next message states the one that is held.
        this.noteAnswer(id, false);
        continue;
      }
      const before = this.lease(now, id)?.capacity ?? 0;
      // After a cut, more may be in use than the lease allows. A renewal cannot say so.
      const isCut = finiteCapacity(given.wire.capacity) < before;
      const isTaken = this.storeLease(now, inFlight.sent, { ...given, id });
      this.noteAnswer(id, isTaken && given.token !== undefined && !isCut);
      answered.push(id);
    }
    for (const index of reply.leftOut) {
      const id = open.ids[index];
      if (id === undefined) continue;
      this.noteAnswer(id, false);
      this.keepLease(now, id);
    }
    for (const id of inFlight.ids) this.keepLease(now, id);
    return [...answered, ...this.extendLeases(now, inFlight, reply.unix)];
  }

  /** Whether a message states or renews a resource. */
  private isAskedBy({ ids, number }: InFlight, id: string): boolean {
    const entry = this.entries.get(id) ?? this.leaving.get(id);
    return ids.has(id) || entry?.renewedBy === number;
  }

  private noteAnswer(id: string, isKnown: boolean): void {
    const entry = this.entries.get(id);
    if (entry === undefined) return;
    entry.renewedBy = 0;
    if (entry.place !== undefined) entry.place.isKnown = isKnown;
  }

  /** Extends the leases that the answer to this request does not list. Returns their resources. */
  private extendLeases(now: number, inFlight: InFlight, unix: bigint): string[] {
    const soon = this.earliestRequest(now);
    const extended: string[] = [];
    for (const entry of this.renewedBy(inFlight)) {
      entry.renewedBy = 0;
      const { lease } = entry;
      if (lease === undefined) continue;
      if (entry.namedUntil !== undefined && entry.namedUntil <= now) {
        // See `storeLease`.
        if (entry.place !== undefined) entry.place.isKnown = false;
        this.schedule(entry, soon);
        continue;
      }
      this.firstEnd.remove(lease.end);
      const expiryTime = unix + BigInt(Math.floor(entry.length / 1000));
      const end = inFlight.sent + entry.length;
      entry.lease = { ...lease, end, wire: { ...lease.wire, expiryTime } };
      this.firstEnd.insert(end);
      entry.failed = false;
      this.schedule(entry, now + refreshIn(this.pace, lease.refresh, Math.max(end - now, 0), this.random));
      extended.push(entry.id);
    }
    return extended;
  }

  /** The wanted resources that a message renews, as far as nothing was said about them. */
  private renewedBy({ number, renewed }: InFlight): ResourceState[] {
    return renewed.filter((entry) => entry.renewedBy === number && this.entries.get(entry.id) === entry);
  }

  /**
   * Reports that the server, or a proxy before it, does not know streams. Request `number` is sent again by GetCapacity,
   * at once. Returns whether the failure still counts.
   */
  streamRefused(now: number, number: number): boolean {
    const inFlight = this.takeInFlight(number);
    if (inFlight === undefined) return false;
    this.retry(now, inFlight);
    this.stream.refused(now, this.route.target);
    return true;
  }

  /** Makes all resources of a request due at once, and gives up the stream. */
  private retry(now: number, inFlight: InFlight): void {
    this.stream.giveUp();
    for (const id of inFlight.ids) {
      const entry = this.entries.get(id);
      if (entry !== undefined) this.schedule(entry, now);
    }
    for (const entry of this.renewedBy(inFlight)) {
      entry.renewedBy = 0;
      this.schedule(entry, now);
    }
  }

  /** Schedules the refresh of a resource that was left out of an answer. Its lease stays unchanged. */
  private keepLease(now: number, id: string): void {
    const entry = this.entries.get(id);
    if (entry === undefined || entry.due < NEVER) return;
    const { lease } = entry;
    const pause =
      lease === undefined
        ? Math.max(this.pace.refreshMin, MIN_REQUEST_GAP)
        : refreshIn(this.pace, lease.refresh, Math.max(lease.end - now, 0), this.random);
    this.schedule(entry, now + pause);
  }

  /** When `poll` or `changes` has to be called at the latest; `undefined` if that depends on other events. */
  wake(now: number): number | undefined {
    let wake = NEVER;
    if (this.current !== undefined) wake = this.current.deadline;
    else if (this.leaving.size > 0) wake = this.pauseUntil;
    else if (this.entries.size > 0) wake = Math.max(this.firstDueTime(), this.pauseUntil);
    if (!this.firstEnd.isAfter(now)) this.firstEnd.invalidate();
    wake = Math.min(
      wake,
      this.firstEnd.get(() => this.liveEnds(now)),
    );
    return wake < NEVER ? wake : undefined;
  }

  /** Whether a request would be sent now, so that demands should be updated. */
  isDue(now: number): boolean {
    return (
      this.current === undefined && this.pauseUntil <= now && (this.leaving.size > 0 || this.firstDueTime() <= now)
    );
  }

  /** The resources that a request sent now would ask for. */
  dueResources(now: number): string[] {
    if (this.firstDueTime() > now) return [];
    if (this.usesStream(now)) return [...this.entries.values()].filter((one) => one.joins(now)).map(({ id }) => id);
    return this.due(now).map(({ id }) => id);
  }

  private due(now: number): ResourceState[] {
    if (this.firstDueTime() > now) return [];
    const until = now + this.pace.ahead;
    // The due time of a resource whose request is in flight is infinite.
    return this.earliest((entry) => entry.due <= until && entry.due < NEVER && entry.notBefore <= now);
  }

  /** The chosen resources: at most as many as fit into a request, those first that are due first. */
  private earliest(isChosen: (entry: ResourceState) => boolean): ResourceState[] {
    const due = [...this.entries.values()].filter(isChosen);
    if (due.length > this.resourcesPerRequest) {
      due.sort((a, b) => a.due - b.due || (a.id < b.id ? -1 : 1));
      due.length = this.resourcesPerRequest;
    }
    return due;
  }

  /** Whether nothing is wanted and everything has been released. */
  isIdle(): boolean {
    return this.entries.size === 0 && this.leaving.size === 0 && this.current === undefined;
  }

  /** Reports the answer of the master to request `number`. Returns whether it still counts. */
  answered(now: number, number: number, given: readonly Given[]): boolean {
    const inFlight = this.takeInFlight(number);
    if (inFlight === undefined) return false;
    this.failureCount = 0;
    this.route.succeeded();
    if (inFlight.kind === "release") {
      for (const id of inFlight.ids) this.leaving.delete(id);
      return true;
    }
    for (const lease of given) {
      // Leases that this request did not ask for are ignored.
      if (inFlight.ids.has(lease.id)) this.storeLease(now, inFlight.sent, lease);
    }
    // Left out of the answer: too soon, or refused.
    for (const id of inFlight.ids) this.keepLease(now, id);
    return true;
  }

  /** Reports that the server is not the master, and which server is, if it knows. Returns whether that still counts. */
  redirected(now: number, number: number, master: string | undefined): boolean {
    const inFlight = this.takeInFlight(number);
    if (inFlight === undefined) return false;
    if (master !== undefined && this.route.redirected(master)) {
      this.retry(now, inFlight);
    } else {
      // It has answered on the stream, so it accepts streams.
      this.stream.giveUp();
      // A node that is up and has no master will elect one soon.
      this.requestFailed(now, inFlight, master === undefined ? this.pace.masterlessMax : this.pace.backoffMax);
    }
    return true;
  }

  /** Reports that request `number` has failed. Returns whether that still counts. */
  failed(now: number, number: number): boolean {
    const inFlight = this.takeInFlight(number);
    if (inFlight === undefined) return false;
    this.requestFailed(now, inFlight, this.pace.backoffMax);
    return true;
  }

  /** Calls `report` for each resource whose usable capacity differs from what was last reported. */
  changes(now: number, report: (id: string, usable: Usable) => void): void {
    const check = (entry: ResourceState) => {
      const usable = entry.usable(now);
      const { reported } = entry;
      if (reported !== undefined && reported.capacity === usable.capacity && reported.basis === usable.basis) return;
      entry.reported = usable;
      report(entry.id, usable);
    };
    const { unreported } = this;
    this.unreported = new Set();
    if (this.firstEnd.isAfter(now)) {
      for (const id of unreported) {
        const entry = this.entries.get(id);
        if (entry !== undefined) check(entry);
      }
    } else {
      for (const entry of this.entries.values()) check(entry);
    }
  }

  /** Reports this resource again, with the next `changes`: it has a new handle. */
  reportAgain(id: string): void {
    this.unreported.add(id);
    const entry = this.entries.get(id);
    if (entry !== undefined) entry.reported = undefined;
  }

  /** What may be used of a resource now. */
  usable(now: number, id: string): Usable | undefined {
    return this.entries.get(id)?.usable(now);
  }

  /** The live lease of a resource. */
  lease(now: number, id: string): Lease | undefined {
    return this.entries.get(id)?.liveLease(now);
  }

  /**
   * Learns the peers of the node from its master. They are tried after the configured endpoints, and replace the peers
   * learnt before.
   */
  learn(peers: Iterable<string>): void {
    this.route.learn(peers);
  }

  /** All endpoints that are tried in turn while none answers. */
  get endpoints(): readonly string[] {
    return this.route.endpoints;
  }

  /** The endpoint that requests go to at present. */
  get target(): string {
    return this.route.target;
  }

  /** The number of the request in flight. */
  get inFlight(): number | undefined {
    return this.current?.number;
  }

  /** The number of failures since the last answer. */
  get failures(): number {
    return this.failureCount;
  }

  /** Whether the last request was a release that has failed. */
  get hasReleaseFailed(): boolean {
    return this.releaseFailed;
  }

  private schedule(entry: ResourceState, at: number): void {
    entry.schedule(at);
    this.firstDue.insert(entry.due);
  }

  /** Now, or a little later if a request has just been sent. */
  private earliestRequest(now: number): number {
    return this.lastSent === undefined ? now : Math.max(now, this.lastSent + MIN_REQUEST_GAP);
  }

  private firstDueTime(): number {
    return this.firstDue.get(() => this.dueTimes());
  }

  private *dueTimes(): Iterable<number> {
    for (const entry of this.entries.values()) yield entry.due;
  }

  private *liveEnds(now: number): Iterable<number> {
    for (const entry of this.entries.values()) {
      const live = entry.liveLease(now);
      if (live !== undefined) yield live.end;
    }
  }

  /** Takes the request in flight if it is `number`. Answers to earlier requests do not count. */
  private takeInFlight(number: number): InFlight | undefined {
    const { current } = this;
    if (current?.number !== number) return undefined;
    this.current = undefined;
    return current;
  }

  private requestFailed(now: number, inFlight: InFlight, longest: number): void {
    this.failureCount += 1;
    this.route.failed();
    const bounded = Math.min(longest, this.longestRetry());
    this.pauseUntil = now + backoff(this.pace, this.failureCount, bounded, now - inFlight.sent, this.random);
    this.stream.fail(now);
    for (const entry of this.renewedBy(inFlight)) {
      entry.renewedBy = 0;
      entry.failed = true;
      this.schedule(entry, now);
    }
    if (inFlight.kind === "release") {
      // Retried until the leases expire.
      this.releaseFailed = true;
      return;
    }
    for (const id of inFlight.ids) {
      const entry = this.entries.get(id);
      if (entry === undefined) continue;
      entry.failed = true;
      this.schedule(entry, now);
      this.unreported.add(id);
    }
  }

  private longestRetry(): number {
    let refresh: number | undefined;
    for (const { lease } of this.entries.values()) {
      if (lease !== undefined) refresh = Math.min(refresh ?? NEVER, lease.refresh);
    }
    return longestRetry(this.pace, refresh, this.route.endpoints.length);
  }

  /** The leases to release. Those that have expired meanwhile are dropped. */
  private releases(now: number): Release[] {
    const releases: Release[] = [];
    for (const [id, entry] of this.leaving) {
      const lease = entry.liveLease(now);
      if (lease === undefined) this.leaving.delete(id);
      else if (releases.length < this.resourcesPerRequest) {
        entry.givenBack = true;
        releases.push({ id, token: lease.token, spent: entry.demand.spent });
      }
    }
    return releases;
  }

  private asks(now: number): Ask[] {
    return this.due(now).map((entry) => this.askFor(entry, now));
  }

  /** Asks for one resource: it is due again with the answer. */
  private askFor(entry: ResourceState, now: number): Ask {
    entry.asked = entry.demand;
    this.firstDue.remove(entry.due);
    entry.due = NEVER;
    const has = entry.liveLease(now);
    const had = has === undefined && entry.lease?.token !== undefined ? entry.lease : undefined;
    entry.namedUntil = has?.end;
    return { id: entry.id, demand: entry.demand, has, had };
  }

  /** Returns whether the lease was taken. */
  private storeLease(now: number, sent: number, given: Given): boolean {
    const soon = this.earliestRequest(now);
    const wanted = this.entries.get(given.id);
    const entry = wanted ?? this.leaving.get(given.id);
    if (entry === undefined) return false;
    if (entry.demand.spent?.incarnation !== entry.asked?.spent?.incarnation) {
      // It answers an earlier incarnation of this client of a budget, whose allowance is not that of this one.
      entry.schedule(soon);
      if (wanted !== undefined) this.firstDue.insert(entry.due);
      return false;
    }
    if (entry.namedUntil !== undefined && entry.namedUntil <= now) {
      // A new master may have counted the named lease as live although its capacity belongs to another client by now.
      // The next request names the lease as expired, so its answer counts whenever it arrives.
      entry.schedule(soon);
      if (wanted !== undefined) this.firstDue.insert(entry.due);
      return false;
    }
    const capacity = finiteCapacity(given.wire.capacity);
    const end = sent + given.length;
    const before = entry.liveLease(now)?.capacity ?? 0;
    const shrank = capacity < before * (1 - SHRINK_THRESHOLD);
    const refresh = now + refreshIn(this.pace, given.refresh, Math.max(end - now, 0), this.random);
    // If a hint or a change of demand came while the request was in flight, the due time is set already, and the next
    // request follows at once.
    entry.schedule(shrank && given.token !== undefined ? now + MIN_REQUEST_GAP : refresh);
    if (wanted !== undefined) {
      this.firstDue.insert(entry.due);
      if (entry.lease !== undefined) this.firstEnd.remove(entry.lease.end);
      this.firstEnd.insert(end);
      this.unreported.add(given.id);
    }
    const { refresh: interval, token, wire, budget } = given;
    entry.lease = { capacity, end, refresh: interval, token, wire, budget };
    entry.length = given.length;
    entry.safe = given.safe ?? entry.safe;
    entry.failed = false;
    return true;
  }
}
