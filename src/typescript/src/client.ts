import { hostname } from "node:os";

import { Budget } from "./budget.js";
import { guarded } from "./callback.js";
import { KeepAlive, SystemClock } from "./clock.js";
import { type SecurityOptions, selectsTls } from "./credentials.js";
import { type Counters, Driver, type Health, type LeaseChange, type Log } from "./driver.js";
import { overTls, parseEndpoint } from "./endpoint.js";
import { BuildError, OpenError } from "./errors.js";
import { Gauge } from "./gauge.js";
import type { Burst } from "./limiter/bucket.js";
import type { Window } from "./limiter/window.js";
import type { Kind, OpenSettings } from "./open-resource.js";
import { type Cost, Limits } from "./limits.js";
import { Rate } from "./rate.js";
import { checkWants } from "./resource.js";
import { type Basis, DEFAULT_PACE, type Mode, Session, seeded } from "./session.js";
import { Transport } from "./transport.js";

/** The bound of servers. */
const RESOURCES_PER_REQUEST = 1000;
/** The bound of servers. */
const MAX_ID_BYTES = 256;
/** How long the end of a program waits for leases to be released. Others expire. */
const EXIT_TIMEOUT_MS = 1_000;

/** Options of a client. */
export interface ClientOptions extends SecurityOptions {
  /**
   * Servers of the node, as `HOST:PORT`; the prefix `https://` selects TLS. Any server will do, because one that is not
   * the master redirects; name several for fault tolerance.
   */
  servers: string | readonly string[];
  /**
   * The id of the client (default `HOST:PID:NUMBER`). Two clients that run at the same time must not share an id:
   * `{pid}` in it stands for the process id.
   */
  id?: string | undefined;
  /** What to use when leases expire unrenewed (default `safe`). Resources can override it. */
  mode?: Mode | undefined;
  /** The timeout of requests (default 3,000). Then the next server is tried. */
  deadlineMs?: number | undefined;
  /**
   * The maximum pause between attempts while no server answers (default 15,000). Every server is still tried once per
   * refresh interval.
   */
  backoffMaxMs?: number | undefined;
  /** The minimum refresh interval (default 1,000), whatever the server says. */
  refreshMinMs?: number | undefined;
  /**
   * Whether to listen for hints of the server that asking now would change a lease (default true). Without hints
   * changes take refresh intervals instead of round trips, and there is one stream less.
   */
  hints?: boolean | undefined;
  /** Receives log lines, such as `(level, message) => console[level](message)`. Nothing is logged by default. */
  log?: Log | undefined;
  /** Receives changes of leased capacity, for audits. */
  onLeaseChange?: ((change: LeaseChange) => void) | undefined;
  /** Seeds the jitter, for reproducible tests. */
  seed?: number | undefined;
}

/** Options of a gauge. */
export interface GaugeOptions {
  /** The capacity to ask for. By default it is estimated from what passes the limiter and what waits there. */
  wants?: number | undefined;
  /** The priority that this client claims (default 0). Its meaning depends on the resource. */
  priority?: number | undefined;
  /** What to use when the lease expires unrenewed. Defaults to the mode of the client. */
  mode?: Mode | undefined;
}

/** Options of a rate. */
export interface RateOptions extends GaugeOptions {
  /** The number of permits that may be saved up, instead of 20 ms of capacity. */
  burst?: number | undefined;
  /** The time whose capacity may be saved up, for budgets per minute or per day. Replaces `burst`. */
  windowMs?: number | undefined;
  /**
   * A limit per window, which begins with a full window and remembers its wants for as long. Replaces `burst` and
   * `windowMs`.
   */
  window?: Window | undefined;
  /** The maximum debt due to `charge` (default 1,000,000). */
  maxDebt?: number | undefined;
}

/** What a client and its resources have done so far. */
export interface Stats extends Counters {
  readonly resources: Readonly<Record<string, ResourceStats>>;
}

/** The state of one resource. */
export interface ResourceStats {
  readonly kind: Kind;
  readonly capacity: number;
  readonly basis: Basis;
  /** The time until the lease expires; 0 without a live lease. */
  readonly leaseLeftMs: number;
  /** The wants in the last estimate or as set by the user. */
  readonly wants: number;
  /** Permits requested so far: granted, waited for, cancelled, refused, or charged. */
  readonly arrived: number;
  /** Permits taken so far, without those that were returned. */
  readonly taken: number;
  /** Permits that are waited for. */
  readonly waiting: number;
  /** Gauges: permits in use. */
  readonly inUse: number;
  /** Rates: debt in permits. */
  readonly debt: number;
}

/**
 * A client of a Leaseway (or Doorman) node. It keeps the leases of open resources alive in the background.
 *
 * It connects in the background and keeps trying: an unreachable server is no error, see `health`. The process can exit
 * while a client is open, unless callers wait; leases are released then.
 */
export class Client {
  /** The id of the client. */
  readonly id: string;
  private readonly driver: Driver;
  private readonly mode: Mode;
  private readonly keepAlive = new KeepAlive();

  /** Throws `BuildError` if the options make no sense. */
  constructor(options: ClientOptions | string) {
    const given = typeof options === "string" ? { servers: options } : options;
    const servers = typeof given.servers === "string" ? [given.servers] : [...(given.servers ?? [])];
    if (servers.length === 0) {
      throw new BuildError("no endpoint: pass at least one server of the node, as HOST:PORT");
    }
    const endpoints = servers.map(parseEndpoint);
    this.id = checkId(given.id?.replaceAll("{pid}", String(process.pid)) ?? uniqueId(), "the client's id", BuildError);
    this.mode = checkMode(given.mode ?? "safe", BuildError);
    const deadlineMs = given.deadlineMs ?? DEFAULT_PACE.deadline;
    const pace = {
      ...DEFAULT_PACE,
      deadline: checkDeadline(deadlineMs),
      refreshMin: checkTime(given.refreshMinMs ?? DEFAULT_PACE.refreshMin, "refreshMinMs"),
      backoffMax: checkTime(given.backoffMaxMs ?? DEFAULT_PACE.backoffMax, "backoffMaxMs"),
    };
    const session = new Session({
      endpoints: endpoints.map(({ address }) => address),
      pace,
      resourcesPerRequest: RESOURCES_PER_REQUEST,
      random: given.seed === undefined ? Math.random : seeded(given.seed),
    });
    const transport = new Transport(given, overTls(endpoints, selectsTls(given)));
    for (const { address } of endpoints) transport.checkToken(address);
    this.driver = new Driver({
      id: this.id,
      session,
      transport,
      clock: new SystemClock(),
      keepAlive: this.keepAlive,
      deadlineMs,
      hints: given.hints ?? true,
      log: given.log === undefined ? () => {} : guarded(given.log),
      onLeaseChange: given.onLeaseChange && guarded(given.onLeaseChange),
    });
    closeAtExit(this);
  }

  /**
   * Creates a client from LEASEWAY_SERVER (comma-separated), LEASEWAY_TLS, LEASEWAY_TLS_CA, LEASEWAY_TLS_CERT,
   * LEASEWAY_TLS_KEY, LEASEWAY_TLS_SERVER_NAME, LEASEWAY_TOKEN_FILE and LEASEWAY_INSECURE, as `leaseway get` does. An
   * empty variable counts as not set. Options take precedence.
   */
  static fromEnv(options: Partial<ClientOptions> = {}, env: NodeJS.ProcessEnv = process.env): Client {
    const value = (name: string) => env[name] || undefined;
    const isOn = (name: string) => checkFlag(name, value(name) ?? "false");
    return new Client({
      servers: (value("LEASEWAY_SERVER") ?? "127.0.0.1:5100").split(","),
      tls: isOn("LEASEWAY_TLS"),
      tlsCa: value("LEASEWAY_TLS_CA"),
      tlsCert: value("LEASEWAY_TLS_CERT"),
      tlsKey: value("LEASEWAY_TLS_KEY"),
      tlsServerName: value("LEASEWAY_TLS_SERVER_NAME"),
      tokenFile: options.token === undefined ? value("LEASEWAY_TOKEN_FILE") : undefined,
      allowClearToken: isOn("LEASEWAY_INSECURE"),
      ...options,
    });
  }

  /**
   * Opens a resource as a rate, in permits per second. All handles of a resource share its options. Throws `OpenError` if
   * it is open as a gauge, or with other options than these.
   */
  rate(id: string, options: RateOptions = {}): Rate {
    let burst: Burst = "smooth";
    if (options.windowMs !== undefined) burst = { windowMs: checkOpenNumber(options.windowMs, "windowMs") };
    else if (options.burst !== undefined) burst = { permits: checkOpenNumber(options.burst, "burst") };
    const maxDebt = options.maxDebt === undefined ? undefined : checkOpenNumber(options.maxDebt, "maxDebt");
    const settings = { ...this.openSettings("rate", options), burst, window: options.window, maxDebt };
    return new Rate(this.driver, this.open(id, settings));
  }

  /**
   * Opens a resource as a gauge: permits in use at the same time. Throws `OpenError` if it is open as a rate, or with other
   * options than these.
   */
  gauge(id: string, options: GaugeOptions = {}): Gauge {
    return new Gauge(this.driver, this.open(id, this.openSettings("gauge", options)));
  }

  /**
   * Opens a resource of kind BUDGET: an amount that may be spent in each period. Throws `OpenError` if it is open as
   * another kind.
   */
  budget(id: string): Budget {
    // Nothing may be spent after the expiry.
    return new Budget(this.driver, this.open(id, this.openSettings("budget", { wants: 0, mode: "pessimistic" })));
  }

  /**
   * Combines limits that an operation needs permits or amounts of: `client.limits(tokens.of(900), connections.of(),
   * dollars.of(0.25))`.
   */
  limits(...costs: Cost[]): Limits {
    return new Limits(costs);
  }

  /** Waits until every open resource has a lease. Rejects with `NotReadyError`, which names those without one. */
  ready(timeoutMs = 5_000): Promise<void> {
    return this.driver.ready(undefined, timeoutMs);
  }

  /** The state of the connection to the servers. */
  health(): Health {
    return this.driver.health();
  }

  /** What this client and its resources have done so far. */
  stats(): Stats {
    const resources: Record<string, ResourceStats> = {};
    for (const opened of this.driver.opened.values()) {
      const { semaphore, kind } = opened.limiter;
      const now = semaphore.now();
      resources[opened.id] = {
        kind,
        capacity: opened.usable.capacity,
        basis: opened.usable.basis,
        leaseLeftMs: this.driver.lease(opened.id)?.leftMs ?? 0,
        wants: opened.wanted,
        arrived: semaphore.arrived,
        taken: semaphore.meter.taken,
        waiting: semaphore.waiting,
        inUse: semaphore.meter.inUse,
        debt: semaphore.meter.owed(now),
      };
    }
    return { ...this.driver.counters, resources };
  }

  /** Calls `listener` when the usable capacity of any open resource has changed. Returns what stops that. */
  onChange(listener: () => void): () => void {
    return this.driver.watch(guarded(listener));
  }

  /**
   * Releases all leases, and waits until that is done or has failed once; then they expire. Callers waiting at a limiter
   * get `ClosedError`. Idempotent.
   */
  async close(timeoutMs = 5_000): Promise<void> {
    clients.delete(this);
    this.driver.close();
    this.keepAlive.hold();
    const timer = setTimeout(() => this.driver.abandon(), timeoutMs);
    await this.driver.ended;
    clearTimeout(timer);
    this.keepAlive.letGo();
    this.keepAlive.close();
  }

  /** Closes without releasing leases; they count until they expire. */
  abandon(): void {
    clients.delete(this);
    this.driver.abandon();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private open(id: string, settings: OpenSettings) {
    return this.driver.open(checkId(id, "the resource's id", OpenError), settings);
  }

  private openSettings(kind: Kind, options: RateOptions): OpenSettings {
    const { wants, priority = 0, mode = this.mode } = options;
    if (!Number.isSafeInteger(priority)) throw new OpenError(`invalid priority ${priority}: expected a whole number`);
    return {
      kind,
      mode: checkMode(mode, OpenError),
      priority,
      wants: wants === undefined ? undefined : checkWants(wants),
      burst: "smooth",
      window: undefined,
      maxDebt: undefined,
      set: { ...options },
    };
  }
}

const clients = new Set<Client>();
let watchesExit = false;

/** Releases leases when the program ends because nothing is left to do. */
function closeAtExit(client: Client): void {
  clients.add(client);
  if (watchesExit) return;
  watchesExit = true;
  process.on("beforeExit", () => {
    for (const open of [...clients]) void open.close(EXIT_TIMEOUT_MS);
  });
}

function checkFlag(name: string, text: string): boolean {
  const flag = text.toLowerCase();
  if (flag === "true" || flag === "false") return flag === "true";
  throw new BuildError(`${name}=${text}: expected true or false`);
}

type ErrorType = new (message: string) => Error;

function checkId(id: string, what: string, ErrorType: ErrorType): string {
  const length = Buffer.byteLength(id);
  if (length === 0) throw new ErrorType(`${what} is empty`);
  if (length > MAX_ID_BYTES) {
    throw new ErrorType(`${what} is ${length} bytes long; at most ${MAX_ID_BYTES} are allowed`);
  }
  return id;
}

function checkMode(mode: Mode, ErrorType: ErrorType): Mode {
  if (["safe", "pessimistic", "optimistic"].includes(mode)) return mode;
  throw new ErrorType(`unknown mode \`${mode}\`: expected safe, pessimistic or optimistic`);
}

function checkTime(milliseconds: number, name: string): number {
  if (milliseconds >= 0 && milliseconds <= Number.MAX_SAFE_INTEGER) return Math.floor(milliseconds);
  throw new BuildError(`invalid ${name} ${milliseconds}: expected a number of milliseconds`);
}

/** Every request would be late at once if the deadline were zero. */
function checkDeadline(milliseconds: number): number {
  if (milliseconds >= 1) return checkTime(milliseconds, "deadlineMs");
  throw new BuildError(`invalid deadlineMs ${milliseconds}: expected at least 1 millisecond`);
}

function checkOpenNumber(number: number, name: string): number {
  if (number >= 0 && Number.isFinite(number)) return number;
  throw new OpenError(`invalid ${name} ${number}: expected a number that is not negative`);
}

/** Numbers start at random, because processes in containers with the same host name may have the same PID. */
let nextNumber = Math.floor(Math.random() * 2 ** 32);

function uniqueId(): string {
  return `${hostname()}:${process.pid}:${nextNumber++}`;
}
