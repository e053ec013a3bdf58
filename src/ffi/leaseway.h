/* The Leaseway client for C: leases on shared capacity, and limiters that keep to them. docs/guide/other-languages.md has examples.
 *
 * Functions that can fail return a code. What is wrong is told in `error`, of which each caller has its own; NULL is
 * allowed. Every function may be called by any thread, also while others wait; a handle is freed when no other call
 * uses it, once. Strings are UTF-8 and end with NUL.
 *
 * A fork: the child opens a client of its own. What it has inherited answers LEASEWAY_FORKED there, and is freed without
 * any effect.
 *
 * Generated from src/ffi: `BLESS=1 cargo test -p leaseway-ffi header`. */

#ifndef LEASEWAY_H
#define LEASEWAY_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

// Keeps leases in a thread of its own.
typedef struct leaseway_client leaseway_client;
// So many per second. Those that wait are served first come, first served.
typedef struct leaseway_rate leaseway_rate;
// Permits of a rate that were taken, until it is settled what was used.
typedef struct leaseway_reservation leaseway_reservation;
// So many at the same time. Those that wait are served first come, first served.
typedef struct leaseway_gauge leaseway_gauge;
// Permits of a gauge in use, until they are released.
typedef struct leaseway_permit leaseway_permit;

// It was done.
#define LEASEWAY_OK 0

// Nothing was taken: it would have had to wait, or is more than there can be at once now.
#define LEASEWAY_NOT_NOW 1

// Nothing was taken, and time is up.
#define LEASEWAY_TIMEOUT 2

// An argument or setting makes no sense; nothing was started.
#define LEASEWAY_INVALID 3

// The client was closed.
#define LEASEWAY_CLOSED 4

// There is no lease yet. The client goes on trying.
#define LEASEWAY_NOT_READY 5

// More was charged than may be owed. What goes beyond it is forgotten.
#define LEASEWAY_DEBT_EXCEEDED 6

// The handle belongs to the process that this one was forked from.
#define LEASEWAY_FORKED 7

// A fault of this library.
#define LEASEWAY_INTERNAL 8

// Bytes of a message, with the NUL at its end.
#define LEASEWAY_MESSAGE_BYTES 508

// Bytes of the address of a server, with the NUL at its end.
#define LEASEWAY_ADDRESS_BYTES 264

// No answer yet.
#define LEASEWAY_UNKNOWN 0

// There is a lease.
#define LEASEWAY_LEASE 1

// It has ended, or none could be had: the mode decides.
#define LEASEWAY_FALLBACK 2

// What went wrong, for the caller that has it: a code, and words that end with NUL.
typedef struct {
  // One of the codes.
  int32_t code;
  // Empty if nothing did.
  char message[LEASEWAY_MESSAGE_BYTES];
} leaseway_error;

// How a client gets on with its servers.
typedef struct {
  // Requests that have failed since one was answered.
  uint32_t failures;
  // The server it asks at present: the master, as far as is known.
  char server[LEASEWAY_ADDRESS_BYTES];
  // Why the last request that failed did so; empty if none has.
  char last_error[LEASEWAY_MESSAGE_BYTES];
} leaseway_health;

// How things are at a rate.
typedef struct {
  // How many may pass per second; infinite without a limit.
  double capacity;
  // Why so many: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
  int32_t basis;
  // Permits that are there now, also if others wait for them; below zero so much is owed.
  double available;
  // The most that there can be at once.
  double burst;
} leaseway_rate_state;

// How things are at a gauge.
typedef struct {
  // How many may be in use; infinite without a limit.
  double capacity;
  // Why so many: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
  int32_t basis;
  // Permits that are out, of this process.
  uint64_t in_use;
} leaseway_gauge_state;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of this library.
const char *leaseway_version(void);

// Makes a client. It connects by itself, and goes on trying: a server that is away is no error. Settings, `key=value`,
// end with NULL: `servers` (HOST:PORT, with commas between), `id`, `mode` (safe, pessimistic, optimistic), `deadline`,
// `backoff_max`, `refresh_min` (seconds), `tls` (true, false), `tls_ca`, `tls_cert`, `tls_key`, `tls_server_name`,
// `token`, `token_file`. With `env=true` LEASEWAY_SERVER (several with commas; 127.0.0.1:5100), LEASEWAY_TLS,
// LEASEWAY_TLS_CA, LEASEWAY_TLS_CERT, LEASEWAY_TLS_KEY, LEASEWAY_TLS_SERVER_NAME and LEASEWAY_TOKEN_FILE stand for
// what is left out. On failure the client is NULL.
int32_t leaseway_client_open(const char *const *settings, leaseway_client **client, leaseway_error *error);

// Waits until every resource that is open has its first lease, or for so many seconds: LEASEWAY_NOT_READY says then
// which has none, and why.
int32_t leaseway_client_ready(const leaseway_client *client, double timeout, leaseway_error *error);

// How it gets on with its servers.
int32_t leaseway_client_health(const leaseway_client *client, leaseway_health *health, leaseway_error *error);

// Gives everything back, and waits until that is done, or has failed once, or for so many seconds. Callers that wait
// are told LEASEWAY_CLOSED.
int32_t leaseway_client_close(const leaseway_client *client, double timeout, leaseway_error *error);

// Ends the handle. When those of its resources have ended too and it was not closed, everything is given back without
// waiting for that. NULL, and one of another process, is nothing.
void leaseway_client_free(leaseway_client *client);

// Opens a rate. Settings, `key=value`, end with NULL; NULL is none: `wants` (estimated if left out), `priority`,
// `mode`, `burst` (permits) or `window` (seconds), `max_debt`. On failure the rate is NULL.
int32_t leaseway_rate_open(const leaseway_client *client,
                           const char *resource,
                           const char *const *settings,
                           leaseway_rate **rate,
                           leaseway_error *error);

// Lets n pass if that is possible now; else LEASEWAY_NOT_NOW.
int32_t leaseway_rate_try_acquire(const leaseway_rate *rate, uint32_t n, leaseway_error *error);

// Waits until n may pass together, or for so many seconds (INFINITY is allowed): with LEASEWAY_TIMEOUT none has
// passed.
int32_t leaseway_rate_wait(const leaseway_rate *rate, uint32_t n, double timeout, leaseway_error *error);

// So many have been used already. What is not there is owed, and paid before anything else passes.
int32_t leaseway_rate_charge(const leaseway_rate *rate, uint64_t n, leaseway_error *error);

// So many have passed and were not used: those that passed last. As many come back as there would be now if they had
// never passed.
int32_t leaseway_rate_refund(const leaseway_rate *rate, uint64_t n, leaseway_error *error);

// Asks for so much per second from now on.
int32_t leaseway_rate_set_wants(const leaseway_rate *rate, double wants, leaseway_error *error);

// Waits until n may pass, for something of which only its end will show what it takes. On failure the reservation is
// NULL.
int32_t leaseway_rate_reserve(const leaseway_rate *rate,
                              uint32_t n,
                              double timeout,
                              leaseway_reservation **reservation,
                              leaseway_error *error);

// So much was used. The rest comes back, as much of it as there would be now if it had never been taken; what was used
// beyond it is owed. The handle ends with this, also if it fails.
int32_t leaseway_reservation_settle(leaseway_reservation *reservation, uint64_t used, leaseway_error *error);

// Ends a reservation that was not settled: all of it counts as used. NULL, and one of another process, is nothing.
void leaseway_reservation_free(leaseway_reservation *reservation);

// How things are.
int32_t leaseway_rate_look(const leaseway_rate *rate, leaseway_rate_state *state, leaseway_error *error);

// Ends the handle; with the last of a resource its lease is given back. NULL, and one of another process, is nothing.
void leaseway_rate_free(leaseway_rate *rate);

// Opens a gauge. Settings, `key=value`, end with NULL; NULL is none: `wants` (estimated if left out), `priority`,
// `mode`. On failure the gauge is NULL.
int32_t leaseway_gauge_open(const leaseway_client *client,
                            const char *resource,
                            const char *const *settings,
                            leaseway_gauge **gauge,
                            leaseway_error *error);

// n permits, if they are free now; else LEASEWAY_NOT_NOW, and the permit is NULL.
int32_t leaseway_gauge_try_acquire(const leaseway_gauge *gauge,
                                   uint32_t n,
                                   leaseway_permit **permit,
                                   leaseway_error *error);

// Waits for n permits at once, or for so many seconds (INFINITY is allowed). On failure the permit is NULL.
int32_t leaseway_gauge_acquire(const leaseway_gauge *gauge,
                               uint32_t n,
                               double timeout,
                               leaseway_permit **permit,
                               leaseway_error *error);

// Returns permits; the handle ends. NULL, and one of another process, is nothing: its permits are that process's.
void leaseway_permit_release(leaseway_permit *permit);

// Asks for so many from now on.
int32_t leaseway_gauge_set_wants(const leaseway_gauge *gauge, double wants, leaseway_error *error);

// How things are.
int32_t leaseway_gauge_look(const leaseway_gauge *gauge, leaseway_gauge_state *state, leaseway_error *error);

// Ends the handle; with the last of a resource, and the last permit, its lease is given back. NULL, and one of another
// process, is nothing.
void leaseway_gauge_free(leaseway_gauge *gauge);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LEASEWAY_H */
