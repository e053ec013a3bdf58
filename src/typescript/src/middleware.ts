/** Limits for `fetch`, Express, Fastify and grpc-js. Types are structural: no framework is imported. */

import { InterceptingCall, type Interceptor, Metadata, status } from "@grpc/grpc-js";

import { messageOf } from "./credentials.js";
import { Gauge, type Permit } from "./gauge.js";
import type { WaitOptions } from "./limiter/semaphore.js";
import { Limits, Refusal } from "./limits.js";
import type { Rate } from "./rate.js";

/** A limit for requests, or several of them. A permit of a gauge is held until the response has arrived. */
export type Limit = Rate | Gauge | Limits;

/** How requests are limited. */
export interface LimitOptions {
  /** The number of permits that each request takes (default 1). Of `Limits` it takes theirs. */
  readonly n?: number | undefined;
  /** The longest wait. Beyond it the request fails with `TimeoutError`. By default there is no bound. */
  readonly timeoutMs?: number | undefined;
}

/** How the requests of a server are limited. */
export interface MiddlewareOptions extends LimitOptions {
  /**
   * The longest wait. Beyond it, or at once if it is 0, which is the default, the request is answered with status 429.
   */
  readonly timeoutMs?: number | undefined;
}

type Release = () => void;

const nothing: Release = () => {};

async function admit(limit: Limit, n: number, options: WaitOptions): Promise<Release> {
  if (limit instanceof Limits) {
    const permits = await limit.acquire(options);
    return () => permits.release();
  }
  if (limit instanceof Gauge) {
    const permit = await limit.acquire(n, options);
    return () => permit.release();
  }
  await limit.acquire(n, options);
  return nothing;
}

/**
 * Wraps `fetch`: each request waits for a permit first, and stops waiting when its signal aborts. A permit of a gauge is
 * held until the headers have arrived; a body that is streamed afterwards does not count.
 */
export function limitedFetch(limit: Limit, options: LimitOptions = {}, inner: typeof fetch = fetch): typeof fetch {
  return async (input, init) => {
    const signal = init?.signal ?? (input instanceof Request ? input.signal : undefined);
    const release = await admit(limit, options.n ?? 1, { signal: signal ?? undefined, timeoutMs: options.timeoutMs });
    try {
      return await inner(input, init);
    } finally {
      release();
    }
  };
}

/** A refused request, with the seconds after which it may be repeated. */
interface Refused {
  readonly retryAfter: number | undefined;
}

function tryAdmit(limit: Limit, n: number): Release | Refused {
  if (limit instanceof Limits) {
    const permits = limit.tryAcquire();
    return permits instanceof Refusal ? retryAfter(permits.retryAfterMs) : () => permits.release();
  }
  if (limit instanceof Gauge) {
    const permit: Permit | undefined = limit.tryAcquire(n);
    return permit === undefined ? refusal(limit, n) : () => permit.release();
  }
  return limit.tryAcquire(n) ? nothing : refusal(limit, n);
}

function refusal(limit: Rate | Gauge, n: number): Refused {
  // Permits beyond the burst are never available at once.
  const wait = limit instanceof Gauge || limit.standing.burst < n ? undefined : limit.retryAfterMs(n);
  return retryAfter(wait);
}

function retryAfter(waitMs: number | undefined): Refused {
  return { retryAfter: waitMs === undefined ? undefined : Math.max(Math.ceil(waitMs / 1000), 1) };
}

async function admitRequest(limit: Limit, options: MiddlewareOptions, signal: AbortSignal): Promise<Release | Refused> {
  const { n = 1, timeoutMs = 0 } = options;
  if (timeoutMs <= 0) return tryAdmit(limit, n);
  try {
    return await admit(limit, n, { timeoutMs, signal });
  } catch {
    return limit instanceof Limits ? tryAdmit(limit, n) : refusal(limit, n);
  }
}

/** What the middleware needs of a Node response. */
interface NodeResponse {
  statusCode: number;
  readonly destroyed: boolean;
  readonly writableEnded: boolean;
  setHeader(name: string, value: string | number): unknown;
  end(text: string): unknown;
  once(event: "close", listener: () => void): unknown;
}

/**
 * Admits a request, or says why not. `"over"`: its client has disconnected, or it was answered meanwhile. A permit of a
 * gauge is held until the response is closed.
 */
async function guard(
  limit: Limit,
  options: MiddlewareOptions,
  response: NodeResponse,
): Promise<"admitted" | "over" | Refused> {
  // A response that is closed does not tell so again.
  if (response.destroyed || response.writableEnded) return "over";
  let release = nothing;
  const closed = new AbortController();
  response.once("close", () => {
    closed.abort();
    release();
  });
  const admitted = await admitRequest(limit, options, closed.signal);
  const over = closed.signal.aborted || response.writableEnded;
  if (typeof admitted !== "function") return over ? "over" : admitted;
  if (over) {
    admitted();
    return "over";
  }
  release = admitted;
  return "admitted";
}

const TOO_MANY = "Too Many Requests";

/**
 * Express middleware. A request without a permit is answered with status 429, and with `Retry-After` if the time is
 * known. A permit of a gauge is held until the response has been sent.
 */
export function expressLimit(
  limit: Limit,
  options: MiddlewareOptions = {},
): (request: unknown, response: NodeResponse, next: (error?: unknown) => void) => void {
  return (_request, response, next) => {
    guard(limit, options, response).then((refused) => {
      if (refused === "over") return;
      if (refused === "admitted") {
        next();
        return;
      }
      response.statusCode = 429;
      if (refused.retryAfter !== undefined) response.setHeader("Retry-After", refused.retryAfter);
      response.end(TOO_MANY);
    }, next);
  };
}

/** What the hook needs of a Fastify reply. */
interface FastifyReply {
  readonly raw: NodeResponse;
  code(status: number): FastifyReply;
  hijack(): unknown;
  header(name: string, value: string | number): FastifyReply;
  send(payload: unknown): FastifyReply;
}

/**
 * A Fastify hook: `fastify.addHook("onRequest", fastifyLimit(rate))`. It answers as `expressLimit` does.
 */
export function fastifyLimit(
  limit: Limit,
  options: MiddlewareOptions = {},
): (request: unknown, reply: FastifyReply) => Promise<unknown> {
  return async (_request, reply) => {
    const refused = await guard(limit, options, reply.raw);
    if (refused === "admitted") return undefined;
    if (refused === "over") {
      // The handler is not called.
      reply.hijack();
      return reply;
    }
    if (refused.retryAfter !== undefined) reply.header("Retry-After", refused.retryAfter);
    return reply.code(429).send({ statusCode: 429, error: TOO_MANY, message: "no permit is free now" });
  };
}

/**
 * An interceptor for clients of grpc-js: each call waits for a permit before it is sent. A permit of a gauge is held
 * until the call has ended. A call that gets no permit ends with RESOURCE_EXHAUSTED.
 */
export function limitInterceptor(limit: Limit, options: LimitOptions = {}): Interceptor {
  return (callOptions, nextCall) => {
    const gone = new AbortController();
    let release = nothing;
    let started = false;
    return new InterceptingCall(nextCall(callOptions), {
      start(metadata, listener, next) {
        const left = timeLeft(callOptions.deadline);
        const timeoutMs = Math.min(options.timeoutMs ?? left, left);
        const wait = { signal: gone.signal, timeoutMs: Number.isFinite(timeoutMs) ? timeoutMs : undefined };
        const begin = (granted: Release) => {
          if (gone.signal.aborted) {
            granted();
            refused(gone.signal.reason);
            return;
          }
          release = granted;
          started = true;
          next(metadata, {
            onReceiveStatus: (received, pass) => {
              release();
              pass(received);
            },
          });
        };
        const refused = (error: unknown) => {
          let code = status.RESOURCE_EXHAUSTED;
          if (gone.signal.aborted) code = status.CANCELLED;
          else if (timeoutMs === left) code = status.DEADLINE_EXCEEDED;
          listener.onReceiveStatus({ code, details: messageOf(error), metadata: new Metadata() });
        };
        admit(limit, options.n ?? 1, wait).then(begin, refused);
      },
      cancel(next) {
        if (started) next();
        else gone.abort(new Error("cancelled before a permit was free"));
      },
    });
  };
}

function timeLeft(deadline: Date | number | undefined): number {
  return deadline === undefined ? Number.POSITIVE_INFINITY : Math.max(Number(deadline) - Date.now(), 0);
}
