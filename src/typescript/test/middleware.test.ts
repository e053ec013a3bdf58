/** Middleware at the edges: clients that disconnect, responses that were sent already, cancelled calls. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it, type TestContext } from "node:test";

import { status } from "@grpc/grpc-js";
import { fastify } from "fastify";

import { Client, expressLimit, fastifyLimit, type Gauge, limitInterceptor } from "../src/index.js";
import { Fake } from "./fake.js";
import { eventually, sleep } from "./server.js";

async function gauge(test: TestContext, permits: number): Promise<Gauge> {
  const server = await Fake.start(test);
  server.capacity = permits;
  const client = new Client(server.address);
  test.after(() => client.close());
  const jobs = client.gauge("jobs", { wants: permits });
  await jobs.ready();
  return jobs;
}

async function listen(
  test: TestContext,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<number> {
  const http = createServer(handle).listen(0, "127.0.0.1");
  test.after(() => http.close());
  await once(http, "listening");
  return (http.address() as AddressInfo).port;
}

describe("expressLimit", () => {
  it("takes no permit for a client that has disconnected before", async (test) => {
    const jobs = await gauge(test, 2);
    let handled = 0;
    let arrived = false;
    const port = await listen(test, (incoming, response) => {
      arrived = true;
      // As an asynchronous middleware before this one.
      response.once("close", () => setImmediate(() => expressLimit(jobs)(incoming, response, () => (handled += 1))));
    });
    const outgoing = request({ port, host: "127.0.0.1" }).on("error", () => {});
    outgoing.end();
    await eventually(() => arrived, "the request");
    outgoing.destroy();
    await sleep(100);
    assert.equal(jobs.inUse, 0);
    assert.equal(handled, 0);
  });

  it("leaves a response alone that was sent while the request waited", async (test) => {
    const server = await Fake.start(test);
    server.capacity = 0.01;
    const client = new Client(server.address);
    test.after(() => client.close());
    const pages = client.rate("pages", { wants: 0.01 });
    await pages.ready();
    let handled = 0;
    const port = await listen(test, (incoming, response) => {
      expressLimit(pages, { timeoutMs: 5_000 })(incoming, response, () => (handled += 1));
      setTimeout(() => response.writeHead(503).end("too late"), 20);
    });
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    assert.equal(answer.status, 503);
    assert.equal(await answer.text(), "too late");
    await sleep(50);
    assert.equal(pages.waiting, 0);
    assert.equal(handled, 0);
  });
});

describe("fastifyLimit", () => {
  it("takes no permit for a client that has disconnected before", async (test) => {
    const jobs = await gauge(test, 2);
    const app = fastify();
    test.after(() => app.close());
    let handled = 0;
    let arrived = false;
    app.addHook("onRequest", async (_, reply) => {
      arrived = true;
      await once(reply.raw, "close");
    });
    app.addHook("onRequest", fastifyLimit(jobs));
    app.get("/", async () => (handled += 1));
    const outgoing = request(await app.listen({ port: 0, host: "127.0.0.1" })).on("error", () => {});
    outgoing.end();
    await eventually(() => arrived, "the request");
    outgoing.destroy();
    await sleep(100);
    assert.equal(jobs.inUse, 0);
    assert.equal(handled, 0);
  });
});

describe("limitInterceptor", () => {
  it("does not start a call that was cancelled when its permit was granted", async (test) => {
    const jobs = await gauge(test, 1);
    const permit = await jobs.acquire();
    const interceptor = limitInterceptor(jobs);
    let started = 0;
    const inner = {
      start: () => {
        started += 1;
      },
      cancelWithStatus: () => {},
    };
    const call = interceptor({} as never, () => inner as never);
    const ended = new Promise<number>((resolve) => {
      call.start({} as never, { onReceiveStatus: ({ code }: { code: number }) => resolve(code) } as never);
    });
    permit.release();
    call.cancelWithStatus(status.CANCELLED, "cancelled");
    assert.equal(await ended, status.CANCELLED);
    await sleep(20);
    assert.equal(started, 0);
    assert.equal(jobs.inUse, 0);
  });
});
