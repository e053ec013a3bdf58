/** Real servers for the end-to-end tests. LEASEWAY_BIN is the `leaseway` to run; without it the tests are skipped. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const binary = process.env["LEASEWAY_BIN"];
if (binary !== undefined && !existsSync(binary)) throw new Error(`LEASEWAY_BIN=${binary}: there is no such file`);

/** Why the end-to-end tests are skipped, or false. */
export const skip = binary === undefined ? "LEASEWAY_BIN is not set" : false;

export interface TemplateSettings {
  glob?: string;
  capacity?: number;
  lease?: number;
  refresh?: number;
  safe?: number;
  learning?: number;
  kind?: string;
}

/** A resource template. */
export function template(settings: TemplateSettings = {}): string {
  const { glob = "*", capacity = 100, lease = 60, refresh = 1, safe, learning = 0, kind = "FAIR_SHARE" } = settings;
  return `- identifier_glob: "${glob}"
  capacity: ${capacity}
${safe === undefined ? "" : `  safe_capacity: ${safe}\n`}  algorithm:
    kind: ${kind}
    lease_length: ${lease}
    refresh_interval: ${refresh}
    learning_mode_duration: ${learning}
`;
}

const directory = mkdtempSync(join(tmpdir(), "leaseway-ts-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
let files = 0;

/** The path of a new file. */
export function scratch(name: string, text?: string): string {
  files += 1;
  const path = join(directory, `${files}-${name}`);
  if (text !== undefined) writeFileSync(path, text);
  return path;
}

/** A running `leaseway serve`. */
export class Server {
  private constructor(
    readonly process: ChildProcess,
    readonly address: string,
  ) {}

  static async start(templates: string[] = [template()], flags: string[] = []): Promise<Server> {
    const listen = flags.includes("--listen") ? [] : ["--listen", "127.0.0.1:0"];
    const config = scratch("resources.yaml", `resources:\n${templates.join("")}`);
    const given = flags.includes("--config") ? [] : ["--config", config];
    const common = ["--http", "127.0.0.1:0", "--threads", "1"];
    const child = spawn(binary ?? "", ["serve", ...given, ...listen, ...common, ...flags], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    child.stderr.on("data", (data) => {
      said += data;
    });
    for await (const line of createInterface(child.stdout)) {
      const found = /gRPC on ([^\s,]+),/.exec(line)?.[1];
      if (found !== undefined) {
        child.stdout.resume();
        return new Server(child, found);
      }
    }
    throw new Error(`the server did not start: ${said}`);
  }

  /** Kills the server. */
  async kill(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    await exited;
  }
}

/** Waits until `condition` holds. */
export async function eventually(condition: () => boolean, what: string, ms = 60_000): Promise<void> {
  const end = performance.now() + ms;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`timed out: ${what}`);
    await sleep(10);
  }
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * An address that nobody listens on. Its port lies below those that the system gives to outgoing connections, so none
 * takes it before a server listens.
 */
export function freeAddress(): Promise<string> {
  const port = 10_000 + Math.floor(Math.random() * 20_000);
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(freeAddress()));
    server.listen(port, "127.0.0.1", () => {
      server.close(() => resolve(`127.0.0.1:${port}`));
    });
  });
}

/** Runs a program, which imports the client as `leaseway`, in a process of its own. Returns its output and exit code. */
export async function runProgram(program: string): Promise<{ output: string; code: number | null }> {
  const index = new URL("../src/index.js", import.meta.url).href;
  const text = program.replaceAll('"leaseway"', JSON.stringify(index));
  const child = spawn(process.execPath, ["--input-type=module", "-e", text], { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (data) => {
    output += data;
  });
  const killer = setTimeout(() => child.kill("SIGKILL"), 30_000);
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  clearTimeout(killer);
  return { output, code };
}
