/**
 * Renewal by a stream: a client that holds very many leases states what has changed, and renews all others with one
 * message.
 *
 * Each resource gets an index on the stream with the message that states it first. It is renewable while the client has
 * the lease of the last answer and its demand is the one that was stated last; a later message names its index only. A
 * resource is stated again if its demand has changed, if its lease was cut, if it was left out of an answer, or if its
 * last answer did not count. So a renewal always stands for a request that names the newest lease, with nothing in use
 * beyond it.
 *
 * Messages are requests like others: one is in flight at a time. If its answer does not come, the stream is given up, and
 * everything is stated on another, or by GetCapacity if the server or a proxy does not pass streams.
 */

import type { Ask, Given } from "../session.js";

/** How long no stream to a server is opened after one could not be. Doubles while that goes on. */
const PAUSE_FIRST = 10_000;
const PAUSE_MAX = 600_000;
/** A stream with more indexes of resources that are gone is replaced by another. */
const MAX_GONE = 1_000;
/** Servers that accept streams. The peers of a node are fewer. */
const MAX_OFFERS = 64;
/**
 * Renewals in one message. If all of them needed a new lease, the server would still answer in time, with a message of
 * less than four megabytes.
 */
export const MAX_RENEWED = 20_000;

/** A message on a stream of renewals. */
export interface StreamRequest {
  /** Identifies the stream within its session. */
  readonly stream: number;
  /** The number of the message. The first of a stream has number 1. */
  readonly sequence: number;
  /** New and changed resources, with their indexes. */
  readonly stated: readonly { readonly index: number; readonly ask: Ask }[];
  /** The indexes of the resources to renew. */
  readonly renewed: readonly { readonly first: number; readonly count: number }[];
}

/** The answer to a `StreamRequest`. */
export interface StreamReply {
  /** The time of the answer in Unix seconds, from which renewed leases count on the wire. */
  readonly unix: bigint;
  /** New leases, by index. Their ids are ignored. */
  readonly granted: readonly { readonly index: number; readonly given: Given }[];
  /** Resources that keep their leases. */
  readonly leftOut: readonly number[];
  /** The server does not know this stream: everything has to be stated on another. */
  readonly restart: boolean;
}

/** The place of a resource on a stream. */
export interface Place {
  readonly stream: number;
  readonly index: number;
  /** Whether the last answer for it was taken, and did not cut its lease. */
  isKnown: boolean;
}

export interface OpenStream {
  readonly number: number;
  readonly target: string;
  /** The number of the next message. */
  next: number;
  /** The resources, by index. */
  readonly ids: string[];
}

/** A server that accepts streams. */
interface Offer {
  /** The minimum number of resources to use a stream. */
  resources: number;
  /** No stream to this server is opened before. */
  pausedUntil: number;
  /** The last pause; 0 after an answer on a stream. */
  pause: number;
}

/** Which servers accept streams, and the stream that is open. */
export class RenewalStream {
  open: OpenStream | undefined;
  private readonly offers = new Map<string, Offer>();
  private last = 0;

  offer(server: string, resources: number | undefined): void {
    const known = this.offers.get(server);
    if (resources === undefined) this.offers.delete(server);
    else if (known !== undefined) known.resources = resources;
    else if (this.offers.size < MAX_OFFERS) this.offers.set(server, { resources, pausedUntil: 0, pause: 0 });
  }

  /** Whether to ask on a stream. */
  isUsed(now: number, target: string, resources: number): boolean {
    const offer = this.offers.get(target);
    if (offer === undefined || resources < offer.resources) return false;
    return this.open?.target === target || offer.pausedUntil <= now;
  }

  /** The open stream to this server, or another one. */
  openTo(target: string, resources: number): OpenStream {
    if (this.open?.target !== target || this.open.ids.length > 2 * resources + MAX_GONE) {
      this.last += 1;
      this.open = { number: this.last, target, next: 1, ids: [] };
    }
    return this.open;
  }

  giveUp(): void {
    this.open = undefined;
  }

  /** Gives the stream up after a failure. If it was the first message, no other stream to its server is opened for a while. */
  fail(now: number): void {
    if (this.open?.next === 1) this.pauseFor(now, this.open.target, PAUSE_FIRST);
    this.giveUp();
  }

  /** A server, or a proxy before it, does not know streams. */
  refused(now: number, server: string): void {
    this.pauseFor(now, server, PAUSE_MAX);
  }

  succeeded(server: string): void {
    const offer = this.offers.get(server);
    if (offer !== undefined) offer.pause = 0;
  }

  private pauseFor(now: number, server: string, least: number): void {
    const offer = this.offers.get(server);
    if (offer === undefined) return;
    offer.pause = Math.min(Math.max(2 * offer.pause, least), PAUSE_MAX);
    offer.pausedUntil = now + offer.pause;
  }
}

/** Ranges of ascending indexes. */
export function ranges(indexes: readonly number[]): { first: number; count: number }[] {
  const found: { first: number; count: number }[] = [];
  for (const index of indexes) {
    const last = found.at(-1);
    if (last !== undefined && last.first + last.count === index) last.count += 1;
    else found.push({ first: index, count: 1 });
  }
  return found;
}
