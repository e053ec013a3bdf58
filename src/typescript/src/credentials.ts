import { readFileSync } from "node:fs";

import { credentials as grpcCredentials, type ChannelCredentials } from "@grpc/grpc-js";

import { BuildError } from "./errors.js";

/** How often a token file is read again, if requests are made. */
const RELOAD_INTERVAL_MS = 1_000;

/** How connections are made, and what proves the identity of the client. */
export interface SecurityOptions {
  /** Connect over TLS and trust the CAs of the system. Implied by `https://` and by the other TLS options. */
  tls?: boolean | undefined;
  /** File with the CA that has to sign the servers' certificates (PEM). */
  tlsCa?: string | undefined;
  /** File with the client certificate (PEM). */
  tlsCert?: string | undefined;
  /** File with the key of the client certificate (PEM). */
  tlsKey?: string | undefined;
  /** The name in the servers' certificates, if it differs from the host. */
  tlsServerName?: string | undefined;
  /** Bearer token, sent over TLS or to this machine only, see `allowClearToken`. */
  token?: string | undefined;
  /** File with the token, read again when it changes. */
  tokenFile?: string | undefined;
  /** Send the token without TLS to other machines, too, because a tunnel protects the connection (default false). */
  allowClearToken?: boolean | undefined;
}

/** Whether any of the options selects TLS. */
export function selectsTls(options: SecurityOptions): boolean {
  const { tls, tlsCa, tlsCert, tlsKey, tlsServerName } = options;
  return tls === true || [tlsCa, tlsCert, tlsKey, tlsServerName].some((option) => option !== undefined);
}

/** Reads the certificates for a new connection, so that renewed ones are used without a restart. */
export function channelCredentials(options: SecurityOptions, overTls: boolean): ChannelCredentials {
  if (!overTls) return grpcCredentials.createInsecure();
  const { tlsCa, tlsCert, tlsKey } = options;
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    throw new BuildError("tlsCert and tlsKey belong together: set both");
  }
  const [ca, cert, key] = [read(tlsCa, "CA"), read(tlsCert, "certificate"), read(tlsKey, "key")];
  try {
    return grpcCredentials.createSsl(ca, key, cert);
  } catch (error) {
    throw new BuildError(`the certificates cannot be used: ${messageOf(error)}`);
  }
}

function read(file: string | undefined, what: string): Buffer | null {
  if (file === undefined) return null;
  try {
    return readFileSync(file);
  } catch (error) {
    throw new BuildError(`cannot read the ${what} in ${file}: ${messageOf(error)}`);
  }
}

/** A bearer token that is sent with every request. */
export class Token {
  private value: string;
  private readAt: number;

  private constructor(
    text: string,
    source: string,
    private readonly file: string | undefined,
  ) {
    this.value = Token.header(text, source);
    this.readAt = performance.now();
  }

  /** The token of these options, if they have one. */
  static of({ token, tokenFile }: SecurityOptions): Token | undefined {
    if (token !== undefined && tokenFile !== undefined) {
      throw new BuildError("set either token or tokenFile, not both");
    }
    if (token !== undefined) return new Token(token, "the token", undefined);
    if (tokenFile === undefined) return undefined;
    return new Token(Token.read(tokenFile), tokenFile, tokenFile);
  }

  /** The value of the `authorization` header. The last token stays in use if its file cannot be read. */
  header(): string {
    if (this.file !== undefined && performance.now() - this.readAt >= RELOAD_INTERVAL_MS) {
      this.readAt = performance.now();
      try {
        this.value = Token.header(Token.read(this.file), this.file);
      } catch {
        // An unreadable file is most likely being replaced.
      }
    }
    return this.value;
  }

  private static read(file: string): string {
    // Servers ignore a trailing line break, too.
    return (read(file, "token") ?? Buffer.alloc(0)).toString("utf8").replace(/[\r\n]+$/, "");
  }

  private static header(text: string, source: string): string {
    if (!/^[\x20-\x7e]+$/.test(text)) {
      throw new BuildError(`${source}: a token is one line of visible ASCII characters`);
    }
    return `Bearer ${text}`;
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
