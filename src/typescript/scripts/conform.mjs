// The program with which `leaseway-bench conform` drives this library. Needs `npm run build` first.

import { createInterface } from "node:readline";

import { Client } from "../dist/esm/index.js";

let client;
const opened = new Map();
const permits = new Map();

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
