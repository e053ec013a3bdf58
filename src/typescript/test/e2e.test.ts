/** The client against real servers. */

import assert from "node:assert/strict";
import { after, describe, it } from "node:test";

import { Client } from "../src/index.js";
import { eventually, Server, skip, sleep } from "./server.js";

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
    assert.ok(took < 1_500, `${took}`);
    await client.close();
  });
});

void eventually;
void sleep;
