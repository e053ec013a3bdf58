/** The clock of a client, with the clocks of the system replaced. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { SystemClock } from "../src/clock.js";

describe("the clock", () => {
  it("notices a suspend at the first look, and ignores that the wall clock is set", () => {
    const at = { monotonic: 5_000, wall: 1e12, uptime: 9_000 };
    const clock = new SystemClock({
      monotonicMs: () => at.monotonic,
      wallMs: () => at.wall,
      uptimeMs: () => at.uptime,
    });
    const advance = (awake: number, suspended: number, set = 0) => {
      at.monotonic += awake;
      at.uptime += awake + suspended;
      at.wall += awake + suspended + set;
    };
    advance(100, 0);
    assert.equal(clock.now(), 100);
    advance(10, 60_000);
    assert.equal(clock.now(), 60_110);
    advance(10, 0, 3_600_000);
    assert.equal(clock.now(), 60_120);
    advance(10, 0, -7_200_000);
    assert.equal(clock.now(), 60_130);
  });
});
