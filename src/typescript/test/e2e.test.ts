/** The client against real servers. */

import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { after, describe, it } from "node:test";

import express from "express";
import { fastify } from "fastify";

import { Client, expressLimit, fastifyLimit, limitedFetch } from "../src/index.js";
import { eventually, runProgram, Server, skip, template } from "./server.js";

describe("a client and a server", { skip }, () => {
  const servers: Server[] = [];
  after(() => Promise.all(servers.map((server) => server.kill())));
  const serve = async (...args: Parameters<typeof Server.start>) => {
    const server = await Server.start(...args);
    servers.push(server);
    return server;
  };

  it("a rate keeps to its lease", async () => {
    const server = await serve();
    const client = new Client(server.address);
    const searches = client.rate("searches", { wants: 100 });
    await searches.ready();
    assert.equal(searches.capacity, 100);
    assert.equal(searches.basis, "lease");
    assert.ok((searches.lease?.leftMs ?? 0) > 50_000);
    await searches.acquire();
    const begun = performance.now();
    for (let n = 0; n < 100; n += 1) await searches.acquire();
    const took = performance.now() - begun;
    assert.ok(took >= 970, `the burst is one and 20 ms' worth: ${took}`);
    assert.ok(took < 10_000, `${took}`);
    await client.close();
  });

  it("an expired lease is not used, and a server that is back is noticed", async () => {
    const server = await serve([template({ capacity: 50, lease: 3, safe: 5 })]);
    const client = new Client({ servers: server.address, refreshMinMs: 500 });
    const [safe, none] = [client.rate("a", { wants: 40 }), client.rate("b", { wants: 40, mode: "pessimistic" })];
    await client.ready();
    await server.kill();
    await eventually(() => safe.basis === "fallback", "the leases end");
    assert.deepEqual(safe.usable, { capacity: 5, basis: "fallback" });
    assert.deepEqual(none.usable, { capacity: 0, basis: "fallback" });
    assert.equal(none.tryAcquire(), false);
    assert.match(client.health().lastError ?? "", /ECONNREFUSED/);
    const back = performance.now();
    await serve([template({ capacity: 50, lease: 3, safe: 5 })], ["--listen", server.address]);
    await eventually(() => safe.basis === "lease", "a new lease");
    assert.ok(performance.now() - back < 15_000);
    await client.close();
  });

  it("wants follow the callers, and a closed client releases its lease", async () => {
    const server = await serve();
    const [first, second] = [new Client(server.address), new Client(server.address)];
    const searches = first.rate("searches");
    const callers = Array.from({ length: 20 }, async () => {
      for (let n = 0; n < 5; n += 1) await searches.acquire();
    });
    await Promise.all(callers);
    assert.ok(searches.capacity > 20, `${searches.capacity}`);
    await first.close();
    const all = second.rate("searches", { wants: 100 });
    await all.ready();
    assert.equal(all.capacity, 100);
    await second.close();
  });

  it("a gauge holds permits, and a cut admits nobody", async () => {
    const server = await serve([template({ capacity: 2 })]);
    const client = new Client(server.address);
    const jobs = client.gauge("jobs", { wants: 2 });
    const [one, two] = [await jobs.acquire(), await jobs.acquire()];
    assert.equal(jobs.tryAcquire(), undefined);
    await assert.rejects(jobs.acquire(1, { timeoutMs: 50 }), /no permit within 50 ms/);
    one.release();
    one.release();
    assert.equal(jobs.inUse, 1);
    assert.equal(await jobs.use(() => 7), 7);
    two.release();
    await client.close();
  });

  it("a process ends although its client is open", async () => {
    const server = await serve();
    const begun = performance.now();
    const { output, code } = await runProgram(`
      import { Client } from "leaseway";
      const client = new Client(${JSON.stringify(server.address)});
      const rate = client.rate("searches", { wants: 100 });
      for (let n = 0; n < 10; n += 1) await rate.acquire();
      await new Promise((resolve) => setTimeout(resolve, 500));
      console.log("done", client.stats().requestErrors);`);
    assert.deepEqual([output, code], ["done 0\n", 0]);
    assert.ok(performance.now() - begun < 30_000);
    const client = new Client(server.address);
    const searches = client.rate("searches", { wants: 100 });
    await searches.ready();
    assert.equal(searches.capacity, 100, "the lease was released");
    await client.close();
  });

  it("express, fastify and fetch are limited", async () => {
    const server = await serve();
    const client = new Client(server.address);
    const pages = client.rate("pages", { wants: 1, burst: 2 });
    await eventually(() => pages.available === 2, "a burst");
    const app = express();
    app.use(expressLimit(pages));
    app.get("/", (_, response) => {
      response.send("ok");
    });
    const listening = app.listen(0);
    await once(listening, "listening");
    const { port } = listening.address() as AddressInfo;
    const codes: number[] = [];
    for (let n = 0; n < 3; n += 1) codes.push((await fetch(`http://127.0.0.1:${port}/`)).status);
    assert.deepEqual(codes, [200, 200, 429]);
    const begun = performance.now();
    const limited = limitedFetch(pages);
    const answer = await limited(`http://127.0.0.1:${port}/`);
    assert.equal(answer.status, 429, "its own permit was the last");
    assert.ok(performance.now() - begun > 20);
    listening.close();

    const jobs = client.gauge("jobs", { wants: 1 });
    await jobs.ready();
    const fast = fastify();
    fast.addHook("onRequest", fastifyLimit(jobs));
    fast.get("/", async () => jobs.inUse);
    const inside = await fast.inject("/");
    assert.deepEqual([inside.statusCode, inside.body], [200, "1"]);
    const permit = await jobs.acquire();
    assert.equal((await fast.inject("/")).statusCode, 429);
    permit.release();
    await fast.close();
    await client.close();
  });
});
