/** The messages of proto/doorman.proto, proto/push.proto and proto/session.proto that a client sends and receives. */

import { field, message, repeated } from "./codec.js";

export interface LeaseMessage {
  expiryTime?: bigint | undefined;
  refreshInterval?: bigint | undefined;
  capacity?: number | undefined;
  token?: bigint | undefined;
  remainingMs?: bigint | undefined;
}

export const LeaseMessage = message<LeaseMessage>({
  expiryTime: field(1, "int64"),
  refreshInterval: field(2, "int64"),
  capacity: field(3, "double"),
  token: field(100, "uint64"),
  remainingMs: field(101, "int64"),
});

export interface UsageMessage {
  rechargingFraction?: number | undefined;
  requestCost?: number | undefined;
  intervalMs?: bigint | undefined;
}

export const UsageMessage = message<UsageMessage>({
  rechargingFraction: field(1, "double"),
  requestCost: field(2, "double"),
  intervalMs: field(3, "int64"),
});

export interface SpentMessage {
  amount?: number | undefined;
  period?: bigint | undefined;
  incarnation?: bigint | undefined;
  need?: number | undefined;
}

export const SpentMessage = message<SpentMessage>({
  amount: field(1, "double"),
  period: field(2, "int64"),
  incarnation: field(3, "fixed64"),
  need: field(4, "double"),
});

export interface BudgetLeaseMessage {
  periodStart?: bigint | undefined;
  periodEnd?: bigint | undefined;
  startsOver?: boolean | undefined;
}

export const BudgetLeaseMessage = message<BudgetLeaseMessage>({
  periodStart: field(1, "int64"),
  periodEnd: field(2, "int64"),
  startsOver: field(3, "bool"),
});

export interface ResourceRequest {
  resourceId?: string | undefined;
  priority?: bigint | undefined;
  has?: LeaseMessage | undefined;
  wants?: number | undefined;
  usage?: UsageMessage | undefined;
  outstanding?: number | undefined;
  had?: LeaseMessage | undefined;
  spent?: SpentMessage | undefined;
}

export const ResourceRequest = message<ResourceRequest>({
  resourceId: field(1, "string"),
  priority: field(2, "int64"),
  has: field(3, LeaseMessage),
  wants: field(4, "double"),
  usage: field(100, UsageMessage),
  outstanding: field(101, "double"),
  had: field(102, LeaseMessage),
  spent: field(103, SpentMessage),
});

export interface GetCapacityRequest {
  clientId?: string | undefined;
  resource: readonly ResourceRequest[];
  dropsLate?: boolean | undefined;
}

export const GetCapacityRequest = message<GetCapacityRequest>({
  clientId: field(1, "string"),
  resource: repeated(2, ResourceRequest),
  dropsLate: field(100, "bool"),
});

export interface PoolStateMessage {
  state?: number | undefined;
  assigned?: number | undefined;
  minCapacity?: number | undefined;
  reason?: string | undefined;
  burstSeconds?: number | undefined;
}

export const PoolStateMessage = message<PoolStateMessage>({
  state: field(1, "enum"),
  assigned: field(2, "double"),
  minCapacity: field(3, "double"),
  reason: field(4, "string"),
  burstSeconds: field(100, "double"),
});

export interface ResourceResponse {
  resourceId?: string | undefined;
  gets?: LeaseMessage | undefined;
  safeCapacity?: number | undefined;
  pool?: PoolStateMessage | undefined;
  priority?: bigint | undefined;
  budget?: BudgetLeaseMessage | undefined;
}

export const ResourceResponse = message<ResourceResponse>({
  resourceId: field(1, "string"),
  gets: field(2, LeaseMessage),
  safeCapacity: field(3, "double"),
  pool: field(100, PoolStateMessage),
  priority: field(101, "int64"),
  budget: field(102, BudgetLeaseMessage),
});

export interface Mastership {
  masterAddress?: string | undefined;
}

export const Mastership = message<Mastership>({ masterAddress: field(1, "string") });

export interface Problem {
  resourceId?: string | undefined;
  reason?: string | undefined;
  message?: string | undefined;
}

export const Problem = message<Problem>({
  resourceId: field(1, "string"),
  reason: field(2, "string"),
  message: field(3, "string"),
});

export interface GetCapacityResponse {
  response: readonly ResourceResponse[];
  mastership?: Mastership | undefined;
  problem: readonly Problem[];
}

export const GetCapacityResponse = message<GetCapacityResponse>({
  response: repeated(1, ResourceResponse),
  mastership: field(2, Mastership),
  problem: repeated(100, Problem),
});

export interface ReleaseCapacityRequest {
  clientId?: string | undefined;
  resourceId: readonly string[];
  token: readonly bigint[];
  spent?: readonly SpentMessage[] | undefined;
}

export const ReleaseCapacityRequest = message<ReleaseCapacityRequest>({
  clientId: field(1, "string"),
  resourceId: repeated(2, "string"),
  token: repeated(100, "uint64"),
  spent: repeated(104, SpentMessage),
});

export interface ReleaseCapacityResponse {
  mastership?: Mastership | undefined;
  problem: readonly Problem[];
}

export const ReleaseCapacityResponse = message<ReleaseCapacityResponse>({
  mastership: field(1, Mastership),
  problem: repeated(100, Problem),
});

export interface DiscoveryRequest {
  readonly none?: never;
}

export const DiscoveryRequest = message<DiscoveryRequest>({ none: field(1000, "bool") });

export interface DiscoveryResponse {
  mastership?: Mastership | undefined;
  isMaster?: boolean | undefined;
  endpoint: readonly string[];
  renewsByStream?: boolean | undefined;
}

export const DiscoveryResponse = message<DiscoveryResponse>({
  mastership: field(1, Mastership),
  isMaster: field(2, "bool"),
  endpoint: repeated(100, "string"),
  renewsByStream: field(102, "bool"),
});

export interface WatchRequest {
  clientId?: string | undefined;
}

export const WatchRequest = message<WatchRequest>({ clientId: field(1, "string") });

export interface Hint {
  resourceId: readonly string[];
  everything?: boolean | undefined;
}

export const Hint = message<Hint>({ resourceId: repeated(1, "string"), everything: field(2, "bool") });

export interface RenewEntry {
  index?: bigint | undefined;
  request?: ResourceRequest | undefined;
}

export const RenewEntry = message<RenewEntry>({ index: field(1, "uint64"), request: field(2, ResourceRequest) });

export interface IndexRange {
  first?: bigint | undefined;
  count?: bigint | undefined;
}

export const IndexRange = message<IndexRange>({ first: field(1, "uint64"), count: field(2, "uint64") });

export interface RenewRequest {
  sequence?: bigint | undefined;
  clientId?: string | undefined;
  entry: readonly RenewEntry[];
  renew: readonly IndexRange[];
}

export const RenewRequest = message<RenewRequest>({
  sequence: field(1, "uint64"),
  clientId: field(2, "string"),
  entry: repeated(4, RenewEntry),
  renew: repeated(5, IndexRange),
});

export interface RenewGrant {
  index?: bigint | undefined;
  response?: ResourceResponse | undefined;
}

export const RenewGrant = message<RenewGrant>({ index: field(1, "uint64"), response: field(2, ResourceResponse) });

export interface RenewResponse {
  sequence?: bigint | undefined;
  unixTime?: bigint | undefined;
  grant: readonly RenewGrant[];
  leftOut: readonly bigint[];
  problem: readonly Problem[];
  restart?: string | undefined;
  mastership?: Mastership | undefined;
}

export const RenewResponse = message<RenewResponse>({
  sequence: field(1, "uint64"),
  unixTime: field(2, "int64"),
  grant: repeated(3, RenewGrant),
  leftOut: repeated(4, "uint64"),
  problem: repeated(5, Problem),
  restart: field(6, "string"),
  mastership: field(7, Mastership),
});
