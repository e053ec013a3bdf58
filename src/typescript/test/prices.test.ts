import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { PriceError, Prices } from "../src/index.js";

// The file describes its fields. The other clients read it, too.
const VECTORS = JSON.parse(readFileSync(new URL("../../../go/testdata/prices.json", import.meta.url), "utf8"));

interface Vector {
  name: string;
  table: string;
  model: string;
  usage: Record<string, number>;
  amount: string;
  says: string[];
}

function refused(says: string[], call: () => unknown): void {
  assert.throws(call, (error) => {
    assert.ok(error instanceof PriceError, String(error));
    for (const part of says) assert.ok(error.message.includes(part), `${error.message}, which lacks ${part}`);
    return true;
  });
}

describe("price vectors of all clients", () => {
  const cost = ({ table, model, usage }: Vector) => Prices.fromJson(table).cost(model, usage);
  for (const vector of VECTORS.costs as Vector[]) {
    it(vector.name, () => assert.equal(cost(vector), Number(vector.amount)));
  }
  for (const vector of VECTORS.refused_costs as Vector[]) {
    it(vector.name, () => refused(vector.says, () => cost(vector)));
  }
  for (const { table, says } of VECTORS.refused_tables as Vector[]) {
    it(`refuses ${JSON.stringify(table)}`, () => refused(says, () => Prices.fromJson(table)));
  }
});

describe("Prices", () => {
  const prices = Prices.fromJson('{"m": {"a": 0.1}}');

  it("takes units as bigint", () => assert.equal(prices.cost("m", { a: 3n }), 0.3));

  it("refuses units that are no whole number", () => {
    for (const units of [-1, -1n, 0.5, Number.NaN, 2 ** 53]) {
      assert.throws(() => prices.cost("m", { a: units }), RangeError);
    }
  });
});
