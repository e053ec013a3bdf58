// Keeps a page open in Chromium. Reads expressions from standard input, one per line. Waits until each is true in the
// page, then prints "true" or the error. Closes the browser at the end of the input. Argument: a URL.
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
      // The page may be reloading.
      last = await page.evaluate(`String(Boolean(${expression}))`).catch(String);
      if (last === "true") return last;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return `${last}: ${await page.evaluate("document.body.innerText").catch(String)}`.replaceAll("\n", " ");
  };
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("line", async (line) => console.log(await isTrue(line)));
  lines.on("close", async () => {
    await browser.close();
    process.exit();
  });
})();
