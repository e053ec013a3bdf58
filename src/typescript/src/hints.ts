/**
 * The stream of hints: the server says that asking now would change a lease. Servers of the original protocol have no
 * such stream. Without it a client depends on its refresh intervals.
 */

import { status } from "@grpc/grpc-js";

import { Hint, WatchRequest } from "./protocol/messages.js";
import { type CallError, type Connection, METHODS, type Method } from "./transport.js";

/** The pause after a stream has ended or failed to open; it doubles up to the maximum. */
const PAUSE_FIRST_MS = 1_000;
const PAUSE_MAX_MS = 60_000;
/** Clients of a server that is back reopen their streams spread over this time. */
const JITTER_MS = 100;
/** The pause after a server without hints: it may be upgraded. */
const PAUSE_UNSUPPORTED_MS = 600_000;

const WATCH: Method<WatchRequest, Hint> = { path: METHODS.watch, request: WatchRequest, answer: Hint };

/** Another client has the stream, there are too many, or the server has no hints. */
const REFUSALS: ReadonlySet<status> = new Set([status.ABORTED, status.RESOURCE_EXHAUSTED, status.UNIMPLEMENTED]);

/** The stream of hints of the current master. */
export class Hints {
  private connection: Connection | undefined;
  private closeStream: (() => void) | undefined;
  private timer: NodeJS.Timeout | undefined;
  private opensAt = 0;
  private pause = PAUSE_FIRST_MS;
  /** When the last stream was requested. */
  private asked: number | undefined;
  /** The server rejected the last stream: its answers to requests do not shorten the pause. */
  private refused = false;

  /** `hinted` gets the resources to ask for, or `undefined` for all of them. */
  constructor(
    private readonly clientId: string,
    private readonly hinted: (resources: readonly string[] | undefined) => void,
  ) {}

  /**
   * Follows the server behind `connection`, which has answered as master. A broken stream to it is reopened at once, but
   * no more than once per second, because the answer shows that the server is up.
   */
  follow(connection: Connection): void {
    if (this.connection === connection) {
      if (this.closeStream !== undefined || this.refused) return;
      const now = performance.now();
      const soonest = this.asked === undefined ? now : Math.max(now, this.asked + PAUSE_FIRST_MS);
      const at = soonest + JITTER_MS * Math.random();
      if (at < this.opensAt) this.openAt(at);
      return;
    }
    this.stop();
    this.connection = connection;
    this.pause = PAUSE_FIRST_MS;
    this.asked = undefined;
    this.refused = false;
    this.openAt(performance.now());
  }

  /** Stops following: no master is known. */
  stop(): void {
    this.closeStream?.();
    this.closeStream = undefined;
    clearTimeout(this.timer);
    this.connection = undefined;
  }

  private openAt(at: number): void {
    this.opensAt = at;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), Math.max(at - performance.now(), 0)).unref();
  }

  private open(): void {
    if (this.connection === undefined) return;
    this.asked = performance.now();
    const request = { clientId: this.clientId };
    this.closeStream = this.connection.stream(
      WATCH,
      request,
      (hint) => this.received(hint),
      (error) => this.ended(error),
    );
  }

  private received({ resourceId, everything }: Hint): void {
    // The first message of a stream is empty and does not reset the pause: otherwise two clients with the same id would
    // take the stream from each other forever.
    if (everything || resourceId.length > 0) this.pause = PAUSE_FIRST_MS;
    this.hinted(everything ? undefined : resourceId);
  }

  private ended({ code }: CallError): void {
    this.closeStream = undefined;
    this.refused = REFUSALS.has(code);
    let pause = PAUSE_UNSUPPORTED_MS;
    if (code !== status.UNIMPLEMENTED) {
      // Jitter, because many clients lose their streams together.
      pause = this.pause * (0.5 + Math.random() / 2);
      this.pause = Math.min(this.pause * 2, PAUSE_MAX_MS);
    }
    this.openAt(performance.now() + pause);
  }
}
