// The program with which `leaseway-bench conform` drives this library. Needs `npm run build` first.

import { createInterface } from "node:readline";

import { setImmediate as nextTurn } from "node:timers/promises";

import { Client, Permits } from "../dist/esm/index.js";

let client;
const opened = new Map();
const permits = new Map();
/** The last reservation of each budget. */
const reservations = new Map();
/** Permits of several limits in use. */
let taken;

/** The limits `NAME=N,…`. */
function limits(costs) {
  const parts = costs.split(",").map((cost) => cost.split("="));
  return client.limits(...parts.map(([name, n]) => opened.get(name).of(Number(n))));
}

/** Waits for the permits of all limits. Returns whether it has them. */
async function waitForAll(costs, options) {
  try {
    taken = await limits(costs).acquire(options);
    return true;
  } catch {
    return false;
  }
}

/** Takes and returns permits until `end`. Returns how often. */
async function takeRepeatedly(costs, end) {
  for (let times = 0; ; times += 1) {
    const timeoutMs = end - Date.now();
    if (timeoutMs <= 0) return times;
    try {
      const permits = await limits(costs).acquire({ timeoutMs });
      permits.release();
      // Promises alone would keep timers waiting.
      await nextTurn();
    } catch {
      return times;
    }
  }
}

const commands = {
  open: (id, servers, mode) => {
    client = Client.fromEnv({ servers: servers.split(","), id, mode });
  },
  rate: (name, wants) => {
    opened.set(name, client.rate(name, { wants: Number(wants) }));
  },
  gauge: (name, wants) => {
    opened.set(name, client.gauge(name, { wants: Number(wants) }));
    permits.set(name, []);
  },
  wants: (name, wants) => opened.get(name).setWants(Number(wants)),
  capacity: (name) => {
    const { capacity, basis } = opened.get(name).usable;
    return `${capacity === Number.POSITIVE_INFINITY ? "inf" : capacity} ${basis}`;
  },
  allow: (name, n) => {
    const admitted = opened.get(name).tryAcquire(Number(n));
    if (typeof admitted === "boolean") {
      return admitted;
    }
    if (admitted) {
      permits.get(name).push(admitted);
    }
    return admitted !== undefined;
  },
  release: (name) => permits.get(name).pop().release(),
  count: async (name, seconds) => {
    const signal = AbortSignal.timeout(Number(seconds) * 1000);
    for (let count = 0; ; count += 1) {
      try {
        await opened.get(name).acquire(1, { signal });
      } catch {
        return count;
      }
    }
  },
  budget: (name) => {
    opened.set(name, client.budget(name));
  },
  spend: async (name, amount, seconds) => {
    if (Number(seconds) === 0) {
      return opened.get(name).trySpend(Number(amount));
    }
    try {
      await opened.get(name).spend(Number(amount), { timeoutMs: Number(seconds) * 1000 });
      return true;
    } catch {
      return false;
    }
  },
  left: (name) => opened.get(name).left,
  reserve: async (name, amount, seconds) => {
    const budget = opened.get(name);
    const timeoutMs = Number(seconds) * 1000;
    const reservation =
      timeoutMs === 0
        ? budget.tryReserve(Number(amount))
        : await budget.reserve(Number(amount), { timeoutMs }).catch(() => undefined);
    reservations.set(name, reservation);
    return reservation !== undefined;
  },
  settle: (name, used) => reservations.get(name).settle(Number(used)),
  period: (name) => {
    const start = opened.get(name).period?.start;
    return start === undefined ? "none" : start.getTime() / 1000;
  },
  // The default of the library.
  streams: () => 100,
  all: (costs, seconds) => {
    if (Number(seconds) > 0) return waitForAll(costs, { timeoutMs: Number(seconds) * 1000 });
    const result = limits(costs).tryAcquire();
    if (!(result instanceof Permits)) return `refused ${result.resource}`;
    taken = result;
    return true;
  },
  cancel: (costs, seconds) => waitForAll(costs, { signal: AbortSignal.timeout(Number(seconds) * 1000) }),
  return: () => taken.release(),
  opposite: async (one, other, n, seconds) => {
    const end = Date.now() + Number(seconds) * 1000;
    const costs = [`${one}=${n},${other}=${n}`, `${other}=${n},${one}=${n}`];
    const counts = await Promise.all(costs.map((cost) => takeRepeatedly(cost, end)));
    return counts.join(" ");
  },
  close: (name) => opened.get(name).close(),
  exit: () => client.close(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...words] = line.split(" ");
  let answer;
  try {
    answer = (await commands[command](...words)) ?? "ok";
  } catch (error) {
    answer = `error ${error}`;
  }
  console.log(String(answer));
}
