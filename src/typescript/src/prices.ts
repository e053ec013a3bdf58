import { LeasewayError } from "./errors.js";

/** The maximum number of decimal places of a price. */
const PLACES = 18;
/** The number of digits in front of the decimal point of the maximum, 10^15. */
const MAX_WHOLE_DIGITS = 16;
/** The maximum price, and the maximum amount of a budget, in units of 10^-18. */
const MAX_UNITS = 10n ** BigInt(15 + PLACES);
/** The number of decimal digits that every number has. */
const SIGNIFICANT_DIGITS = 15;
/** The maximum number of names that an error lists. */
const MAX_KNOWN = 5;

const DECIMAL = /^(-?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?$/;
const NOT_A_NUMBER = "is not a decimal number";

/** A price table is invalid, or has no price for a usage. */
export class PriceError extends LeasewayError {
  override name = "PriceError";
}

/**
 * Prices per unit, by the name of a model and the name of a kind of usage. They turn usage into amounts of a budget. Prices
 * are decimal numbers, and sums are exact.
 *
 * ```ts
 * const prices = Prices.fromJson('{"gpt-4o": {"input": 0.0000025, "output": 0.00001}}');
 * await budget.spend(prices.cost("gpt-4o", { input: 1200, output: 300 })); // 0.006
 * ```
 */
export class Prices {
  /** In units of 10^-18. */
  private constructor(private readonly models: ReadonlyMap<string, ReadonlyMap<string, bigint>>) {}

  /**
   * Reads a table like `{"gpt-4o": {"input": 0.0000025, "output": "0.00001"}}`. A price is a number, or a string with a
   * number, from 0 to 10^15 with at most 18 decimal places. Throws a `PriceError` if the table is invalid.
   */
  static fromJson(json: string): Prices {
    const reader = new TableReader(json);
    const models = reader.object("the prices of models", "the model", (model) =>
      reader.object(`the prices of ${quoted(model)}`, `the price of ${quoted(model)} for`, (usage) => {
        const price = parsePrice(reader.price());
        if (typeof price === "bigint") return price;
        throw new PriceError(`invalid price table: the price of ${quoted(usage)} for ${quoted(model)} ${price}`);
      }),
    );
    reader.end();
    return new Prices(models);
  }

  /**
   * The cost of this usage: the sum of price times units, which is computed exactly and then rounded up to 15 significant
   * digits. Throws a `PriceError` that names the model or the usage if there is no price for it.
   */
  cost(model: string, usage: Readonly<Record<string, number | bigint>>): number {
    const prices = this.models.get(model);
    if (prices === undefined) throw new PriceError(`no prices for the model ${quoted(model)}; ${known(this.models)}`);
    let total = 0n;
    for (const [name, units] of Object.entries(usage)) {
      const price = prices.get(name);
      if (price === undefined) {
        throw new PriceError(`the model ${quoted(model)} has no price for ${quoted(name)}; ${known(prices)}`);
      }
      if (units < 0 || (typeof units === "number" && !Number.isSafeInteger(units))) {
        throw new RangeError(`invalid number of units of ${quoted(name)}, ${units}: expected a whole number from 0`);
      }
      total += price * BigInt(units);
    }
    if (total <= MAX_UNITS) return roundUp(total);
    throw new PriceError(
      `the usage of the model ${quoted(model)} costs more than 1e15, the largest amount of a budget: check the units and the prices`,
    );
  }
}

/** A price in units of 10^-18, or what is wrong with it. */
function parsePrice(text: string): bigint | string {
  const match = DECIMAL.exec(text);
  if (match === null) return NOT_A_NUMBER;
  const [, sign, whole = "", fraction = "", exponent = "0"] = match;
  if (Math.abs(Number(exponent)) >= 2 ** 31) return NOT_A_NUMBER;
  if (sign === "-") return "is negative";
  const digits = (whole + fraction).replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  if (significant === "") return 0n;
  // The power of ten, in units, of the last significant digit.
  const power = Number(exponent) + digits.length - significant.length - fraction.length + PLACES;
  if (power < 0) return "has more than 18 decimal places";
  const tooLarge = "is larger than 1e15";
  if (significant.length + power > MAX_WHOLE_DIGITS + PLACES) return tooLarge;
  const units = BigInt(significant) * 10n ** BigInt(power);
  return units <= MAX_UNITS ? units : tooLarge;
}

/** An amount in units of 10^-18 as a number. */
function roundUp(units: bigint): number {
  const surplus = Math.max(units.toString().length - SIGNIFICANT_DIGITS, 0);
  const divisor = 10n ** BigInt(surplus);
  return Number(`${(units + divisor - 1n) / divisor}e${surplus - PLACES}`);
}

function quoted(name: string): string {
  return JSON.stringify(name);
}

/** The first names of a table, for the end of an error. */
function known(table: ReadonlyMap<string, unknown>): string {
  const names = [...table.keys()].sort();
  if (names.length === 0) return "the table has none";
  const more = names.length - MAX_KNOWN;
  return `known: ${names.slice(0, MAX_KNOWN).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/** Reads a JSON object. `JSON.parse` would turn prices into binary numbers, and keep the last of several equal keys. */
class TableReader {
  private at = 0;

  constructor(private readonly json: string) {}

  /** Reads an object. `read` reads the value of each key. */
  object<T>(what: string, ofKey: string, read: (key: string) => T): Map<string, T> {
    const entries = new Map<string, T>();
    if (!this.take("{")) throw this.wrong(`expected ${what} as an object like {"input": 0.0000025}`);
    if (this.take("}")) return entries;
    do {
      const key = this.key();
      if (entries.has(key)) throw this.wrong(`${ofKey} ${quoted(key)} is given twice`);
      if (!this.take(":")) throw this.wrong("expected `:`");
      entries.set(key, read(key));
    } while (this.take(","));
    if (!this.take("}")) throw this.wrong("expected `,` or `}`");
    return entries;
  }

  /** The text of a number or of a string. For other values, which are no prices, an empty text. */
  price(): string {
    const number = this.match(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])/y);
    return number ?? this.match(/"[^"\\]*"/y)?.slice(1, -1) ?? "";
  }

  end(): void {
    this.skipSpace();
    if (this.at < this.json.length) throw this.wrong("trailing characters");
  }

  private key(): string {
    try {
      return JSON.parse(this.match(/"(?:[^"\\]|\\.)*"/y) ?? "");
    } catch {
      throw this.wrong("expected a name in quotes");
    }
  }

  private take(character: string): boolean {
    this.skipSpace();
    const isNext = this.json[this.at] === character;
    if (isNext) this.at += 1;
    return isNext;
  }

  private match(token: RegExp): string | undefined {
    this.skipSpace();
    token.lastIndex = this.at;
    const text = token.exec(this.json)?.[0];
    this.at += text?.length ?? 0;
    return text;
  }

  private skipSpace(): void {
    while (" \t\r\n".includes(this.json[this.at] ?? "end")) this.at += 1;
  }

  private wrong(why: string): PriceError {
    return new PriceError(`invalid price table: ${why}, at position ${this.at}`);
  }
}
