/** The client against three peers, over TLS, with a token, and in front of grpc-js calls. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { after, describe, it } from "node:test";

import { credentials, Client as GrpcClient, status } from "@grpc/grpc-js";

import { BuildError, Client, limitInterceptor } from "../src/index.js";
import { eventually, freeAddress, Server, scratch, skip, template } from "./server.js";

const binary = process.env["LEASEWAY_BIN"] ?? "";

describe("a client and a cluster", { skip }, () => {
  const servers: Server[] = [];
  after(() => Promise.all(servers.map((server) => server.kill())));
  const serve = async (...args: Parameters<typeof Server.start>) => {
    const server = await Server.start(...args);
    servers.push(server);
    return server;
  };

  it("follows the master, and gets its lease from the next one", async () => {
    const names = ["a", "b", "c"];
    const addresses = await Promise.all(names.map(freeAddress));
    const peers = names.map((name, n) => `${name}=${addresses[n]}`).join(",");
    const secret = scratch("secret", "0123456789abcdef0123456789abcdef");
    const node = await Promise.all(
      names.map((name) => {
        const flags = [
          "--id",
          name,
          "--peers",
          peers,
          "--data",
          scratch(name),
          "--bootstrap",
          "--admin",
          "127.0.0.1:0",
        ];
        return serve([template({ lease: 20 })], [...flags, "--peer-secret-file", secret]);
      }),
    );
    const client = new Client(node[0]?.address ?? "");
    const searches = client.rate("searches", { wants: 100 });
    await searches.ready(20_000);
    await eventually(() => client.health().endpoints.length === 3, "the peers are learnt");
    const token = () => searches.lease?.leftMs ?? 0;
    const master = node.find(({ address }) => address === client.health().server);
    assert.ok(master !== undefined, client.health().server);
    await master.kill();
    const begun = performance.now();
    await eventually(() => client.health().server !== master.address && client.health().failures === 0, "a new master");
    await eventually(() => token() > 18_000, "a renewed lease");
    const took = performance.now() - begun;
    assert.equal(searches.capacity, 100, "nothing was lost meanwhile");
    assert.ok(took < 10_000, `${took}`);
    const newcomer = new Client({ servers: node.map(({ address }) => address) });
    const late = newcomer.rate("others", { wants: 10 });
    await late.ready(10_000);
    await Promise.all([client.close(), newcomer.close()]);
  });

  it("uses TLS with a client certificate, and says what is wrong without", async () => {
    const home = scratch("certs");
    mkdirSync(home);
    for (const what of [["init"], ["issue", "node", "--host", "127.0.0.1"], ["issue", "alice"]]) {
      execFileSync(binary, ["certs", ...what], { cwd: home, stdio: "ignore" });
    }
    const file = (name: string) => `${home}/certs/${name}`;
    const flags = ["--tls-cert", file("node.pem"), "--tls-key", file("node.key"), "--tls-ca", file("ca.pem")];
    const server = await serve([template()], flags);
    const own = { tlsCa: file("ca.pem"), tlsCert: file("alice.pem"), tlsKey: file("alice.key") };
    const client = new Client({ servers: `https://${server.address}`, ...own });
    await client.rate("searches", { wants: 10 }).ready();
    await client.close();
    for (const options of [{ tlsCa: file("ca.pem") }, {}, { ...own, tlsServerName: "elsewhere" }]) {
      const refused = new Client({ servers: server.address, ...options });
      refused.rate("searches", { wants: 10 });
      await eventually(() => refused.health().lastError !== undefined, "an error");
      assert.equal(refused.stats().resources["searches"]?.basis, "fallback");
      await refused.close();
    }
    assert.throws(() => new Client({ servers: "a", tlsCert: file("alice.pem") }), BuildError);
    assert.throws(() => new Client({ servers: "http://a", tlsCa: file("ca.pem") }), BuildError);
  });

  it("proves its identity with a token", async () => {
    const token = scratch("robot.token");
    const tokens = scratch(
      "tokens",
      execFileSync(binary, ["token", "new", "robot", "--out", token], { encoding: "utf8" }),
    );
    const server = await serve([template(), "access:\n- who: robot\n  may: ask\n"], ["--tokens", tokens]);
    const client = new Client({ servers: server.address, id: "robot/1", tokenFile: token });
    await client.rate("searches", { wants: 10 }).ready();
    await client.close();
    const stranger = new Client({ servers: server.address });
    await assert.rejects(stranger.rate("searches", { wants: 10 }).ready(500), /no lease yet for `searches`/);
    await stranger.close();
  });

  it("limits the calls of grpc-js", async () => {
    const server = await serve();
    const client = new Client(server.address);
    const calls = client.gauge("calls", { wants: 1 });
    await calls.ready();
    const interceptors = [limitInterceptor(calls, { timeoutMs: 200 })];
    const grpc = new GrpcClient(server.address, credentials.createInsecure(), { interceptors });
    const discover = () =>
      new Promise<number>((resolve) => {
        const bytes = (value: Buffer) => value;
        const path = "/doorman.Capacity/Discovery";
        grpc.makeUnaryRequest(path, bytes, bytes, Buffer.alloc(0), (error) => resolve(error?.code ?? status.OK));
      });
    assert.equal(await discover(), status.OK);
    assert.equal(calls.inUse, 0);
    const permit = await calls.acquire();
    assert.equal(await discover(), status.RESOURCE_EXHAUSTED);
    permit.release();
    assert.equal(await discover(), status.OK);
    grpc.close();
    await client.close();
  });
});
