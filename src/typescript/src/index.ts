/**
 * The Leaseway client: leases on shared capacity, kept alive in the background, and limiters that enforce them.
 *
 * ```ts
 * import { Client } from "leaseway";
 *
 * const client = new Client("localhost:5100");
 * const searches = client.rate("searches"); // permits per second
 * await searches.acquire();
 *
 * const transactions = client.gauge("transactions"); // permits in use at the same time
 * await transactions.use(async () => {});
 *
 * await client.close();
 * ```
 */

export { Balanced } from "./balanced.js";
export { Balancer, type BalancerOptions, Pick } from "./balancer.js";
export { Budget, BudgetReservation } from "./budget.js";
export {
  Client,
  type ClientOptions,
  type GaugeOptions,
  type RateOptions,
  type ResourceStats,
  type Stats,
} from "./client.js";
export type { SecurityOptions } from "./credentials.js";
export type { Counters, Health, LeaseChange, Log, LogLevel } from "./driver.js";
export {
  BuildError,
  ClosedError,
  DebtExceededError,
  LeasewayError,
  NotReadyError,
  OpenError,
  TimeoutError,
} from "./errors.js";
export { Gauge, Permit } from "./gauge.js";
export type { Standing } from "./limiter/bucket.js";
export type { WaitOptions } from "./limiter/semaphore.js";
export type { PoolStanding, PoolState } from "./limiter/usage.js";
export type { Window } from "./limiter/window.js";
export { Cost, Limits, Permits, Refusal, Reservations } from "./limits.js";
export {
  expressLimit,
  fastifyLimit,
  type LimitOptions,
  limitedFetch,
  limitInterceptor,
  type Limit,
  type MiddlewareOptions,
} from "./middleware.js";
export { PriceError, Prices } from "./prices.js";
export { Rate, Reservation } from "./rate.js";
export { Resource, type UseOptions } from "./resource.js";
export type { Basis, Mode, Usable } from "./session.js";
