import { isIP, isIPv6 } from "node:net";

import { BuildError } from "./errors.js";

/** The default port for clients, as for `--listen`. */
export const DEFAULT_PORT = 5100;

/** The maximum length of a DNS name. */
const MAX_HOST_LENGTH = 253;

/** A parsed endpoint. */
export interface Endpoint {
  /** The normalised `HOST:PORT`: always with a port, and with IPv6 addresses in brackets. */
  readonly address: string;
  /** Whether it selects TLS; `undefined` without `http://` or `https://`. */
  readonly tls: boolean | undefined;
}

function bad(endpoint: string, why: string): never {
  throw new BuildError(`invalid server address \`${endpoint.slice(0, MAX_HOST_LENGTH)}\`: ${why}`);
}

/** Parses `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`. Throws `BuildError`. */
export function parseEndpoint(endpoint: string): Endpoint {
  const text = endpoint.trim();
  const scheme = /^([^/]*):\/\/(.*?)\/?$/s.exec(text);
  const name = scheme?.[1]?.toLowerCase();
  if (name !== undefined && name !== "http" && name !== "https") {
    bad(endpoint, `unknown scheme \`${name}://\`: write HOST:PORT, or https://HOST:PORT`);
  }
  const [host, port] = split(endpoint, scheme?.[2] ?? text);
  const number = port === undefined ? DEFAULT_PORT : Number(port);
  if (port !== undefined && (!/^\d+$/.test(port) || number < 1 || number > 65_535)) {
    bad(endpoint, `the port \`${port}\` is not a number from 1 to 65535`);
  }
  return { address: `${host}:${number}`, tls: name === undefined ? undefined : name === "https" };
}

/**
 * Parses the address of a server that another server has named. `undefined` if it is malformed, or selects TLS, because
 * only the options of the client do that.
 */
export function parseAddress(text: string): string | undefined {
  try {
    const { address, tls } = parseEndpoint(text);
    return tls === true ? undefined : address;
  } catch {
    return undefined;
  }
}

function split(endpoint: string, address: string): [string, string | undefined] {
  if (isIPv6(address)) return [`[${address}]`, undefined];
  const bracketed = /^\[([^\]]*)\](?::(.*))?$/s.exec(address);
  if (bracketed !== null) {
    if (!isIPv6(bracketed[1] ?? "")) bad(endpoint, `\`${bracketed[1]}\` is not an IPv6 address`);
    return [`[${bracketed[1]}]`, bracketed[2]];
  }
  const [host = "", port, ...more] = address.split(":");
  if (more.length > 0) bad(endpoint, "several colons: write HOST:PORT, with an IPv6 address in brackets");
  if (host === "") bad(endpoint, "missing host: write HOST:PORT, such as localhost:5100");
  if (host.length > MAX_HOST_LENGTH) bad(endpoint, `the host has more than ${MAX_HOST_LENGTH} bytes`);
  const odd = /[^A-Za-z0-9._-]/.exec(host)?.[0];
  if (odd === "/") bad(endpoint, "unexpected path: write HOST:PORT");
  if (odd === ",") bad(endpoint, "unexpected comma: write one server");
  if (odd !== undefined) bad(endpoint, `invalid character '${odd}' in the host: write HOST:PORT`);
  return [host, port];
}

/**
 * Whether these servers of one node use TLS. Either all do or none, because each may redirect a client to any other.
 * `wanted` says that TLS was selected by other means.
 */
export function overTls(endpoints: readonly Endpoint[], wanted: boolean): boolean {
  const plain = endpoints.find((endpoint) => endpoint.tls === false);
  const secured = endpoints.find((endpoint) => endpoint.tls === true);
  if (plain !== undefined && secured !== undefined) {
    const why = `it does not use TLS but https://${secured.address} does: all servers of a node have to`;
    bad(`http://${plain.address}`, why);
  }
  if (plain !== undefined && wanted) {
    bad(`http://${plain.address}`, "http:// conflicts with TLS options: write https://, or HOST:PORT");
  }
  return wanted || secured !== undefined;
}

/** Whether an address is on this machine. */
export function isLoopback(address: string): boolean {
  const host = address.slice(0, address.lastIndexOf(":")).replace(/^\[|\]$/g, "");
  if (host.toLowerCase() === "localhost") return true;
  return isIP(host) === 4 ? host.startsWith("127.") : host === "::1";
}
