// Takes the pictures of docs/guide/web-page.md: each page light and dark, wide and for a phone. Starts a root, a region of
// three peers below it, and two leaves below that: `node tests/browser/screenshots.js DIRECTORY OUT [SECONDS]`, with
// leaseway in DIRECTORY, puppeteer-core where NODE_PATH says, and Chromium where CHROMIUM says. SECONDS: how long clients
// ask before the pictures are taken.
"use strict";
const { spawn, spawnSync } = require("child_process");
const { writeFileSync, mkdtempSync, mkdirSync } = require("fs");
const { resolve } = require("path");
const puppeteer = require("puppeteer-core");

const [directory, out, seconds = "60"] = process.argv.slice(2);
const leaseway = resolve(directory, "leaseway");
const host = "127.86.0.1";
const address = (number, peer = 0) => `${host}:${5000 + 100 * number + peer}`;
const endpoints = (number, peer) => {
  const [grpc, http, admin, raft] = [0, 50, 60, 20].map((port) => address(number, port + peer));
  return `{grpc: "${grpc}", http: "${http}", admin: "${admin}", peer: "${raft}"}`;
};
const peers = (number, names) => `{${names.map((name, place) => `${name}: ${endpoints(number, place)}`).join(", ")}}`;
const template = (glob, capacity) =>
  `{identifier_glob: "${glob}", capacity: ${capacity}, algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 4}}`;
const budget = (glob, amount) =>
  `{identifier_glob: "${glob}", capacity: ${amount}, algorithm: {kind: BUDGET, lease_length: 60, refresh_interval: 4, parameters: {period: hour}}}`;
const tree = `
nodes:
  root:
    resources: [${template("mysql", 100)}, ${template("gpt-4o/*", 5000)}, ${budget("openai/*", 60000)}, ${template("*", 40)}]
    peers: ${peers(1, ["a"])}
  europe:
    parent: root
    options: {timing: several-sites}
    peers: ${peers(2, ["a", "b", "c"])}
  paris:
    parent: europe
    peers: ${peers(3, ["a"])}
  berlin:
    parent: europe
    peers: ${peers(4, ["a"])}
`;

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const scratch = mkdtempSync("/tmp/leaseway-screenshots-");
const get = (client, resource, wants, server) =>
  spawn(leaseway, ["get", client, resource, String(wants), "--server", server], { stdio: "ignore" });
const gatewayAt = address(9);
const spend = (resource, amount) =>
  fetch(`http://${gatewayAt}/v1/resources/${encodeURIComponent(resource)}/spend`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ amount, wait: 5 }),
  }).catch(() => {});
// The demand rises and falls, so that plots show something.
const ask = (second) => {
  const wave = (period, low, high) => Math.round(low + ((high - low) * (1 + Math.sin((2 * Math.PI * second) / period))) / 2);
  get("checkout", "mysql", wave(90, 10, 60), address(1));
  get("reports", "mysql", wave(50, 30, 90), address(1));
  get("billing", "mysql", 25, address(2));
  get("search", "mysql", 20, address(3));
  get("crawler", "mysql", wave(70, 5, 25), address(4));
  get("chatbot", "gpt-4o/tokens", wave(60, 1000, 4500), address(3));
  get("batch", "gpt-4o/tokens", 6000, address(2));
  get("mailer", "smtp", 8, address(4));
  spend("openai/search", wave(120, 10, 70));
};
const master = async () => {
  for (;;) {
    for (const peer of [50, 51, 52]) {
      const status = await fetch(`http://${address(2, peer)}/api/v1/status`).then((answer) => answer.json(), () => ({}));
      if (status.is_master) return address(2, peer);
    }
    await sleep(0.5);
  }
};
const views = (span) => ({
  overview: "/",
  resources: "/resources?sort=pressure",
  resource: `/resource?resource=mysql&span=${span}`,
  budget: "/resource?resource=openai%2Fsearch",
  why: "/why?resource=mysql&holder=reports",
  changes: "/changes",
  "what-if": "/plan",
});
const take = async (browser, url, file, scheme, width) => {
  const page = await browser.newPage();
  page.on("pageerror", (error) => console.error(`${url}: ${error}`));
  await page.setViewport({ width, height: width < 600 ? 780 : 860, deviceScaleFactor: width < 600 ? 2 : 1 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(url, { waitUntil: "load" });
  await sleep(1.5);
  if (await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth)) console.error(`${url} is too wide for ${width}`);
  await page.screenshot({ path: file, fullPage: true });
  await page.close();
};

(async () => {
  mkdirSync(out, { recursive: true });
  writeFileSync(`${scratch}/tree.yaml`, tree);
  const up = spawn(leaseway, ["up", "tree.yaml", "--data", "data"], { stdio: "ignore", cwd: scratch });
  const gateway = spawn(leaseway, ["gateway", "--http", gatewayAt, "--server", address(1)], { stdio: "ignore" });
  process.on("exit", () => [up, gateway].forEach((program) => program.kill("SIGTERM")));
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
  await master();
  let second = 0;
  setInterval(() => ask((second += 2)), 2000);
  await sleep(Number(seconds) / 2);
  const override = ["capacity", "mysql", "70", "--for", "90s", "--why", "a replica is down", "--admin", address(1, 60)];
  const said = spawnSync(leaseway, override);
  if (said.status !== 0) console.error(String(said.stderr));
  await sleep(Number(seconds) / 2);
  const server = await master();
  const args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"];
  const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args });
  for (const [name, path] of Object.entries(views(process.env.SPAN || "15m")))
    for (const scheme of ["light", "dark"])
      for (const [kind, width] of [["", 1280], ["-phone", 360]])
        await take(browser, `http://${name === "overview" ? server : address(1, 50)}${path}`, `${out}/page-${name}-${scheme}${kind}.png`, scheme, width);
  await browser.close();
  process.exit();
})();
