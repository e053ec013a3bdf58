/** Connections to servers, and the calls over them. */

import {
  type ClientDuplexStream,
  type ClientReadableStream,
  Client as GrpcClient,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";

import { channelCredentials, type SecurityOptions, Token } from "./credentials.js";
import { isLoopback } from "./endpoint.js";
import { BuildError } from "./errors.js";
import { decode, encode, type Message } from "./protocol/codec.js";

/** A call that has failed. */
export interface CallError {
  readonly code: status;
  readonly message: string;
}

/** Methods of the protocol. */
export const METHODS = {
  getCapacity: "/doorman.Capacity/GetCapacity",
  releaseCapacity: "/doorman.Capacity/ReleaseCapacity",
  discovery: "/doorman.Capacity/Discovery",
  watch: "/leaseway.push.v1.Push/Watch",
  renew: "/leaseway.session.v1.Session/Renew",
} as const;

/** A method, with the messages of its request and its answer. */
export interface Method<Q, A> {
  readonly path: string;
  readonly request: Message<Q>;
  readonly answer: Message<A>;
}

const CHANNEL_OPTIONS = {
  // Detects hosts that vanished while a call or a stream is open.
  "grpc.keepalive_time_ms": 10_000,
  "grpc.keepalive_timeout_ms": 5_000,
  // The session retries, with a back-off of its own, over a new channel.
  "grpc.enable_retries": 0,
  "grpc.use_local_subchannel_pool": 1,
  "grpc.service_config_disable_resolution": 1,
  "grpc.enable_http_proxy": 0,
  // Larger than any answer, or hint, of a server.
  "grpc.max_receive_message_length": 16 * 1024 * 1024,
};

/** Makes connections: with or without TLS, with or without a token. */
export class Transport {
  private readonly token: Token | undefined;

  /** Throws `BuildError` if a file cannot be read. */
  constructor(
    private readonly security: SecurityOptions,
    private readonly overTls: boolean,
  ) {
    this.token = Token.of(security);
    channelCredentials(security, overTls);
  }

  /** Throws `BuildError` if the token would be sent to `address` without TLS. */
  checkToken(address: string): void {
    const isClear = !this.overTls && !isLoopback(address);
    if (this.token !== undefined && isClear && this.security.allowClearToken !== true) {
      throw new BuildError(`refusing to send the token to ${address} without TLS: use TLS, or set allowClearToken`);
    }
  }

  /** A connection to `address`. It connects when it is first used. */
  connect(address: string): Connection {
    this.checkToken(address);
    const { tlsServerName } = this.security;
    const names = tlsServerName === undefined ? {} : { "grpc.ssl_target_name_override": tlsServerName };
    const credentials = channelCredentials(this.security, this.overTls);
    return new Connection(address, new GrpcClient(address, credentials, { ...CHANNEL_OPTIONS, ...names }), this.token);
  }
}

/** A connection to one server. */
export class Connection {
  constructor(
    readonly address: string,
    private readonly client: GrpcClient,
    private readonly token: Token | undefined,
  ) {}

  /** Calls a method. Returns what cancels the call; then `done` is not called. */
  call<Q, A>(
    method: Method<Q, A>,
    request: Q,
    done: (answer: A | undefined, error: CallError | undefined) => void,
  ): () => void {
    let cancelled = false;
    const call = this.client.makeUnaryRequest<Q, A>(
      method.path,
      (value) => encode(method.request, value),
      (bytes) => decode(method.answer, bytes),
      request,
      this.metadata(),
      (error, answer) => {
        if (!cancelled) done(answer, error === null ? undefined : failure(error));
      },
    );
    return () => {
      cancelled = true;
      call.cancel();
    };
  }

  /** Opens a stream that does not keep the process running. Returns what closes it; then `ended` is not called. */
  stream<Q, A>(
    method: Method<Q, A>,
    request: Q,
    received: (answer: A) => void,
    ended: (error: CallError) => void,
  ): () => void {
    const stream: ClientReadableStream<A> = this.client.makeServerStreamRequest<Q, A>(
      method.path,
      (value) => encode(method.request, value),
      (bytes) => decode(method.answer, bytes),
      request,
      this.metadata(),
    );
    let over = false;
    const end = (error: CallError) => {
      if (!over) ended(error);
      over = true;
    };
    stream.on("metadata", () => this.unref());
    stream.on("data", (answer: A) => {
      this.unref();
      if (!over) received(answer);
    });
    stream.on("error", (error: ServiceError) => end(failure(error)));
    stream.on("end", () => end({ code: status.UNAVAILABLE, message: "the stream has ended" }));
    return () => {
      over = true;
      stream.cancel();
    };
  }

  /** Opens a stream of requests and answers, one at a time. */
  exchange<Q, A>(method: Method<Q, A>): Exchange<Q, A> {
    const stream = this.client.makeBidiStreamRequest<Q, A>(
      method.path,
      (value) => encode(method.request, value),
      (bytes) => decode(method.answer, bytes),
      this.metadata(),
    );
    return new Exchange(stream, () => this.unref());
  }

  close(): void {
    this.client.close();
  }

  private metadata(): Metadata {
    const metadata = new Metadata();
    if (this.token !== undefined) metadata.set("authorization", this.token.header());
    return metadata;
  }

  /**
   * Lets the process exit although a stream is open. grpc-js has no function for it: it keeps the event loop alive
   * while a session has calls. If its fields move, only an idle process that never closes its client is affected.
   */
  private unref(): void {
    const channel = this.client.getChannel() as unknown as ChannelInternals;
    for (const subchannels of Object.values(channel.internalChannel?.subchannelPool?.pool ?? {})) {
      for (const { subchannel } of subchannels) subchannel?.transport?.session?.unref?.();
    }
  }
}

/** A stream of requests and answers. It does not keep the process running. */
export class Exchange<Q, A> {
  private done: ((answer: A | undefined, error: CallError | undefined) => void) | undefined;
  private ended: CallError | undefined;

  constructor(
    private readonly stream: ClientDuplexStream<Q, A>,
    private readonly unref: () => void,
  ) {
    const end = (error: CallError) => {
      this.ended ??= error;
      this.finish(undefined, this.ended);
    };
    stream.on("metadata", () => this.unref());
    stream.on("data", (answer: A) => {
      this.unref();
      this.finish(answer, undefined);
    });
    stream.on("error", (error: ServiceError) => end(failure(error)));
    stream.on("end", () => queueMicrotask(() => end({ code: status.UNAVAILABLE, message: "the stream has ended" })));
  }

  /** Sends a request. `done` gets its answer, or why there is none; then the stream is over. */
  send(request: Q, done: (answer: A | undefined, error: CallError | undefined) => void): void {
    if (this.ended !== undefined) {
      queueMicrotask(() => done(undefined, this.ended));
      return;
    }
    this.done = done;
    this.stream.write(request);
  }

  /** Closes the stream. The request in flight gets no answer. */
  close(): void {
    this.done = undefined;
    this.stream.cancel();
  }

  private finish(answer: A | undefined, error: CallError | undefined): void {
    const { done } = this;
    this.done = undefined;
    done?.(answer, error);
  }
}

interface ChannelInternals {
  internalChannel?: {
    subchannelPool?: {
      pool?: Record<string, { subchannel?: { transport?: { session?: { unref?: () => void } } } }[]>;
    };
  };
}

function failure(error: ServiceError): CallError {
  return { code: error.code, message: error.details || error.message };
}

const CLIENTS_USE = "clients use --listen, 5100 by default";

/** Explains why a request to `server` failed. Recognises ports that are not the one for clients. */
export function explain(server: string, { code, message }: CallError): string {
  if (/this server speaks TLS|Expected HTTP\/2 frame.*TLS/i.test(message)) {
    return `${server} speaks TLS: use https://${server}, or set tlsCa`;
  }
  const http = /Received HTTP status code (\d+)/.exec(message)?.[1];
  if (http !== undefined && !http.startsWith("5")) {
    return `${server} speaks HTTP, not gRPC: this looks like the --http port; ${CLIENTS_USE}`;
  }
  if (/Protocol error|ERR_HTTP2_ERROR/.test(message)) {
    return `${server} does not speak gRPC: this looks like the port of another service; ${CLIENTS_USE}`;
  }
  if (code === status.UNIMPLEMENTED && (message === "" || /unknown service/.test(message))) {
    return `${server} has no service doorman.Capacity: this looks like the --admin port or the peer port; ${CLIENTS_USE}`;
  }
  const cause = /Last error: (.*?)(?:\. Resolution note: *)?$/s.exec(message)?.[1] ?? message;
  return `${server}: ${cause} (${status[code] ?? code})`;
}
