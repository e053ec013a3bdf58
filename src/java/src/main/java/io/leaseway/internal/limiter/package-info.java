/**
 * Admits callers at the rate, or in the number, that a capacity allows. It knows neither sessions nor networks.
 *
 * <p>Callers are served first come, first served. No caller overtakes a waiting one, so a caller that needs many
 * permits is not starved by callers that need few.
 *
 * <p>The arithmetic and the queue (Bucket, Count, FairQueue, Demand) have no clock, no lock and no thread. RateLimiter
 * and GaugeLimiter add a lock, the monotonic clock, and a timer that runs only while callers wait for time to pass.
 *
 * <p>A limiter knows when its lease expires. From then on it uses the fallback capacity, whether or not its owner has
 * run since.
 *
 * <p>A budget has no limiter but a Spender: a queue of callers, with a lock and a clock, at a BudgetBook without them.
 * They take leases and report what was spent.
 */
package io.leaseway.internal.limiter;
