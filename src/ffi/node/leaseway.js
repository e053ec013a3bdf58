// The Leaseway client for Node: the C interface, by koffi. Calls that wait do so in a thread of libuv's pool, of which
// there are four unless UV_THREADPOOL_SIZE says more.
"use strict";

const koffi = require("koffi");

// As leaseway.h has them.
const CODES = ["ok", "not now", "timeout", "invalid", "closed", "not ready", "debt exceeded", "forked", "internal"];
const BASES = ["unknown", "lease", "fallback"];
koffi.struct("leaseway_error", { code: "int32_t", message: koffi.array("char", 508) });
koffi.struct("leaseway_health", {
  failures: "uint32_t", server: koffi.array("char", 264), last_error: koffi.array("char", 508),
});
koffi.struct("leaseway_rate_state", { capacity: "double", basis: "int32_t", available: "double", burst: "double" });
koffi.struct("leaseway_gauge_state", { capacity: "double", basis: "int32_t", in_use: "uint64_t" });

class LeasewayError extends Error {
  constructor({ code, message }) {
    super(message);
    this.name = "LeasewayError";
    this.code = CODES[code];
  }
}

// `wants: 10` as `wants=10`.
const settings = (given) => [...Object.entries(given).map(([key, value]) => `${key}=${value}`), null];

function check(code, error) {
  if (code !== 0) throw new LeasewayError(error);
}

// What `leaseway.h` declares, out of this library.
function load(path) {
  const library = koffi.load(path);
  const declare = (declaration) => library.func(`int32_t leaseway_${declaration}, _Out_ leaseway_error *error)`);
  const free = (name) => library.func(`void leaseway_${name}(void *handle)`);
  const calls = {
    open: declare("client_open(const char **settings, _Out_ void **client"),
    ready: declare("client_ready(void *client, double timeout"),
    health: declare("client_health(void *client, _Out_ leaseway_health *health"),
    close: declare("client_close(void *client, double timeout"),
    openRate: declare("rate_open(void *client, const char *resource, const char **settings, _Out_ void **rate"),
    tryAcquire: declare("rate_try_acquire(void *rate, uint32_t n"),
    wait: declare("rate_wait(void *rate, uint32_t n, double timeout"),
    charge: declare("rate_charge(void *rate, uint64_t n"),
    refund: declare("rate_refund(void *rate, uint64_t n"),
    setRateWants: declare("rate_set_wants(void *rate, double wants"),
    setGaugeWants: declare("gauge_set_wants(void *gauge, double wants"),
    reserve: declare("rate_reserve(void *rate, uint32_t n, double timeout, _Out_ void **reservation"),
    settle: declare("reservation_settle(void *reservation, uint64_t used"),
    lookAtRate: declare("rate_look(void *rate, _Out_ leaseway_rate_state *state"),
    openGauge: declare("gauge_open(void *client, const char *resource, const char **settings, _Out_ void **gauge"),
    acquire: declare("gauge_acquire(void *gauge, uint32_t n, double timeout, _Out_ void **permit"),
    lookAtGauge: declare("gauge_look(void *gauge, _Out_ leaseway_gauge_state *state"),
    release: free("permit_release"),
  };

  // One that does not wait. `out` receives what the call gives, before the error.
  function now(call, ...given) {
    const error = {};
    check(call(...given, error), error);
  }

  // One that may wait.
  function later(call, ...given) {
    const error = {};
    return new Promise((resolve, reject) => {
      call.async(...given, error, (failed, code) => {
        if (failed) reject(failed);
        else if (code !== 0) reject(new LeasewayError(error));
        else resolve();
      });
    });
  }

  class Reservation {
    constructor(handle) {
      this.handle = handle;
    }

    settle(used) {
      const handle = this.handle;
      this.handle = null;
      now(calls.settle, handle, used);
    }
  }

  class Permit {
    constructor(handle) {
      this.handle = handle;
    }

    release() {
      const handle = this.handle;
      this.handle = null;
      calls.release(handle);
    }
  }

  class Rate {
    constructor(handle) {
      this.handle = handle;
    }

    tryAcquire(n = 1) {
      const error = {};
      const code = calls.tryAcquire(this.handle, n, error);
      if (code !== 1) check(code, error);
      return code === 0;
    }

    wait(n = 1, timeout = Infinity) {
      return later(calls.wait, this.handle, n, timeout);
    }

    charge(n) {
      now(calls.charge, this.handle, n);
    }

    refund(n) {
      now(calls.refund, this.handle, n);
    }

    setWants(wants) {
      now(calls.setRateWants, this.handle, wants);
    }

    async reserve(n, timeout = Infinity) {
      const out = [null];
      await later(calls.reserve, this.handle, n, timeout, out);
      return new Reservation(out[0]);
    }

    get state() {
      const state = {};
      now(calls.lookAtRate, this.handle, state);
      return { ...state, basis: BASES[state.basis] };
    }
  }

  class Gauge {
    constructor(handle) {
      this.handle = handle;
    }

    async acquire(n = 1, timeout = Infinity) {
      const out = [null];
      await later(calls.acquire, this.handle, n, timeout, out);
      return new Permit(out[0]);
    }

    setWants(wants) {
      now(calls.setGaugeWants, this.handle, wants);
    }

    get state() {
      const state = {};
      now(calls.lookAtGauge, this.handle, state);
      return { ...state, basis: BASES[state.basis] };
    }
  }

  class Client {
    constructor(servers, given = {}) {
      const out = [null];
      now(calls.open, settings({ servers, ...given }), out);
      this.handle = out[0];
    }

    rate(resource, given = {}) {
      const out = [null];
      now(calls.openRate, this.handle, resource, settings(given), out);
      return new Rate(out[0]);
    }

    gauge(resource, given = {}) {
      const out = [null];
      now(calls.openGauge, this.handle, resource, settings(given), out);
      return new Gauge(out[0]);
    }

    ready(timeout = 5) {
      return later(calls.ready, this.handle, timeout);
    }

    get health() {
      const health = {};
      now(calls.health, this.handle, health);
      return health;
    }

    // Handles are not freed: a call may be under way. What they held is given back.
    close(timeout = Infinity) {
      return later(calls.close, this.handle, timeout);
    }
  }

  return { Client, LeasewayError };
}

module.exports = { load, LeasewayError };
