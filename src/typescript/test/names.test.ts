/** The public names: each operation has one. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Gauge, Rate } from "../src/index.js";

/** The public methods and properties of a handle. */
function names(handle: { prototype: object }): string[] {
  const found: string[] = [];
  for (let at = handle.prototype; at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    found.push(...Object.getOwnPropertyNames(at));
  }
  return found.sort();
}

describe("the names of a handle", () => {
  it("a caller waits with acquire alone", () => {
    for (const handle of [Rate, Gauge]) {
      assert.ok(names(handle).includes("acquire"));
      assert.ok(!names(handle).includes("wait"));
    }
  });
});
