/**
 * Runs the session of a client: sends requests when they are due, reports their outcome, applies what may be used to the
 * limiters, and follows the hints of the master.
 */

import { status } from "@grpc/grpc-js";

import type { KeepAlive, SystemClock } from "./clock.js";
import { messageOf } from "./credentials.js";
import { parseAddress } from "./endpoint.js";
import { ClosedError, MAX_NAMED, NotReadyError, named, OpenError } from "./errors.js";
import { Hints } from "./hints.js";
import type { Usage } from "./limiter/usage.js";
import { OpenResource, type OpenSettings } from "./open-resource.js";
import { Outage, Throttle } from "./outage.js";
import {
  DiscoveryRequest,
  DiscoveryResponse,
  GetCapacityRequest,
  GetCapacityResponse,
  type Problem,
  ReleaseCapacityRequest,
  ReleaseCapacityResponse,
  RenewRequest,
  RenewResponse,
  type ResourceResponse,
} from "./protocol/messages.js";
import {
  getCapacity,
  isTransient,
  leasesOf,
  poolOf,
  redirectOf,
  refusalOf,
  releaseCapacity,
  renew,
  renewed,
} from "./protocol/wire.js";
import { quoted } from "./quoted.js";
import type { Ask, Lease, Outgoing, Release, Session, StreamRequest, Usable } from "./session.js";
import {
  type CallError,
  type Connection,
  type Exchange,
  explain,
  METHODS,
  type Method,
  type Transport,
} from "./transport.js";

/** Minimum time between estimates of demand that are due to waiting callers. */
const MIN_ESTIMATE_INTERVAL = 100;
/** The first request for a resource is delayed by this, because a first caller commonly arrives right after opening. */
const FIRST_REQUEST_DELAY = 5;
/** The maximum time until a suspend of the machine is noticed. */
const CHECK_INTERVAL = 1_000;
/** Peers change rarely, and a late update does no harm. */
const REDISCOVERY_INTERVAL = 300_000;
/** The pause after a request for peers that has failed. */
const DISCOVERY_RETRY = 10_000;
/** With fewer resources a request for all of them is short. */
const MIN_STREAMED = 100;

/** Errors after which a connection should not be used again. */
const BROKEN: ReadonlySet<status> = new Set([
  status.CANCELLED,
  status.UNKNOWN,
  status.DEADLINE_EXCEEDED,
  status.INTERNAL,
  status.UNAVAILABLE,
]);

const GET_CAPACITY: Method<GetCapacityRequest, GetCapacityResponse> = {
  path: METHODS.getCapacity,
  request: GetCapacityRequest,
  answer: GetCapacityResponse,
};
const RELEASE_CAPACITY: Method<ReleaseCapacityRequest, ReleaseCapacityResponse> = {
  path: METHODS.releaseCapacity,
  request: ReleaseCapacityRequest,
  answer: ReleaseCapacityResponse,
};
const DISCOVERY: Method<DiscoveryRequest, DiscoveryResponse> = {
  path: METHODS.discovery,
  request: DiscoveryRequest,
  answer: DiscoveryResponse,
};

const RENEW: Method<RenewRequest, RenewResponse> = {
  path: METHODS.renew,
  request: RenewRequest,
  answer: RenewResponse,
};

/**
 * A server, or a proxy before it, does not take streams of renewals from this client. Other errors may as well mean that
 * the connection broke.
 */
const REFUSES_STREAMS: ReadonlySet<status> = new Set([status.UNIMPLEMENTED, status.ABORTED, status.RESOURCE_EXHAUSTED]);

export type LogLevel = "debug" | "info" | "warn";

/** Receives the log lines of a client. */
export type Log = (level: LogLevel, message: string) => void;

/** The state of the connection to the servers. */
export interface Health {
  /** The server that is asked at present: the master, as far as is known. */
  readonly server: string;
  /** The servers that are tried when that one does not answer: the configured endpoints and the discovered peers. */
  readonly endpoints: readonly string[];
  /** The number of failed requests since the last answer. */
  readonly failures: number;
  /** The error of the last failed request. */
  readonly lastError: string | undefined;
  /** The debt of each rate that has any. */
  readonly debts: Readonly<Record<string, number>>;
}

/** Counters of a client since it was created. */
export interface Counters {
  /** Requests that have ended. */
  requests: number;
  /** Requests that have failed. */
  requestErrors: number;
  /** Answers of servers that were not the master. */
  redirects: number;
  /** Hints that named resources. */
  hints: number;
  /** Leases that have ended unrenewed. */
  leasesEnded: number;
  /** Resources that were left out of answers. */
  leftOut: number;
  /** Permits that were not charged because the maximum debt was reached. */
  uncharged: number;
}

/** A change of leased capacity, for audits. */
export interface LeaseChange {
  /** Milliseconds since the epoch. */
  readonly atUnixMs: number;
  /** The id of the client. */
  readonly client: string;
  readonly resource: string;
  /** The leased capacity from now on; 0 without a live lease. */
  readonly capacity: number;
}

export interface DriverSettings {
  readonly id: string;
  readonly session: Session;
  readonly transport: Transport;
  readonly clock: SystemClock;
  readonly keepAlive: KeepAlive;
  readonly deadlineMs: number;
  readonly hints: boolean;
  readonly log: Log;
  readonly onLeaseChange: ((change: LeaseChange) => void) | undefined;
}

interface Sent {
  readonly number: number;
  readonly server: string;
  readonly connection: Connection | undefined;
  readonly cancel: () => void;
}

export class Driver {
  readonly counters: Counters = {
    requests: 0,
    requestErrors: 0,
    redirects: 0,
    hints: 0,
    leasesEnded: 0,
    leftOut: 0,
    uncharged: 0,
  };
  readonly opened = new Map<string, OpenResource>();
  /** Resolved when the driver has ended and no lease is renewed any more. */
  readonly ended: Promise<void>;
  /** No resources can be opened. */
  closing = false;
  private resolveEnded: () => void = () => {};
  private readonly session: Session;
  private readonly clock: SystemClock;
  private readonly hints: Hints | undefined;
  private readonly outage = new Outage();
  private lastError: string | undefined;
  /** Nothing is sent. */
  private abandoned = false;
  private done = false;
  private sent: Sent | undefined;
  /** The connection of the last request. */
  private connection: Connection | undefined;
  /** The stream of renewals, with its number in the session. */
  private renewals: { readonly number: number; readonly exchange: Exchange<RenewRequest, RenewResponse> } | undefined;
  private cancelDiscovery: () => void = () => {};
  /** The connection over which peers were last asked for, and when to ask again. */
  private discovered: { connection: Connection; again: number } | undefined;
  /** Usage that the last request reported, by resource. */
  private reportedUsage = new Map<string, Usage>();
  /** When to estimate all demands next. */
  private estimateAt: number | undefined;
  private estimated = 0;
  /** Earlier estimates of single resources. */
  private readonly scheduledEstimates = new Map<string, number>();
  private readonly leftOutLog = new Throttle();
  private readonly malformedLog = new Throttle();
  private readonly expiryLog = new Throttle();
  /** The number of leases that have expired since this was last logged. */
  private expired = 0;
  private cancelTimer: () => void = () => {};
  private stepScheduled = false;
  /** A step is in progress: what happens meanwhile is part of it. */
  private stepping = false;
  private readonly watchers = new Set<() => void>();

  constructor(private readonly settings: DriverSettings) {
    this.session = settings.session;
    this.clock = settings.clock;
    this.hints = settings.hints ? new Hints(settings.id, (resources) => this.hinted(resources)) : undefined;
    this.ended = new Promise((resolve) => {
      this.resolveEnded = resolve;
    });
  }

  // -- Handles.

  /** Adds a handle of a resource. The first handle opens it; others have to be of the same kind. */
  open(id: string, settings: OpenSettings): OpenResource {
    if (this.closing) throw new ClosedError();
    const known = this.opened.get(id);
    if (known !== undefined) {
      const { kind } = known.limiter;
      if (kind !== settings.kind) {
        throw new OpenError(
          `resource \`${id}\` is open already, as a ${kind}; the same resource cannot be a ${settings.kind} as well`,
        );
      }
      const other = known.conflict(settings.set);
      if (other !== undefined) {
        const hint = "use the same value in each place that opens it, or leave it out";
        throw new OpenError(`resource \`${id}\` is open already, with another \`${other}\`: ${hint}`);
      }
      known.handles += 1;
      return known;
    }
    const { keepAlive } = this.settings;
    const resource = new OpenResource(id, settings, this.clock, {
      pressure: () => this.notePressure(),
      waiting: (callersWait) => (callersWait ? keepAlive.hold() : keepAlive.letGo()),
    });
    resource.handles = 1;
    this.opened.set(id, resource);
    const now = this.clock.nowMs();
    this.want(now, resource);
    if (resource.estimatesWants) this.session.postpone(id, now + FIRST_REQUEST_DELAY);
    this.session.reportAgain(id);
    this.scheduleStep();
    return resource;
  }

  /** Removes a handle. With the last one the lease is released, or once no permit is in use. */
  closeHandle(resource: OpenResource): void {
    resource.handles -= 1;
    if (resource.handles > 0 || !this.isOpen(resource)) return;
    resource.refuseWaiters();
    this.closeUnused(resource);
  }

  /** Whether the resource has its lease, or will get one. */
  isOpen(resource: OpenResource): boolean {
    return this.opened.get(resource.id) === resource;
  }

  /** Keeps the resource open until `letGo`. */
  hold(resource: OpenResource): void {
    resource.holds += 1;
  }

  letGo(resource: OpenResource): void {
    resource.holds -= 1;
    this.closeUnused(resource);
  }

  private closeUnused(resource: OpenResource): void {
    if (resource.handles > 0 || resource.holds > 0 || !this.isOpen(resource)) return;
    this.opened.delete(resource.id);
    this.giveBack(resource);
    this.announceClosed(resource);
    this.scheduleStep();
  }

  /** Closes the limiter, then releases the lease. Calls no listeners, which may close others, or the client. */
  private giveBack(resource: OpenResource): void {
    this.scheduledEstimates.delete(resource.id);
    resource.close();
    this.reportLast(resource);
    this.session.release(resource.id);
  }

  private announceClosed(resource: OpenResource): void {
    resource.announceClosed();
    this.recordLease(resource.id, 0);
  }

  /** Reports what was spent of a budget before its lease is released. */
  private reportLast(resource: OpenResource): void {
    if (resource.limiter.kind !== "budget") return;
    const now = this.clock.nowMs();
    this.session.want(now, resource.id, resource.wants(now), resource.mode);
  }

  /** Updates the demand for a resource. It is sent at once if it has changed enough. */
  demandChanged(resource: OpenResource): void {
    if (!this.isOpen(resource)) return;
    this.want(this.clock.nowMs(), resource);
    this.scheduleStep();
  }

  /** Releases all leases and ends the driver. */
  close(): void {
    if (this.closing) return;
    this.closing = true;
    const resources = [...this.opened.values()];
    this.opened.clear();
    for (const resource of resources) this.giveBack(resource);
    this.session.endBackoff();
    for (const resource of resources) this.announceClosed(resource);
    this.scheduleStep();
  }

  /** Ends the driver without releasing leases; they count until they expire. */
  abandon(): void {
    this.abandoned = true;
    this.close();
    this.scheduleStep();
  }

  /** Waits until `only`, or every open resource, has a lease. */
  async ready(only: OpenResource | undefined, timeoutMs: number): Promise<void> {
    if (this.closing || (only !== undefined && !this.isOpen(only))) throw new ClosedError();
    const resources = only === undefined ? [...this.opened.values()] : [only];
    const isLeased = (resource: OpenResource) => resource.usable.basis === "lease";
    // Resources that were closed meanwhile do not count.
    const missing = () => resources.filter((one) => !isLeased(one) && (this.closing || this.isOpen(one)));
    const { keepAlive } = this.settings;
    keepAlive.hold();
    const stops: (() => void)[] = [];
    try {
      await new Promise<void>((resolve) => {
        // Closing a resource calls its watchers, too.
        const check = () => {
          if (this.closing || missing().length === 0) resolve();
        };
        for (const resource of resources) stops.push(resource.watch(check));
        stops.push(this.clock.setTimer(this.clock.now() + timeoutMs, resolve));
        check();
      });
    } finally {
      for (const stop of stops) stop();
      keepAlive.letGo();
    }
    if (only !== undefined && !this.closing && !this.isOpen(only)) throw new ClosedError();
    const without = missing().map((resource) => resource.id);
    if (without.length === 0) return;
    let why = `no request has failed, and ${this.session.target} has not answered within ${timeoutMs} ms`;
    if (this.closing) why = "the client was closed";
    else if (this.session.failures > 0 && this.lastError !== undefined) why = this.lastError;
    throw new NotReadyError(without.sort(), why);
  }

  /** Calls `watcher` when the usable capacity of any resource has changed. Returns what stops that. */
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  lease(id: string): { lease: Lease; leftMs: number } | undefined {
    const now = this.clock.nowMs();
    const lease = this.session.lease(now, id);
    return lease && { lease, leftMs: lease.end - now };
  }

  health(): Health {
    const debts: Record<string, number> = {};
    for (const resource of this.opened.values()) {
      const debt = resource.debt();
      if (debt > 0) debts[resource.id] = debt;
    }
    return {
      server: this.session.target,
      endpoints: [...this.session.endpoints],
      failures: this.session.failures,
      lastError: this.lastError,
      debts,
    };
  }

  // -- The loop.

  private scheduleStep(): void {
    if (this.stepScheduled || this.done) return;
    this.stepScheduled = true;
    queueMicrotask(() => {
      this.stepScheduled = false;
      this.step();
    });
  }

  private step(): void {
    if (this.done || this.stepping) return;
    this.stepping = true;
    try {
      this.takeStep();
    } finally {
      this.stepping = false;
    }
  }

  private takeStep(): void {
    this.clock.checkSuspended();
    const now = this.clock.nowMs();
    for (const resource of this.takeDueEstimates(now)) this.want(now, resource);
    const outgoing = this.abandoned ? undefined : this.session.poll(now);
    if (this.sent !== undefined && this.session.inFlight !== this.sent.number) this.abandonRequest();
    this.applyChanges(now);
    if (outgoing !== undefined) this.send(outgoing);
    if (this.isFinished()) {
      this.finish();
      return;
    }
    this.arm();
  }

  /** A limiter has noticed that its lease has expired, possibly before the driver did. */
  private leaseExpired(resource: OpenResource, at: number): void {
    const usable = this.session.usable(at, resource.id);
    resource.expire(at, usable?.capacity ?? 0);
    this.step();
  }

  /** Leases that cannot be released now expire. */
  private isFinished(): boolean {
    if (this.abandoned) return true;
    const { session } = this;
    return this.closing && session.inFlight === undefined && (session.isIdle() || session.hasReleaseFailed);
  }

  private finish(): void {
    this.done = true;
    this.cancelTimer();
    this.hints?.stop();
    this.sent?.cancel();
    this.cancelDiscovery();
    this.closeRenewals();
    this.connection?.close();
    this.settings.keepAlive.close();
    this.resolveEnded();
  }

  private arm(): void {
    this.cancelTimer();
    let at = Math.min(this.session.wake(this.clock.nowMs()) ?? Number.POSITIVE_INFINITY, this.estimateAt ?? Infinity);
    for (const scheduled of this.scheduledEstimates.values()) at = Math.min(at, scheduled);
    if (at === Number.POSITIVE_INFINITY) return;
    const checkAt = this.clock.now() + CHECK_INTERVAL;
    this.cancelTimer = this.clock.setTimer(Math.min(at, checkAt), () => {
      this.clock.checkSuspended();
      if (this.clock.nowMs() >= at) this.step();
      else this.arm();
    });
  }

  private send({ number, target, body }: Outgoing): void {
    try {
      const connection = this.connectionTo(target);
      let cancel: () => void;
      if ("stream" in body) cancel = this.renew(number, connection, body.stream);
      else if ("asks" in body) cancel = this.ask(number, connection, body.asks);
      else cancel = this.release(number, connection, body.releases);
      this.sent = { number, server: target, connection, cancel };
    } catch (error) {
      this.sent = { number, server: target, connection: undefined, cancel: () => {} };
      queueMicrotask(() => this.requestEnded(number, { code: status.INTERNAL, message: messageOf(error) }));
    }
  }

  private noteUsage(asks: readonly Ask[]): void {
    this.reportedUsage = new Map();
    for (const { id, demand } of asks) if (demand.usage !== undefined) this.reportedUsage.set(id, demand.usage);
  }

  /** Sends a message on the stream of renewals, which is opened by the first. */
  private renew(number: number, connection: Connection, message: StreamRequest): () => void {
    this.noteUsage(message.stated.map(({ ask }) => ask));
    const sentUnixMs = Date.now();
    if (this.renewals?.number !== message.stream) {
      this.closeRenewals();
      this.renewals = { number: message.stream, exchange: connection.exchange(RENEW) };
    }
    this.renewals.exchange.send(renew(this.settings.id, message), (answer, error) => {
      if (answer === undefined) {
        this.closeRenewals();
        if (error !== undefined && REFUSES_STREAMS.has(error.code)) return this.streamRefused(number, error);
        return this.requestEnded(number, error);
      }
      if (answer.sequence !== BigInt(message.sequence)) {
        this.closeRenewals();
        // What it decides is for other leases, or was applied already.
        const why = `message ${message.sequence} got the answer to message ${answer.sequence ?? 0}`;
        return this.requestEnded(number, { code: status.DATA_LOSS, message: why });
      }
      const redirect = redirectOf(answer.mastership);
      if (redirect !== undefined || answer.restart !== undefined) this.closeRenewals();
      if (redirect !== undefined) return this.redirected(number, redirect.master);
      this.renewed(number, answer, sentUnixMs);
    });
    return () => this.closeRenewals();
  }

  private closeRenewals(): void {
    this.renewals?.exchange.close();
    this.renewals = undefined;
  }

  private streamRefused(number: number, error: CallError): void {
    const sent = this.takeSent(number);
    if (sent === undefined) return;
    this.counters.requests += 1;
    this.lastError = quoted(`${sent.server} refuses a stream of renewals: ${error.message}`);
    this.settings.log("debug", this.lastError);
    this.session.streamRefused(this.clock.nowMs(), number);
    this.step();
  }

  private ask(number: number, connection: Connection, asks: readonly Ask[]): () => void {
    this.noteUsage(asks);
    // The session has given the stream up.
    this.closeRenewals();
    const sentUnixMs = Date.now();
    return connection.call(GET_CAPACITY, getCapacity(this.settings.id, asks), (answer, error) => {
      if (answer === undefined) return this.requestEnded(number, error);
      const refusal = refusalOf(answer.problem, answer.response.length);
      if (refusal !== undefined)
        return this.requestEnded(number, { code: status.RESOURCE_EXHAUSTED, message: refusal });
      const redirect = redirectOf(answer.mastership);
      if (redirect !== undefined) return this.redirected(number, redirect.master);
      this.leased(number, asks, answer, sentUnixMs);
    });
  }

  private release(number: number, connection: Connection, releases: readonly Release[]): () => void {
    return connection.call(RELEASE_CAPACITY, releaseCapacity(this.settings.id, releases), (answer, error) => {
      if (answer === undefined) return this.requestEnded(number, error);
      const redirect = redirectOf(answer.mastership);
      if (redirect !== undefined) return this.redirected(number, redirect.master);
      if (this.takeSent(number) === undefined) return;
      this.counters.requests += 1;
      this.session.answered(this.clock.nowMs(), number, []);
      this.step();
    });
  }

  private connectionTo(address: string): Connection {
    if (this.connection?.address === address) return this.connection;
    const connection = this.settings.transport.connect(address);
    this.dropConnection();
    this.connection = connection;
    return connection;
  }

  private dropConnection(): void {
    this.closeRenewals();
    this.hints?.stop();
    this.cancelDiscovery();
    this.connection?.close();
    this.connection = undefined;
  }

  private takeSent(number: number): Sent | undefined {
    const { sent } = this;
    if (sent?.number !== number) return undefined;
    this.sent = undefined;
    return sent;
  }

  /** The session has abandoned the request in flight: its connection may be dead. */
  private abandonRequest(): void {
    const { sent } = this;
    if (sent === undefined) return;
    this.sent = undefined;
    sent.cancel();
    this.dropConnection();
    this.failed(sent.server, `${sent.server}: no answer within ${this.settings.deadlineMs} ms`);
  }

  /** A request has failed. */
  private requestEnded(number: number, error: CallError | undefined): void {
    const sent = this.takeSent(number);
    if (sent === undefined) return;
    const why = error === undefined ? `${sent.server}: no answer` : quoted(explain(sent.server, error));
    // grpc-js would wait before it connects again. A server that has refused a request is still connected.
    const isBroken = error === undefined || BROKEN.has(error.code);
    if (isBroken && sent.connection !== undefined && sent.connection === this.connection) this.dropConnection();
    this.session.failed(this.clock.nowMs(), number);
    this.failed(sent.server, why);
    this.step();
  }

  private failed(server: string, why: string): void {
    this.counters.requests += 1;
    this.counters.requestErrors += 1;
    this.lastError = why;
    this.settings.log("debug", why);
    const message = this.outage.failed(this.clock.now(), server, why, () => this.describeFallback());
    if (message !== undefined) this.settings.log("warn", message);
  }

  /** The server is not the master. `named` is the master as far as it knows. */
  private redirected(number: number, named: string | undefined): void {
    const sent = this.takeSent(number);
    if (sent === undefined) return;
    this.counters.requests += 1;
    this.counters.redirects += 1;
    const { server } = sent;
    const master = named === undefined ? undefined : parseAddress(named);
    let why = `${server}: not the master; the master is ${master}`;
    if (named === undefined) why = `${server}: not the master, and knows no master`;
    else if (master === undefined) why = `${server}: not the master, and names an invalid master: ${quoted(named)}`;
    this.lastError = why;
    this.settings.log("debug", why);
    if (master === undefined) {
      const message = this.outage.failed(this.clock.now(), server, why, () => this.describeFallback());
      if (message !== undefined) this.settings.log("warn", message);
    }
    this.session.redirected(this.clock.nowMs(), number, master);
    this.step();
  }

  private leased(number: number, asks: readonly Ask[], answer: GetCapacityResponse, sentUnixMs: number): void {
    const { given, malformed } = leasesOf(answer.response, sentUnixMs);
    this.masterAnswered(number, asks.length - answer.response.length, answer, malformed, (now) => {
      if (!this.session.answered(now, number, given)) return undefined;
      return { ids: given.map(({ id }) => id), response: answer.response };
    });
  }

  private renewed(number: number, answer: RenewResponse, sentUnixMs: number): void {
    const { reply, malformed } = renewed(answer, sentUnixMs);
    this.masterAnswered(number, answer.leftOut.length, answer, malformed, (now) => {
      const ids = this.session.streamAnswered(now, number, reply);
      const response = answer.grant.map((grant) => ({
        ...grant.response,
        resourceId: this.session.streamId(Number(grant.index ?? 0n)),
      }));
      return ids && { ids, response };
    });
  }

  /** The answer of the master. `take` gives it to the session, and returns what it answers if it counts. */
  private masterAnswered(
    number: number,
    leftOut: number,
    answer: { readonly problem: readonly Problem[] },
    malformed: readonly string[],
    take: (now: number) => { ids: readonly string[]; response: readonly ResourceResponse[] } | undefined,
  ): void {
    const sent = this.takeSent(number);
    if (sent === undefined) return;
    const { server, connection } = sent;
    this.counters.requests += 1;
    const over = this.outage.over(this.clock.now(), server);
    if (over !== undefined) this.settings.log("info", over);
    this.noteLeftOut(server, leftOut, answer);
    if (malformed.length > 0) {
      this.lastError = `${server}: malformed lease for ${named(malformed)}`;
      if (this.malformedLog.passes(this.clock.now())) this.settings.log("warn", this.lastError);
    }
    const now = this.clock.nowMs();
    const taken = take(now);
    if (taken !== undefined) {
      this.takeAllowances(now, taken.ids);
      for (const id of taken.ids) this.extend(now, id);
      this.applyChanges(now);
      this.applyPools(now, taken.response);
    }
    if (connection !== undefined) {
      this.hints?.follow(connection);
      this.discover(connection);
    }
    this.step();
  }

  /** Gives budgets their new allowances. */
  private takeAllowances(now: number, ids: readonly string[]): void {
    for (const id of ids) {
      const [lease, resource] = [this.session.lease(now, id), this.opened.get(id)];
      if (lease !== undefined && resource?.takeAllowance(lease) === true) this.want(now, resource);
    }
  }

  /** A renewed lease of the same capacity is no change of capacity, but it ends later. */
  private extend(now: number, id: string): void {
    const lease = this.session.lease(now, id);
    const resource = this.opened.get(id);
    if (lease === undefined || resource === undefined) return;
    resource.limiter.semaphore.expireAt(lease.end, (at) => this.leaseExpired(resource, at));
  }

  private applyPools(now: number, answered: readonly ResourceResponse[]): void {
    const differing: OpenResource[] = [];
    for (const { resourceId, pool, priority } of answered) {
      const resource = this.opened.get(resourceId ?? "");
      if (resource === undefined) continue;
      resource.setPoolState(now, pool && poolOf(pool), this.reportedUsage.get(resource.id));
      const effective = priority === undefined ? resource.effectivePriority : Number(priority);
      if (effective === resource.effectivePriority) continue;
      resource.effectivePriority = effective;
      if (effective !== resource.priority) differing.push(resource);
    }
    const [first] = differing;
    if (first === undefined) return;
    const priorities = `the server counts priority ${first.effectivePriority}, ${first.priority} was claimed`;
    const more = differing.length === 1 ? "" : `, and another for ${differing.length - 1} resources more`;
    this.settings.log("info", `${first.id}: ${priorities}${more}`);
  }

  private noteLeftOut(server: string, resources: number, answer: { readonly problem: readonly Problem[] }): void {
    const problem = answer.problem.find((one) => !isTransient(one));
    if (resources <= 0 || problem === undefined) return;
    this.counters.leftOut += resources;
    if (!this.leftOutLog.passes(this.clock.now())) return;
    this.settings.log("warn", `${server}: no lease for ${resources} resources: ${quoted(problem.message ?? "")}`);
  }

  /** Asks a new master for its peers and whether it accepts streams of renewals, and again now and then. */
  private discover(connection: Connection): void {
    const now = this.clock.now();
    const { discovered } = this;
    if (discovered?.connection === connection && now < discovered.again) return;
    this.cancelDiscovery();
    const asked = { connection, again: now + REDISCOVERY_INTERVAL };
    this.discovered = asked;
    const failed = () => {
      asked.again = this.clock.now() + DISCOVERY_RETRY;
    };
    // An unanswered call would keep the process running.
    const cancelTimer = this.clock.setTimer(now + this.settings.deadlineMs, () => {
      this.cancelDiscovery();
      failed();
    });
    const cancelCall = connection.call(DISCOVERY, {}, (answer, error) => {
      cancelTimer();
      // A server that has no Discovery names no peers.
      if (answer === undefined && error?.code !== status.UNIMPLEMENTED) failed();
      const peers = (answer?.endpoint ?? []).flatMap((peer) => parseAddress(peer) ?? []);
      if (peers.length > 0) this.session.learn(peers);
      if (answer === undefined) return;
      this.session.offerStream(connection.address, answer.renewsByStream === true ? MIN_STREAMED : undefined);
    });
    this.cancelDiscovery = () => {
      cancelTimer();
      cancelCall();
    };
  }

  private hinted(resources: readonly string[] | undefined): void {
    if (resources === undefined || resources.length > 0) this.counters.hints += 1;
    const now = this.clock.nowMs();
    if (resources === undefined) this.session.hintAll(now);
    else for (const id of resources) this.session.hint(now, id);
    this.step();
  }

  private applyChanges(now: number): void {
    let hasChanges = false;
    const expired: string[] = [];
    this.session.changes(now, (id, usable) => {
      const resource = this.opened.get(id);
      if (resource === undefined) return;
      hasChanges = true;
      if (resource.usable.basis === "lease" && usable.basis === "fallback") expired.push(id);
      this.applyChange(now, resource, usable);
    });
    if (expired.length > 0) this.noteExpired(expired);
    if (hasChanges) for (const watcher of [...this.watchers]) watcher();
  }

  private applyChange(now: number, resource: OpenResource, usable: Usable): void {
    const before = resource.usable;
    const leased = ({ basis, capacity }: Usable) => (basis === "lease" ? capacity : 0);
    // The trace records a rise before it is applied and a fall afterwards, so it errs upwards.
    const leaseRises = leased(usable) > leased(before);
    if (leaseRises) this.recordLease(resource.id, leased(usable));
    const end = this.session.lease(now, resource.id)?.end ?? Number.POSITIVE_INFINITY;
    resource.apply(usable, end, (at) => this.leaseExpired(resource, at));
    if (!leaseRises) this.recordLease(resource.id, leased(usable));
    // With more capacity, more may be wanted.
    if (usable.capacity > before.capacity && resource.isUnderPressure(now)) this.notePressure();
  }

  /** Logs leases that have expired without a refresh. There may be very many, so the log gets a line per minute. */
  private noteExpired(expired: readonly string[]): void {
    this.counters.leasesEnded += expired.length;
    this.expired += expired.length;
    if (!this.expiryLog.passes(this.clock.now())) return;
    const leases = this.expired;
    this.expired = 0;
    this.settings.log("warn", `${leases} leases have ended and could not be renewed, lately of ${named(expired)}`);
  }

  private recordLease(resource: string, capacity: number): void {
    this.settings.onLeaseChange?.({ atUnixMs: Date.now(), client: this.settings.id, resource, capacity });
  }

  /** Describes what may be used while no server answers, for the log. */
  private describeFallback(): string {
    const described = [...this.opened.values()].slice(0, MAX_NAMED).map(({ id, usable, mode }) => {
      const lease = this.lease(id);
      if (lease === undefined) return `\`${id}\` may use ${usable.capacity} (mode ${mode})`;
      const left = Math.floor(lease.leftMs / 1000);
      return `\`${id}\` may use its lease of ${usable.capacity} for another ${left} s, then mode ${mode} decides`;
    });
    const more = this.opened.size - described.length;
    if (more > 0) described.push(`${more} resources more`);
    return described.length === 0 ? "nothing is wanted" : described.join(", ");
  }

  // -- Estimates.

  /** Schedules an estimate because a caller has to wait at a limiter. */
  private notePressure(): void {
    this.estimateSoon(this.clock.nowMs());
    this.scheduleStep();
  }

  private want(now: number, resource: OpenResource): void {
    let wants = resource.wants(now);
    const lease = this.session.lease(now, resource.id);
    if (lease !== undefined && wants.outstanding <= lease.capacity) wants = { ...wants, outstanding: 0 };
    const urgent = this.session.want(now, resource.id, wants, resource.mode);
    if (wants.outstanding > 0 || (urgent && resource.isUnderPressure(now))) this.estimateSoon(now);
    const again = resource.nextSampleAt();
    if (again === undefined) return;
    const at = Math.max(again, now + MIN_ESTIMATE_INTERVAL);
    const before = this.scheduledEstimates.get(resource.id);
    if (before === undefined || before > at) this.scheduledEstimates.set(resource.id, at);
  }

  /** Estimates all demands at `at`, or a little later. */
  private estimateSoon(at: number): void {
    const soon = Math.max(at, this.estimated + MIN_ESTIMATE_INTERVAL);
    this.estimateAt = Math.min(this.estimateAt ?? Number.POSITIVE_INFINITY, soon);
  }

  /**
   * The resources whose demands to estimate now: all of them if callers wait at some, else those of the next request
   * and those that are scheduled. Others are skipped, because there may be a hundred thousand.
   */
  private takeDueEstimates(now: number): Iterable<OpenResource> {
    if (this.estimateAt !== undefined && this.estimateAt <= now) {
      this.estimateAt = undefined;
      this.estimated = now;
      return [...this.opened.values()];
    }
    const due = new Set(this.session.isDue(now) ? this.session.dueResources(now) : []);
    if (due.size > 0 && due.size === this.opened.size) {
      // The next request asks for all resources, as with most clients.
      this.estimateAt = undefined;
      this.estimated = now;
    }
    for (const [id, at] of this.scheduledEstimates) {
      if (at > now) continue;
      this.scheduledEstimates.delete(id);
      due.add(id);
    }
    return [...due].flatMap((id) => this.opened.get(id) ?? []);
  }
}
