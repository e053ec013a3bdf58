// Measures the first paint of pages in Chromium, and the server's cost of open pages. Starts a server with 1,000
// resources and one resource of 100,000 holders: `node tests/browser/paint.js DIRECTORY`. DIRECTORY has leaseway and
// leaseway-bench, NODE_PATH has puppeteer-core, and CHROMIUM is the path of Chromium.
"use strict";
const { spawn, spawnSync } = require("child_process");
const { readFileSync, writeFileSync, mkdtempSync } = require("fs");
const puppeteer = require("puppeteer-core");

const [directory] = process.argv.slice(2);
const [grpc, http] = ["127.84.0.1:5100", "127.84.0.1:5150"];
const OPEN = 20;
const SECONDS = 20;
const views = { overview: "/", "1,000 resources": "/resources", "100,000 holders": "/resource?resource=crowd-0" };

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const load = (prefix, resources, clients, ...more) => {
  const target = ["--target", grpc, "--resource-prefix", prefix, "--resources", resources, "--clients", clients];
  const words = ["load", ...target, "--fill", "--seconds", 1, ...more].map(String);
  const done = spawnSync(`${directory}/leaseway-bench`, words);
  if (done.status !== 0) throw new Error(String(done.stderr));
};
// CPU time so far in seconds, and resident memory in MiB.
const used = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  const resident = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1];
  return { cpu: (Number(fields[11]) + Number(fields[12])) / 100, memory: Math.round(resident / 1024) };
};
const painted = async (browser, path) => {
  const page = await browser.newPage();
  await page.bringToFront();
  await page.goto(`http://${http}${path}`, { waitUntil: "load" });
  await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0, { polling: 50 });
  const told = await page.evaluate(() => {
    const { responseEnd, loadEventEnd, encodedBodySize } = performance.getEntriesByType("navigation")[0];
    const paint = performance.getEntriesByName("first-contentful-paint")[0].startTime;
    return { paint, responseEnd, loadEventEnd, encodedBodySize, nodes: document.querySelectorAll("*").length };
  });
  await page.close();
  return told;
};
// Opens each page in its own window, because hidden pages have no stream.
const open = async (browser, path) => {
  const pages = [];
  for (let n = 0; n < OPEN; n++) {
    const session = await browser.target().createCDPSession();
    const url = `http://${http}${path}`;
    const { targetId } = await session.send("Target.createTarget", { url, newWindow: true });
    pages.push(targetId);
  }
  return pages;
};
const close = async (browser, pages) => {
  const session = await browser.target().createCDPSession();
  for (const targetId of pages) await session.send("Target.closeTarget", { targetId });
};

(async () => {
  const config = `${mkdtempSync("/tmp/leaseway-paint-")}/leaseway.yaml`;
  const algorithm = "{kind: FAIR_SHARE, lease_length: 600, refresh_interval: 60}";
  writeFileSync(config, `resources: [{identifier_glob: '*', capacity: 1000000, algorithm: ${algorithm}}]\n`);
  const flags = ["serve", "--listen", grpc, "--http", http, "--config", config];
  const server = spawn(`${directory}/leaseway`, flags, { stdio: "ignore" });
  process.on("exit", () => server.kill("SIGKILL"));
  await sleep(2);
  load("resource", 1000, 10000);
  load("crowd", 1, 100000);
  const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
  console.log("| view | answered | first paint | loaded | gzip | elements |\n|---|---|---|---|---|---|");
  for (const [name, path] of Object.entries(views)) {
    const runs = [];
    for (let n = 0; n < 7; n++) runs.push(await painted(browser, path));
    const middle = (field) => Math.round(runs.map((run) => run[field]).sort((a, b) => a - b)[3]);
    const [end, paint, loaded] = [middle("responseEnd"), middle("paint"), middle("loadEventEnd")];
    const size = (middle("encodedBodySize") / 1024).toFixed(1);
    console.log(`| ${name} | ${end} ms | ${paint} ms | ${loaded} ms | ${size} KB | ${middle("nodes")} |`);
  }
  const idle = async () => {
    const before = used(server.pid);
    await sleep(SECONDS);
    const after = used(server.pid);
    return { share: ((100 * (after.cpu - before.cpu)) / SECONDS).toFixed(1), memory: after.memory };
  };
  console.log(`\n| ${OPEN} open pages | of one core | memory |\n|---|---|---|`);
  const without = await idle();
  console.log(`| none | ${without.share} % | ${without.memory} MiB |`);
  for (const [name, path] of Object.entries(views)) {
    const pages = await open(browser, path);
    await sleep(5);
    const { share, memory } = await idle();
    console.log(`| ${name} | ${share} % | ${memory} MiB |`);
    await close(browser, pages);
  }
  await browser.close();
  process.exit(0);
})();
