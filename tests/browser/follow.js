// Opens a page in Chromium and leaves it open. Each line of standard input is an expression: waits until it is true in
// the page, and prints "true", or else what was wrong. Argument: a URL.
"use strict";
const puppeteer = require("puppeteer-core");
const readline = require("readline");

(async () => {
  const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
  const page = await browser.newPage();
  await page.goto(process.argv[2], { waitUntil: "load" });
  const isTrue = async (expression) => {
    const end = Date.now() + 120000;
    let last = "false";
    while (Date.now() < end) {
      // The page may just be loaded again.
      last = await page.evaluate(`String(Boolean(${expression}))`).catch(String);
      if (last === "true") return last;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return `${last}: ${await page.evaluate("document.body.innerText").catch(String)}`.replaceAll("\n", " ");
  };
  // Made before something is awaited, it would drop the lines that come meanwhile.
  const lines = readline.createInterface({ input: process.stdin });
  for await (const line of lines) console.log(await isTrue(line));
  await browser.close();
})();
