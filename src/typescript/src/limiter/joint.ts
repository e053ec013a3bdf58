/**
 * Permits of several semaphores: a caller takes all of them at the same moment, or nothing.
 *
 * A caller that has to wait joins the queues of all its semaphores at once, so one order of arrival holds in all queues. In
 * each, permits are reserved for it when it gets to the head and they are available; callers behind it get only what is
 * left over. Once its permits are reserved at all semaphores, it takes them. So it holds nothing while it waits, nobody is
 * starved, and no order of the semaphores leads to a deadlock.
 */

import { ClosedError } from "../errors.js";
import type { Bucket } from "./bucket.js";
import type { PermitCount } from "./count.js";
import {
  advanceAll,
  type JointWaiter,
  type Refusal,
  type Semaphore,
  type Waiter,
  type WaitOptions,
  watchWait,
} from "./semaphore.js";

type AnySemaphore = Semaphore<Bucket> | Semaphore<PermitCount>;

/** A semaphore and a number of permits of it. */
export interface Part {
  readonly semaphore: AnySemaphore;
  readonly n: number;
}

/** Why permits of several semaphores are not available now. Nothing was taken, and the caller was not queued. */
export interface JointRefusal {
  /** The index of the part that refuses; of several, the one that takes longest. */
  readonly index: number;
  readonly refusal: Refusal;
}

/**
 * Several semaphores with a number of permits of each. A semaphore may be named several times; the numbers add up. One
 * with 0 permits is not waited for.
 */
export class Joint {
  /** Each semaphore, with the sum of its parts. */
  private readonly slots: Part[];

  constructor(private readonly parts: readonly Part[]) {
    const sums = new Map<AnySemaphore, number>();
    for (const { semaphore, n } of parts) if (n > 0) sums.set(semaphore, (sums.get(semaphore) ?? 0) + n);
    this.slots = [...sums].map(([semaphore, n]) => ({ semaphore, n }));
  }

  /**
   * Takes the permits of all semaphores if they are available and no caller waits for them, else says why not. Only
   * semaphores that refuse count the request as demand. Takes nothing if other limits, whose indices are not those of
   * semaphores, have refused already.
   */
  tryAcquire(others: readonly JointRefusal[] = []): JointRefusal | undefined {
    const claimed = new Map<AnySemaphore, number>();
    const refusals: JointRefusal[] = [];
    for (const [index, { semaphore, n }] of this.parts.entries()) {
      if (n === 0) continue;
      const before = claimed.get(semaphore) ?? 0;
      const refusal = semaphore.claim(before, n);
      if (refusal === undefined) claimed.set(semaphore, before + n);
      else refusals.push({ index, refusal });
    }
    if (refusals.length === 0 && others.length === 0) this.take();
    for (const { index, refusal } of refusals) {
      const part = this.parts[index];
      if (refusal.reason === "not-now") part?.semaphore.refuseDemand(part.n);
    }
    this.advance();
    const all = [...refusals, ...others].sort((a, b) => a.index - b.index);
    return all.reduce<JointRefusal | undefined>(slower, undefined);
  }

  /** Waits for the permits of all semaphores, and takes them at the same moment. */
  acquire(options?: WaitOptions): Promise<void> {
    const signal = options?.signal;
    if (signal?.aborted) return Promise.reject(signal.reason);
    if (this.slots.some(({ semaphore }) => semaphore.isClosed)) return Promise.reject(new ClosedError());
    if (this.slots.every(({ semaphore, n }) => semaphore.claim(0, n) === undefined)) {
      this.take();
      this.advance();
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const ticket = new Ticket(this.slots, resolve, reject);
      const time = this.slots[0]?.semaphore.time;
      if (options !== undefined && time !== undefined) {
        ticket.cleanUp = watchWait(time, options, (reason) => ticket.leave(reason));
      }
      this.advance();
    });
  }

  private take(): void {
    for (const { semaphore, n } of this.slots) semaphore.takeChecked(n);
  }

  private advance(): void {
    advanceAll(takeAdvanced(this.slots));
  }
}

function takeAdvanced(slots: readonly Part[]): JointWaiter[] {
  return slots.flatMap(({ semaphore }) => semaphore.takeAdvanced());
}

/** The refusal that takes longer, or the first one. A retry before its permits are available is in vain. */
function slower(worst: JointRefusal | undefined, next: JointRefusal): JointRefusal {
  if (worst === undefined) return next;
  const [[kind, wait], [nextKind, nextWait]] = [severity(worst.refusal), severity(next.refusal)];
  return nextKind > kind || (nextKind === kind && nextWait > wait) ? next : worst;
}

function severity(refusal: Refusal): [number, number] {
  switch (refusal.reason) {
    case "not-now":
      return refusal.retryAfterMs === undefined ? [1, 0] : [0, refusal.retryAfterMs];
    case "too-many":
      return [2, 0];
    case "closed":
      return [3, 0];
  }
}

/** A caller that waits in the queues of several semaphores. */
class Ticket implements JointWaiter {
  private waiters: Waiter[] | undefined;
  /** Removes the listener of the signal and the timer. */
  cleanUp: (() => void) | undefined;

  constructor(
    private readonly slots: readonly Part[],
    private readonly resolve: () => void,
    private readonly reject: (reason: unknown) => void,
  ) {
    this.waiters = slots.map(({ semaphore, n }) => semaphore.join(n, this));
  }

  advance(): JointWaiter[] {
    if (this.waiters === undefined) return [];
    // A semaphore has refused its waiters.
    if (this.waiters.some(({ isQueued }) => !isQueued)) this.end(() => this.reject(new ClosedError()));
    else if (this.areReserved(this.waiters)) this.admit(this.waiters);
    return takeAdvanced(this.slots);
  }

  private areReserved(waiters: Waiter[]): boolean {
    // All semaphores are looked at, because that notices an expired capacity.
    return this.slots.filter(({ semaphore }, at) => !semaphore.isReserved(waiterAt(waiters, at))).length === 0;
  }

  private admit(waiters: Waiter[]): void {
    this.waiters = undefined;
    this.slots.forEach(({ semaphore }, at) => {
      semaphore.takeReserved(waiterAt(waiters, at));
    });
    this.cleanUp?.();
    this.resolve();
  }

  /** The caller stops waiting, and takes nothing. */
  leave(reason: unknown): void {
    this.end(() => this.reject(reason));
    advanceAll(takeAdvanced(this.slots));
  }

  private end(settle: () => void): void {
    const { waiters } = this;
    if (waiters === undefined) return;
    this.waiters = undefined;
    this.slots.forEach(({ semaphore }, at) => {
      semaphore.remove(waiterAt(waiters, at));
    });
    this.cleanUp?.();
    settle();
  }
}

function waiterAt(waiters: Waiter[], at: number): Waiter {
  const waiter = waiters[at];
  if (waiter === undefined) throw new RangeError(`no waiter at ${at}`);
  return waiter;
}
