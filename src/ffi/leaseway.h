/* The Leaseway client for C: leases on shared capacity, and limiters that enforce them. Examples are in
 * docs/guide/other-languages.md.
 *
 * Functions that can fail return a code and describe the error in `error`. Each caller passes an error of its own, or
 * NULL. Every function may be called from any thread, also while others wait. A handle is freed once, when no other
 * call uses it. Strings are UTF-8 and end with NUL.
 *
 * After a fork the child has to open a client of its own. Inherited handles fail with LEASEWAY_FORKED there, and
 * freeing them does nothing.
 *
 * Generated from src/ffi: `BLESS=1 cargo test -p leaseway-ffi header`. */

#ifndef LEASEWAY_H
#define LEASEWAY_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

// Keeps leases alive in a thread of its own.
typedef struct leaseway_client leaseway_client;
// Permits per second. Waiting callers are served first come, first served.
typedef struct leaseway_rate leaseway_rate;
// Permits of a rate taken in advance, until they are settled.
typedef struct leaseway_reservation leaseway_reservation;
// Permits in use at the same time. Waiting callers are served first come, first served.
typedef struct leaseway_gauge leaseway_gauge;
// Permits of a gauge in use, until they are released.
typedef struct leaseway_permit leaseway_permit;
// An amount per period, which all clients together never overspend. Callers are served first come, first served.
typedef struct leaseway_budget leaseway_budget;
// An amount of a budget taken in advance, until it is settled.
typedef struct leaseway_budget_reservation leaseway_budget_reservation;
// Several limits whose permits and amounts are taken together, or not at all.
typedef struct leaseway_limits leaseway_limits;
// Permits of several limits, until they are released.
typedef struct leaseway_permits leaseway_permits;
// Permits and amounts of several limits taken in advance, until they are settled.
typedef struct leaseway_reservations leaseway_reservations;

// Success.
#define LEASEWAY_OK 0

// Nothing was taken: the caller would have to wait, or asked for more than can ever be available at one time.
#define LEASEWAY_NOT_NOW 1

// The timeout expired; nothing was taken.
#define LEASEWAY_TIMEOUT 2

// An argument or setting is invalid; nothing was started.
#define LEASEWAY_INVALID 3

// The client was closed.
#define LEASEWAY_CLOSED 4

// There is no lease yet. The client keeps trying.
#define LEASEWAY_NOT_READY 5

// A charge exceeded the maximum debt. The part beyond the maximum was not charged.
#define LEASEWAY_DEBT_EXCEEDED 6

// The handle belongs to the process that this one was forked from.
#define LEASEWAY_FORKED 7

// A bug in this library.
#define LEASEWAY_INTERNAL 8

// Size of a message in bytes, including the terminating NUL.
#define LEASEWAY_MESSAGE_BYTES 508

// Size of a server address in bytes, including the terminating NUL.
#define LEASEWAY_ADDRESS_BYTES 264

// No answer yet.
#define LEASEWAY_UNKNOWN 0

// A live lease.
#define LEASEWAY_LEASE 1

// A fallback capacity, which depends on the mode: the lease has expired, or none could be obtained.
#define LEASEWAY_FALLBACK 2

// An error: a code and a NUL-terminated message.
typedef struct {
  // One of the codes.
  int32_t code;
  // Empty on success.
  char message[LEASEWAY_MESSAGE_BYTES];
} leaseway_error;

// The state of the connection to the servers.
typedef struct {
  // Number of failed requests since the last answer.
  uint32_t failures;
  // The server that receives requests: the master, as far as known.
  char server[LEASEWAY_ADDRESS_BYTES];
  // The error of the last failed request; empty if none failed.
  char last_error[LEASEWAY_MESSAGE_BYTES];
} leaseway_health;

// The state of a rate.
typedef struct {
  // Permits per second; infinite if there is no limit.
  double capacity;
  // Where the capacity comes from: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
  int32_t basis;
  // Permits available now, even if others wait for them; negative if there is debt.
  double available;
  // Maximum number of permits that can be saved up.
  double burst;
} leaseway_rate_state;

// The state of a gauge.
typedef struct {
  // Maximum number of permits in use; infinite if there is no limit.
  double capacity;
  // Where the capacity comes from: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
  int32_t basis;
  // Permits in use by this process.
  uint64_t in_use;
} leaseway_gauge_state;

// The state of a budget.
typedef struct {
  // The allowance: the most that this client may spend in the current period, including what it has spent.
  double capacity;
  // Where the allowance comes from: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
  int32_t basis;
  // What may be spent now, without asking the server.
  double left;
  // What this client has spent in the current period, since the budget was opened.
  double spent;
  // What was charged and is not covered by an allowance yet.
  double owed;
  // The start of the current period in Unix seconds. 0 before the first lease, and for a budget that is spent once.
  int64_t period_start;
  // The end of the current period in Unix seconds; 0 if `period_start` is.
  int64_t period_end;
} leaseway_budget_state;

// What an operation costs at one limit. Two of the pointers are NULL.
typedef struct {
  // A rate, or NULL.
  const leaseway_rate *rate;
  // A gauge, or NULL.
  const leaseway_gauge *gauge;
  // A budget, or NULL.
  const leaseway_budget *budget;
  // The number of permits, or the amount of the budget.
  double number;
} leaseway_cost;

// Which limit refuses, and when to try again.
typedef struct {
  // The index of the limit: the first budget that refuses; otherwise the limit whose permits will be available last.
  uintptr_t index;
  // Seconds until the permits of all limits will be available, if nothing changes. Infinite if that is unknown, as
  // for a budget, or never at the current capacity.
  double retry_after;
} leaseway_refusal;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of this library.
const char *leaseway_version(void);

// Creates a client. It connects in the background and keeps trying; an unreachable server is not an error. `settings`
// is a NULL-terminated array of `key=value`: `servers` (HOST:PORT, comma-separated), `id`, `mode` (safe, pessimistic,
// optimistic), `deadline`, `backoff_max`, `refresh_min` (seconds), `tls` (true, false), `tls_ca`, `tls_cert`,
// `tls_key`, `tls_server_name`, `token`, `token_file`. With `env=true` missing settings are taken from LEASEWAY_SERVER
// (comma-separated; default 127.0.0.1:5100), LEASEWAY_TLS, LEASEWAY_TLS_CA, LEASEWAY_TLS_CERT, LEASEWAY_TLS_KEY,
// LEASEWAY_TLS_SERVER_NAME and LEASEWAY_TOKEN_FILE. On failure the client is NULL.
int32_t leaseway_client_open(const char *const *settings, leaseway_client **client, leaseway_error *error);

// Waits until every open resource has its first lease. After `timeout` seconds it fails with LEASEWAY_NOT_READY; the
// message names the resources without a lease and the reason.
int32_t leaseway_client_ready(const leaseway_client *client, double timeout, leaseway_error *error);

// Reads the state of the connection to the servers.
int32_t leaseway_client_health(const leaseway_client *client, leaseway_health *health, leaseway_error *error);

// Releases all leases. Waits until that is done or has failed once, for at most `timeout` seconds. Waiting callers get
// LEASEWAY_CLOSED.
int32_t leaseway_client_close(const leaseway_client *client, double timeout, leaseway_error *error);

// Frees the handle. If the client was not closed, its leases are released in the background once the handles of its
// resources are freed, too. NULL and handles of another process are ignored.
void leaseway_client_free(leaseway_client *client);

// Opens a rate. `settings` is NULL or a NULL-terminated array of `key=value`: `wants` (estimated by default),
// `priority`, `mode`, `burst` (permits) or `window` (seconds), `max_debt`. On failure the rate is NULL.
int32_t leaseway_rate_open(const leaseway_client *client,
                           const char *resource,
                           const char *const *settings,
                           leaseway_rate **rate,
                           leaseway_error *error);

// Takes n permits if they are available now; otherwise fails with LEASEWAY_NOT_NOW.
int32_t leaseway_rate_try_acquire(const leaseway_rate *rate, uint32_t n, leaseway_error *error);

// Waits for n permits. After `timeout` seconds (INFINITY is allowed) it fails with LEASEWAY_TIMEOUT and takes none.
int32_t leaseway_rate_wait(const leaseway_rate *rate, uint32_t n, double timeout, leaseway_error *error);

// Charges n permits that were already used. Missing permits become debt, which is paid before any caller is admitted.
int32_t leaseway_rate_charge(const leaseway_rate *rate, uint64_t n, leaseway_error *error);

// Returns the n permits taken last, because they were not used. Then the rate has the credit that it would have if
// they had never been taken, so a late refund may restore nothing.
int32_t leaseway_rate_refund(const leaseway_rate *rate, uint64_t n, leaseway_error *error);

// Sets the capacity to ask for, in permits per second.
int32_t leaseway_rate_set_wants(const leaseway_rate *rate, double wants, leaseway_error *error);

// Waits for n permits, for work whose cost is known only at its end. On failure the reservation is NULL.
int32_t leaseway_rate_reserve(const leaseway_rate *rate,
                              uint32_t n,
                              double timeout,
                              leaseway_reservation **reservation,
                              leaseway_error *error);

// Ends a reservation: `used` permits were used. Returns the unused ones, up to the credit that the rate would have if
// they had never been taken. Usage beyond the reservation becomes debt. Frees the handle, also on failure.
int32_t leaseway_reservation_settle(leaseway_reservation *reservation, uint64_t used, leaseway_error *error);

// Frees a reservation without settling it: all its permits count as used. NULL and handles of another process are
// ignored.
void leaseway_reservation_free(leaseway_reservation *reservation);

// Reads the current state.
int32_t leaseway_rate_look(const leaseway_rate *rate, leaseway_rate_state *state, leaseway_error *error);

// Frees the handle. The lease is released with the last handle of the resource. NULL and handles of another process
// are ignored.
void leaseway_rate_free(leaseway_rate *rate);

// Opens a gauge. `settings` is NULL or a NULL-terminated array of `key=value`: `wants` (estimated by default),
// `priority`, `mode`. On failure the gauge is NULL.
int32_t leaseway_gauge_open(const leaseway_client *client,
                            const char *resource,
                            const char *const *settings,
                            leaseway_gauge **gauge,
                            leaseway_error *error);

// Takes n permits if they are free now; otherwise fails with LEASEWAY_NOT_NOW and sets the permit to NULL.
int32_t leaseway_gauge_try_acquire(const leaseway_gauge *gauge,
                                   uint32_t n,
                                   leaseway_permit **permit,
                                   leaseway_error *error);

// Waits for n permits, for at most `timeout` seconds (INFINITY is allowed). On failure the permit is NULL.
int32_t leaseway_gauge_acquire(const leaseway_gauge *gauge,
                               uint32_t n,
                               double timeout,
                               leaseway_permit **permit,
                               leaseway_error *error);

// Returns the permits and frees the handle. NULL and handles of another process are ignored.
void leaseway_permit_release(leaseway_permit *permit);

// Sets the number of permits to ask for.
int32_t leaseway_gauge_set_wants(const leaseway_gauge *gauge, double wants, leaseway_error *error);

// Reads the current state.
int32_t leaseway_gauge_look(const leaseway_gauge *gauge, leaseway_gauge_state *state, leaseway_error *error);

// Frees the handle. The lease is released with the last handle and the last permit of the resource. NULL and handles
// of another process are ignored.
void leaseway_gauge_free(leaseway_gauge *gauge);

// Opens a budget, a resource of kind BUDGET. On failure the budget is NULL.
int32_t leaseway_budget_open(const leaseway_client *client,
                             const char *resource,
                             leaseway_budget **budget,
                             leaseway_error *error);

// Spends an amount if the allowance of this client covers it now; otherwise spends nothing, fails with
// LEASEWAY_NOT_NOW, and asks for a larger allowance in the background. Amounts are numbers from 0 to 1e15.
int32_t leaseway_budget_try_spend(const leaseway_budget *budget, double amount, leaseway_error *error);

// Waits until the allowance covers an amount, and spends it. If the budget is spent, this waits for the next period.
// After `timeout` seconds (INFINITY is allowed) it fails with LEASEWAY_TIMEOUT and spends nothing.
int32_t leaseway_budget_spend(const leaseway_budget *budget, double amount, double timeout, leaseway_error *error);

// Waits like leaseway_budget_spend, for work whose cost is known only at its end. On failure the reservation is NULL.
int32_t leaseway_budget_reserve(const leaseway_budget *budget,
                                double amount,
                                double timeout,
                                leaseway_budget_reservation **reservation,
                                leaseway_error *error);

// Reserves an amount if the allowance covers it now; otherwise fails with LEASEWAY_NOT_NOW and sets the reservation to
// NULL.
int32_t leaseway_budget_try_reserve(const leaseway_budget *budget,
                                    double amount,
                                    leaseway_budget_reservation **reservation,
                                    leaseway_error *error);

// Spends an amount that was used already. What the allowance does not cover is owed: the next allowances pay it before
// any caller can spend, also those of a later period. Fails with LEASEWAY_CLOSED, and charges nothing, if the client was
// closed.
int32_t leaseway_budget_charge(const leaseway_budget *budget,
                               double amount,
                               leaseway_error *error);

// Reads the current state.
int32_t leaseway_budget_look(const leaseway_budget *budget, leaseway_budget_state *state, leaseway_error *error);

// Frees the handle. The lease is released with the last handle and the last reservation of the budget; what is owed
// then is dropped. NULL and handles of another process are ignored.
void leaseway_budget_free(leaseway_budget *budget);

// Ends a reservation, because `used` was used. Takes back what is left of it, unless its period has ended or the client
// was closed, or charges the excess. If `used` is not an amount, or the client was closed before the excess could be
// charged, all of the reservation is spent. Frees the handle, also on failure.
int32_t leaseway_budget_reservation_settle(leaseway_budget_reservation *reservation,
                                           double used,
                                           leaseway_error *error);

// Frees a reservation without settling it: all of it is spent. NULL and handles of another process are ignored.
void leaseway_budget_reservation_free(leaseway_budget_reservation *reservation);

// Combines limits of a client. `costs` is an array of `count` elements. The handles in it may be freed afterwards. On
// failure the limits are NULL.
int32_t leaseway_limits_open(const leaseway_client *client,
                             const leaseway_cost *costs,
                             uintptr_t count,
                             leaseway_limits **limits,
                             leaseway_error *error);

// The same limits with other numbers of permits and amounts, one for each: cheaper than leaseway_limits_open. On
// failure `other` is NULL.
int32_t leaseway_limits_with_permits(const leaseway_limits *limits,
                                     const double *numbers,
                                     uintptr_t count,
                                     leaseway_limits **other,
                                     leaseway_error *error);

// Takes the permits and amounts of all limits if they are available now. Otherwise it takes nothing, fails with
// LEASEWAY_NOT_NOW, sets the permits to NULL, and describes the refusal unless `refusal` is NULL.
int32_t leaseway_limits_try_acquire(const leaseway_limits *limits,
                                    leaseway_permits **permits,
                                    leaseway_refusal *refusal,
                                    leaseway_error *error);

// Waits for the permits and amounts of all limits, for at most `timeout` seconds (INFINITY is allowed). On failure
// nothing is taken, and the permits are NULL.
int32_t leaseway_limits_acquire(const leaseway_limits *limits,
                                double timeout,
                                leaseway_permits **permits,
                                leaseway_error *error);

// Returns the permits of gauges and frees the handle. Those of rates are used up, and amounts of budgets are spent.
// NULL and handles of another process are ignored.
void leaseway_permits_release(leaseway_permits *permits);

// Waits for the permits and amounts of all limits, for work whose cost is known only at its end. On failure nothing is
// taken, and the reservations are NULL.
int32_t leaseway_limits_reserve(const leaseway_limits *limits,
                                double timeout,
                                leaseway_reservations **reservations,
                                leaseway_error *error);

// Ends reservations: used[i] was used of limit i. Rates and budgets get back what was not used, or are charged for the
// excess. The permits of gauges are returned; their numbers are ignored. Frees the handle, also on failure. If `count`
// or a number is invalid, everything counts as used.
int32_t leaseway_reservations_settle(leaseway_reservations *reservations,
                                     const double *used,
                                     uintptr_t count,
                                     leaseway_error *error);

// Frees reservations without settling them: all their permits of rates and amounts of budgets count as used. NULL and
// handles of another process are ignored.
void leaseway_reservations_free(leaseway_reservations *reservations);

// Charges each rate for permits, and each budget for an amount, that were already used: one number for each limit. The
// numbers of gauges are ignored.
int32_t leaseway_limits_charge(const leaseway_limits *limits,
                               const double *numbers,
                               uintptr_t count,
                               leaseway_error *error);

// Returns to each rate the permits taken last, because they were not used, one number for each limit. The numbers of
// gauges and budgets are ignored: settle reservations of amounts.
int32_t leaseway_limits_refund(const leaseway_limits *limits,
                               const double *numbers,
                               uintptr_t count,
                               leaseway_error *error);

// Frees the handle. The resources stay open until their last handles, permits and reservations are freed. NULL and
// handles of another process are ignored.
void leaseway_limits_free(leaseway_limits *limits);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LEASEWAY_H */
