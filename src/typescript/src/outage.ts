/** Failures in a row before the first warning. */
const FAILURES_BEFORE_WARNING = 3;
/** The time between warnings. */
const WARNING_INTERVAL_MS = 60_000;
/** Maximum number of servers whose last error is remembered. */
const MAX_SERVERS = 8;

/** Lets one log message per minute pass, of those that every answer of a server can cause. */
export class Throttle {
  private last: number | undefined;

  passes(now: number): boolean {
    if (this.last !== undefined && now - this.last < WARNING_INTERVAL_MS) return false;
    this.last = now;
    return true;
  }
}

/**
 * Log messages about outages: when several requests in a row have failed, once a minute while it lasts, and at its end.
 */
export class Outage {
  private failures = 0;
  private since: number | undefined;
  private warned: number | undefined;
  /** The last error of each server. */
  private servers = new Map<string, string>();

  /** Records a failure; `why` begins with the server. Returns the message to log, if one is due. */
  failed(now: number, server: string, why: string, describeFallback: () => string): string | undefined {
    this.failures += 1;
    this.since ??= now;
    if (this.servers.size < MAX_SERVERS || this.servers.has(server)) this.servers.set(server, why);
    const warnedRecently = this.warned !== undefined && now - this.warned < WARNING_INTERVAL_MS;
    if (this.failures < FAILURES_BEFORE_WARNING || warnedRecently) return undefined;
    this.warned = now;
    const errors = [...this.servers.values()].join("; ");
    return `no server has answered the last ${this.failures} requests: ${errors}; meanwhile ${describeFallback()}`;
  }

  /** Records an answer. Returns the message to log, if a warning was logged. */
  over(now: number, server: string): string | undefined {
    const { failures, since, warned } = this;
    this.failures = 0;
    this.since = undefined;
    this.warned = undefined;
    if (this.servers.size > 0) this.servers = new Map();
    if (warned === undefined || since === undefined) return undefined;
    const seconds = ((now - since) / 1000).toFixed(1);
    return `${server} has answered, after ${failures} failed requests in ${seconds} s`;
  }
}
