/** A client and a server in one process, which answers as it is told. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Client } from "../src/index.js";
import { Fake } from "./fake.js";
import { eventually } from "./server.js";

describe("a redirect", () => {
  const redirect = (masterAddress: string) => () => ({ response: [], mastership: { masterAddress }, problem: [] });

  it("to a valid address is followed", async (test) => {
    const [follower, master] = [await Fake.start(test), await Fake.start(test)];
    follower.answer = redirect(master.address);
    const client = new Client(follower.address);
    await client.rate("r", { wants: 1 }).ready();
    assert.equal(client.health().server, master.address);
    await client.close();
  });

  for (const address of [
    "not an address",
    "unix:///tmp/leaseway",
    "https://elsewhere:1",
    "a:0",
    "a:b:c",
    "x".repeat(300),
  ]) {
    it(`to ${address.slice(0, 20)} is not followed`, async (test) => {
      const server = await Fake.start(test);
      let redirects = 0;
      server.answer = (request) => {
        redirects += 1;
        return redirects > 3 ? server.grant(request) : redirect(address)();
      };
      const client = new Client(server.address);
      const rate = client.rate("r", { wants: 1 });
      await eventually(() => client.stats().redirects > 0, "a redirect");
      assert.equal(client.health().server, server.address);
      assert.match(client.health().lastError ?? "", /names an invalid master/);
      await rate.ready();
      assert.deepEqual(client.health().endpoints, [server.address]);
      assert.equal(client.stats().requestErrors, 0);
      await client.close();
    });
  }

  it("names no invalid peers", async (test) => {
    const server = await Fake.start(test);
    const endpoint = ["good:1", "bad:0", "https://secured:1", "unix:/tmp/socket", ""];
    server.peers = () => ({ isMaster: true, endpoint });
    const client = new Client(server.address);
    await client.rate("r", { wants: 1 }).ready();
    await eventually(() => client.health().endpoints.length > 1, "peers");
    assert.deepEqual(client.health().endpoints, [server.address, "good:1"]);
    await client.close();
  });
});
