/**
 * Conversion between the session and protobuf messages. Answers are validated here: malformed parts are dropped and
 * reported.
 */

import type { PoolStanding, PoolState } from "../limiter/usage.js";
import type { Ask, BudgetLease, BudgetUse, Given, Lease, Release, StreamReply, StreamRequest } from "../session.js";
import type {
  BudgetLeaseMessage,
  GetCapacityRequest,
  LeaseMessage,
  Mastership,
  PoolStateMessage,
  Problem,
  ReleaseCapacityRequest,
  RenewRequest,
  RenewResponse,
  ResourceRequest,
  ResourceResponse,
  SpentMessage,
} from "./messages.js";

/** Bound of lease lengths, so that they can be added to any time. */
const MAX_LEASE_SECONDS = 10 * 365 * 86_400;

/** The maximum burst of a pool. */
const MAX_BURST_SECONDS = 3_600;

/** The bound of servers. It stands for everything held for a client. */
export const MAX_AMOUNT = 1e15;

const STANDINGS: readonly PoolStanding[] = ["waiting", "free", "priority", "revoking"];

/** The request of a client. */
export function getCapacity(clientId: string, asks: readonly Ask[]): GetCapacityRequest {
  // See the rule of the session for late answers.
  return { clientId, resource: asks.map(resourceRequest), dropsLate: true };
}

function resourceRequest({ id, demand, has, had }: Ask): ResourceRequest {
  const { spent } = demand;
  return {
    resourceId: id,
    priority: BigInt(demand.priority),
    ...(spent === undefined
      ? { has: has && echo(has), had: had && echo(had) }
      : { has: allowance(spent, has ?? had), spent: spentOf(spent) }),
    wants: demand.amount,
    outstanding: outstandingBeyondLease(demand.outstanding, has),
    usage: demand.usage && {
      rechargingFraction: demand.usage.recharging,
      requestCost: demand.usage.units,
      intervalMs: BigInt(Math.floor(demand.usage.intervalMs)),
    },
  };
}

/** A message on a stream of renewals. */
export function renew(clientId: string, { sequence, stated, renewed }: StreamRequest): RenewRequest {
  return {
    sequence: BigInt(sequence),
    clientId: sequence === 1 ? clientId : undefined,
    entry: stated.map(({ index, ask }) => ({ index: BigInt(index), request: resourceRequest(ask) })),
    renew: renewed.map(({ first, count }) => ({ first: BigInt(first), count: BigInt(count) })),
  };
}

/** The answer on a stream of renewals. Resources of malformed leases are left out. */
export function renewed(answer: RenewResponse, sentUnixMs: number): { reply: StreamReply; malformed: string[] } {
  const granted: { index: number; given: Given }[] = [];
  const leftOut = answer.leftOut.map(Number);
  const malformed: string[] = [];
  for (const { index, response } of answer.grant) {
    // A field that is 0 is absent.
    const at = Number(index ?? 0n);
    const leases = leasesOf([response ?? {}], sentUnixMs);
    for (const given of leases.given) granted.push({ index: at, given });
    leftOut.push(...leases.malformed.map(() => at));
    malformed.push(...leases.malformed);
  }
  const reply = { unix: answer.unixTime ?? 0n, granted, leftOut, restart: answer.restart !== undefined };
  return { reply, malformed };
}

/**
 * The lease that gave the allowance of a budget, even if it has expired. A smaller allowance than what was spent meanwhile
 * counts as what was spent.
 */
function allowance({ token, spent }: BudgetUse, lease: Lease | undefined): LeaseMessage | undefined {
  if (lease?.token === undefined || lease.token !== token) return undefined;
  return { ...echo(lease), capacity: Math.max(lease.wire.capacity, spent) };
}

function spentOf({ spent, period, incarnation, need }: BudgetUse): SpentMessage {
  return { amount: spent, period, incarnation, need: need > 0 ? need : undefined };
}

/** The wire has the amount in use beyond the echoed lease. */
function outstandingBeyondLease(outstanding: number, has: Lease | undefined): number | undefined {
  const beyond = outstanding < MAX_AMOUNT ? outstanding - (has?.capacity ?? 0) : MAX_AMOUNT;
  return beyond > 0 ? beyond : undefined;
}

/** A lease as `has` echoes it: exactly as it was received. */
function echo({ wire, token }: Lease): LeaseMessage {
  return { ...wire, token };
}

/** A request to release leases by name. */
export function releaseCapacity(clientId: string, releases: readonly Release[]): ReleaseCapacityRequest {
  const hasBudgets = releases.some(({ spent }) => spent !== undefined);
  return {
    clientId,
    resourceId: releases.map(({ id }) => id),
    // 0 stands for no name, because tokens and reports are matched to resources by position.
    token: releases.map(({ token }) => token ?? 0n),
    spent: hasBudgets ? releases.map(({ spent }) => (spent === undefined ? {} : spentOf(spent))) : undefined,
  };
}

/**
 * The leases of an answer, and the resources of malformed ones. `sentUnixMs` is when the request was sent, by the wall
 * clock.
 */
export function leasesOf(
  answer: readonly ResourceResponse[],
  sentUnixMs: number,
): { given: Given[]; malformed: string[] } {
  const given: Given[] = [];
  const malformed: string[] = [];
  for (const response of answer) {
    const id = response.resourceId ?? "";
    const lease = response.gets && leaseOf(id, response.gets, response.safeCapacity, sentUnixMs);
    if (lease === undefined) malformed.push(id);
    else given.push({ ...lease, budget: response.budget && budgetOf(response.budget) });
  }
  return { given, malformed };
}

function budgetOf({ periodStart, periodEnd, startsOver }: BudgetLeaseMessage): BudgetLease | undefined {
  return periodStart === undefined
    ? undefined
    : { start: periodStart, end: periodEnd, startsOver: startsOver === true };
}

function leaseOf(id: string, lease: LeaseMessage, safe: number | undefined, sentUnixMs: number): Given | undefined {
  const { capacity, expiryTime, refreshInterval } = lease;
  if (capacity === undefined || !Number.isFinite(capacity)) return undefined;
  if (expiryTime === undefined || refreshInterval === undefined) return undefined;
  return {
    id,
    length: lengthOf(lease.remainingMs, expiryTime, sentUnixMs),
    refresh: clamp(Number(refreshInterval), MAX_LEASE_SECONDS) * 1000,
    token: lease.token === 0n ? undefined : lease.token,
    wire: { expiryTime, refreshInterval, capacity },
    safe: Number.isNaN(safe) ? undefined : safe,
  };
}

/**
 * The length of a lease, counted from when its request was sent. A server of the original protocol sends the expiry by
 * its own clock, so the result is off by the difference of the clocks.
 */
function lengthOf(remainingMs: bigint | undefined, expiryTime: bigint, sentUnixMs: number): number {
  const length = remainingMs === undefined ? Number(expiryTime) * 1000 - sentUnixMs : Number(remainingMs);
  return clamp(Math.floor(length), MAX_LEASE_SECONDS * 1000);
}

function clamp(value: number, most: number): number {
  return Math.min(Math.max(value, 0), most);
}

/** The state of a pool. Malformed numbers count as 0, because they are informational. */
export function poolOf(state: PoolStateMessage): PoolState {
  const finite = (number: number | undefined) => (Number.isFinite(number) ? (number ?? 0) : 0);
  const { burstSeconds } = state;
  return {
    standing: STANDINGS[state.state ?? 0] ?? "waiting",
    assigned: finite(state.assigned),
    minCapacity: finite(state.minCapacity),
    reason: state.reason || undefined,
    burstMs:
      burstSeconds !== undefined && burstSeconds >= 0 ? Math.min(burstSeconds, MAX_BURST_SECONDS) * 1000 : undefined,
  };
}

/** Whether a reason for leaving a resource out of an answer is transient. */
export function isTransient(problem: Problem): boolean {
  return problem.reason === "too_soon" || problem.reason === "not_yet";
}

/** The message of a request of which everything was refused, because it is invalid or a limit was reached. */
export function refusalOf(problems: readonly Problem[], answered: number): string | undefined {
  if (answered > 0) return undefined;
  const problem = problems.find((one) => !isTransient(one));
  return problem && `${problem.message ?? ""} (${problem.reason ?? "refused"})`;
}

/** The master in an answer of a server that is not the master; `undefined` inside if it knows of none. */
export function redirectOf(mastership: Mastership | undefined): { master: string | undefined } | undefined {
  return mastership && { master: mastership.masterAddress || undefined };
}
