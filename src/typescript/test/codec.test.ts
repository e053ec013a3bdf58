/** The codec against protobufjs with the .proto files, and against malformed bytes. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";

import { loadSync, type MessageTypeDefinition } from "@grpc/proto-loader";

import { decode, encode } from "../src/protocol/codec.js";
import { GetCapacityRequest, GetCapacityResponse, Hint, ReleaseCapacityRequest } from "../src/protocol/messages.js";
import { leasesOf, poolOf, refusalOf } from "../src/protocol/wire.js";

const protos = loadSync(
  ["doorman.proto", "push.proto"].map((name) => join(process.cwd(), "../../proto", name)),
  { longs: String },
);

/** The same message in plain values: 64-bit integers as text, absent fields left out. */
function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (_, one) => (typeof one === "bigint" ? String(one) : one)));
}

function theirs(name: string): MessageTypeDefinition<object, object> {
  return protos[name] as MessageTypeDefinition<object, object>;
}

const lease = {
  expiryTime: 1_764_150_000n,
  refreshInterval: 5n,
  capacity: 7.25,
  token: 2n ** 64n - 1n,
  remainingMs: -1n,
};

const spent = { amount: 0.5, period: 1_764_150_000n, incarnation: 2n ** 64n - 1n, need: 2 };
const budget = { periodStart: -1n, periodEnd: 1_764_150_000n, startsOver: true };

describe("the codec", () => {
  it("writes what protobufjs reads, and reads what it writes", () => {
    const request: GetCapacityRequest = {
      clientId: "host:1:ü",
      resource: [
        { resourceId: "a", priority: -3n, wants: 1e15, has: lease, outstanding: 0.5 },
        { resourceId: "s", priority: 0n, wants: 0, spent },
        { resourceId: "b".repeat(300), priority: 0n, wants: 0, had: lease, usage: { intervalMs: 4_000n } },
      ],
      dropsLate: true,
    };
    const release: ReleaseCapacityRequest = {
      clientId: "c",
      resourceId: ["a", "b"],
      token: [0n, 2n ** 63n],
      spent: [{}, spent],
    };
    const answer: GetCapacityResponse = {
      response: [
        { resourceId: "a", gets: lease, safeCapacity: -1, pool: { state: 3, reason: "why" }, priority: 7n, budget },
      ],
      mastership: { masterAddress: "m:1" },
      problem: [{ resourceId: "x", reason: "busy", message: "no room" }],
    };
    const cases = [
      ["doorman.GetCapacityRequest", GetCapacityRequest, request],
      ["doorman.ReleaseCapacityRequest", ReleaseCapacityRequest, release],
      ["doorman.GetCapacityResponse", GetCapacityResponse, answer],
      ["leaseway.push.v1.Hint", Hint, { resourceId: ["a"], everything: true }],
    ] as const;
    for (const [name, message, value] of cases) {
      const bytes = encode(message as typeof Hint, value as Hint);
      assert.deepEqual(plain(theirs(name).deserialize(bytes)), plain(value), name);
      const written = theirs(name).serialize(plain(value) as object);
      assert.deepEqual(plain(decode(message as typeof Hint, written)), plain(value), name);
    }
  });

  it("skips unknown fields and refuses malformed bytes", () => {
    const unknown = Buffer.from([0x98, 0x06, 0x01, 0xa5, 0x06, 1, 2, 3, 4, 0x10, 0x01]);
    assert.deepEqual(decode(Hint, unknown), { resourceId: [], everything: true });
    for (const bad of [[0x0a, 0x05, 0x61], [0x80], [0x0f]]) assert.throws(() => decode(Hint, Buffer.from(bad)));
  });
});

describe("answers", () => {
  it("a lease starts when its request was sent, and malformed ones are named", () => {
    const gets = { expiryTime: 1_000n, refreshInterval: 5n, capacity: 7.5, token: 9n };
    const one = (other: object) => leasesOf([{ resourceId: "r", gets: { ...gets, ...other } }], 940_250);
    assert.equal(one({ remainingMs: 60_000n }).given[0]?.length, 60_000, "independent of clocks");
    assert.equal(one({}).given[0]?.length, 59_750);
    assert.equal(one({ token: 0n }).given[0]?.token, undefined);
    for (const bad of [{ capacity: Number.NaN }, { capacity: Number.POSITIVE_INFINITY }, { expiryTime: undefined }]) {
      assert.deepEqual(one(bad), { given: [], malformed: ["r"] });
    }
  });

  it("an answer without leases fails with the first lasting problem", () => {
    const problems = [{ reason: "too_soon" }, { reason: "too_many_clients", message: "no room" }];
    assert.equal(refusalOf(problems, 0), "no room (too_many_clients)");
    assert.equal(refusalOf(problems, 1), undefined);
    assert.equal(refusalOf(problems.slice(0, 1), 0), undefined);
  });

  it("malformed numbers of a pool are replaced", () => {
    assert.deepEqual(poolOf({ state: 3, assigned: Number.NaN, minCapacity: 2, reason: "", burstSeconds: 1e9 }), {
      standing: "revoking",
      assigned: 0,
      minCapacity: 2,
      reason: undefined,
      burstMs: 3_600_000,
    });
  });
});
