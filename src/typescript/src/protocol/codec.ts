/**
 * Encodes and decodes the few protobuf messages of the protocol, from a description of their fields. Unknown fields are
 * skipped. Absent optional fields are `undefined`, so that a missing one is never a silent zero.
 */

type Scalar = "string" | "double" | "int64" | "uint64" | "fixed64" | "bool" | "enum";

interface Field {
  readonly number: number;
  readonly type: Scalar | Message<unknown>;
  readonly repeated: boolean;
}

/** The description of a message with fields of these names. */
export interface Message<T> {
  readonly fields: Readonly<Record<string, Field>>;
  readonly byNumber: ReadonlyMap<number, readonly [string, Field]>;
  /** Only for its type. */
  readonly example?: T;
}

type FieldsOf<T> = { readonly [K in keyof T]-?: Field };

/** Describes a message. */
export function message<T>(fields: FieldsOf<T>): Message<T> {
  const entries = Object.entries<Field>(fields);
  return {
    fields: Object.fromEntries(entries),
    byNumber: new Map(entries.map(([name, field]) => [field.number, [name, field] as const])),
  };
}

/** An optional or required field. */
export function field<T>(number: number, type: Scalar | Message<T>): Field {
  return { number, type: type as Scalar | Message<unknown>, repeated: false };
}

/** A repeated field. */
export function repeated<T>(number: number, type: Scalar | Message<T>): Field {
  return { number, type: type as Scalar | Message<unknown>, repeated: true };
}

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

const MAX_UINT64 = (1n << 64n) - 1n;

class Writer {
  private bytes = Buffer.allocUnsafe(256);
  private length = 0;

  finish(): Buffer {
    return this.bytes.subarray(0, this.length);
  }

  tag(number: number, wireType: number): void {
    this.varint(number * 8 + wireType);
  }

  varint(value: number): void {
    this.reserve(10);
    let rest = value;
    while (rest > 0x7f) {
      this.bytes[this.length++] = (rest % 128) | 0x80;
      rest = Math.floor(rest / 128);
    }
    this.bytes[this.length++] = rest;
  }

  varint64(value: bigint): void {
    this.reserve(10);
    let rest = value & MAX_UINT64;
    while (rest > 0x7fn) {
      this.bytes[this.length++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    this.bytes[this.length++] = Number(rest);
  }

  double(value: number): void {
    this.reserve(8);
    this.bytes.writeDoubleLE(value, this.length);
    this.length += 8;
  }

  fixed64(value: bigint): void {
    this.reserve(8);
    this.bytes.writeBigUInt64LE(value, this.length);
    this.length += 8;
  }

  delimited(bytes: Uint8Array): void {
    this.varint(bytes.length);
    this.reserve(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  private reserve(more: number): void {
    if (this.length + more <= this.bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.bytes.length * 2, this.length + more));
    this.bytes.copy(larger, 0, 0, this.length);
    this.bytes = larger;
  }
}

function writeValue(writer: Writer, { number, type }: Field, value: unknown): void {
  if (typeof type === "object") {
    writer.tag(number, BYTES);
    writer.delimited(encode(type, value));
  } else if (type === "string") {
    writer.tag(number, BYTES);
    writer.delimited(Buffer.from(value as string, "utf8"));
  } else if (type === "double") {
    writer.tag(number, FIXED64);
    writer.double(value as number);
  } else if (type === "fixed64") {
    writer.tag(number, FIXED64);
    writer.fixed64(value as bigint);
  } else if (type === "bool" || type === "enum") {
    writer.tag(number, VARINT);
    writer.varint(Number(value));
  } else {
    writer.tag(number, VARINT);
    writer.varint64(value as bigint);
  }
}

/** Encodes a message. */
export function encode<T>(message: Message<T>, value: T): Buffer {
  const writer = new Writer();
  const values = value as Record<string, unknown>;
  for (const name in message.fields) {
    const field = message.fields[name];
    const one = values[name];
    if (field === undefined || one === undefined) continue;
    if (field.repeated) for (const item of one as readonly unknown[]) writeValue(writer, field, item);
    else writeValue(writer, field, one);
  }
  return writer.finish();
}

class Reader {
  position = 0;

  constructor(private readonly bytes: Buffer) {}

  get atEnd(): boolean {
    return this.position >= this.bytes.length;
  }

  varint64(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.bytes[this.position++];
      if (byte === undefined) break;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value & MAX_UINT64;
    }
    throw new RangeError("malformed message: bad varint");
  }

  /** A varint that is used as a number: a tag, a length, a boolean or an enum. */
  varint(): number {
    const byte = this.bytes[this.position];
    if (byte !== undefined && byte < 0x80) {
      this.position += 1;
      return byte;
    }
    return Number(this.varint64());
  }

  take(length: number): Buffer {
    const end = this.position + length;
    if (end > this.bytes.length) throw new RangeError("malformed message: truncated");
    const taken = this.bytes.subarray(this.position, end);
    this.position = end;
    return taken;
  }

  skip(wireType: number): void {
    if (wireType === VARINT) this.varint64();
    else if (wireType === FIXED64) this.take(8);
    else if (wireType === BYTES) this.take(this.varint());
    else if (wireType === FIXED32) this.take(4);
    else throw new RangeError(`malformed message: wire type ${wireType}`);
  }
}

function wireTypeOf(type: Field["type"]): number {
  if (typeof type === "object" || type === "string") return BYTES;
  return type === "double" || type === "fixed64" ? FIXED64 : VARINT;
}

function readValue(reader: Reader, type: Field["type"]): unknown {
  if (typeof type === "object") return decode(type, reader.take(reader.varint()));
  switch (type) {
    case "string":
      return reader.take(reader.varint()).toString("utf8");
    case "double":
      return reader.take(8).readDoubleLE(0);
    case "fixed64":
      return reader.take(8).readBigUInt64LE(0);
    case "bool":
      return reader.varint() !== 0;
    case "enum":
      return reader.varint();
    case "int64":
      return BigInt.asIntN(64, reader.varint64());
    case "uint64":
      return reader.varint64();
  }
}

/** Repeated numbers may be packed, whatever the schema says. */
function readPacked(reader: Reader, type: Field["type"], into: unknown[]): void {
  const packed = new Reader(reader.take(reader.varint()));
  while (!packed.atEnd) into.push(readValue(packed, type));
}

/** Decodes a message. Repeated fields are present, possibly empty. */
export function decode<T>(message: Message<T>, bytes: Buffer): T {
  const reader = new Reader(bytes);
  const value: Record<string, unknown> = {};
  for (const name in message.fields) if (message.fields[name]?.repeated) value[name] = [];
  while (!reader.atEnd) {
    const tag = reader.varint();
    const wireType = tag % 8;
    const known = message.byNumber.get(Math.floor(tag / 8));
    if (known === undefined) {
      reader.skip(wireType);
      continue;
    }
    const [name, field] = known;
    const expected = wireTypeOf(field.type);
    if (wireType === expected) {
      const one = readValue(reader, field.type);
      if (field.repeated) (value[name] as unknown[]).push(one);
      else value[name] = one;
    } else if (field.repeated && wireType === BYTES) {
      readPacked(reader, field.type, value[name] as unknown[]);
    } else {
      reader.skip(wireType);
    }
  }
  return value as T;
}
