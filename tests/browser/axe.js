// Checks pages in Chromium with axe-core. Fails on violations, on errors of the page's script, on pages wider than the
// window, and on pages that do not become live. Submits the form for a configuration, if any, and checks the result.
// Arguments: URLs.
"use strict";
const puppeteer = require("puppeteer-core");
const axe = require("fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const look = async (page, url, scheme, width) => {
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("console", (message) => message.type() === "error" && wrong.push(message.text()));
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(url, { waitUntil: "load" });
  if (await page.$("form[method=post]")) {
    const text = 'resources: [{identifier_glob: "*", capacity: 1, algorithm: {kind: FAIR_SHARE}}]';
    await page.$eval("textarea", (area, text) => (area.value = text), text);
    await Promise.all([page.waitForNavigation(), page.click("form[method=post] button")]);
    await page.waitForSelector(".verdict", { timeout: 10000 });
  }
  const isLive = () => !document.body.dataset.live || !document.getElementById("live").hidden;
  await page.waitForFunction(isLive, { timeout: 10000 });
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  wrong.push(...violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`));
  if (await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth)) wrong.push("too wide");
  return wrong;
};

(async () => {
  const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
  let failed = false;
  for (const url of process.argv.slice(2))
    for (const scheme of ["light", "dark"])
      for (const width of [1280, 360]) {
        const page = await browser.newPage();
        const wrong = await look(page, url, scheme, width);
        console.log(`${url} ${scheme} ${width}: ${wrong.join("; ") || "no violations"}`);
        failed ||= wrong.length > 0;
        await page.close();
      }
  await browser.close();
  process.exit(failed ? 1 : 0);
})();
