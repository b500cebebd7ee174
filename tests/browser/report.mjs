// Looks at reports and comparisons in Chromium: accessibility, width, requests, script, size.
//
//     cd tests/browser && npm install
//     node report.mjs ../../runs/example1/report.html ../../comparison.html
//
// Every page is looked at 1280 and 390 pixels wide, light and dark. Chromium is /usr/bin/chromium
// or what the variable CHROMIUM names.

import { readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const widths = [1280, 390];
const schemes = ["light", "dark"];
const quiet = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Faults of a page at one width and in one scheme. */
async function look(browser, file, width, scheme) {
  const faults = [];
  const viewport = { width, height: 900 };
  const page = await browser.newPage({ viewport, colorScheme: scheme });
  const own = pathToFileURL(file).href;
  page.on("request", (request) => {
    const url = request.url();
    if (url !== own && !url.startsWith("data:")) faults.push(`asks for ${url}`);
  });
  page.on("console", (said) => {
    if (said.type() === "error") faults.push(`says ${said.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`fails: ${error.message}`));
  await page.goto(own);
  faults.push(...(await overflow(page)));
  faults.push(...(await accessibility(page)));
  faults.push(...(await sorting(page)), ...(await pointing(page)));
  await page.close();
  return faults;
}

/** What reaches over the right edge. */
async function overflow(page) {
  const [wide, room] = await page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    return [scrollWidth, clientWidth];
  });
  return wide > room ? [`is ${wide} pixels wide in ${room}`] : [];
}

/** Serious and critical violations of axe-core. */
async function accessibility(page) {
  await page.evaluate(axe);
  // All of it is looked at, also what is folded away.
  await page.evaluate(() => document.querySelectorAll("details").forEach((d) => (d.open = true)));
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const grave = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  return grave.map(({ id, help, nodes }) => {
    const first = nodes[0].html.slice(0, 120);
    return `axe ${id}: ${help} (${nodes.length}, first ${first})`;
  });
}

/** A heading that is clicked puts its column in order. */
async function sorting(page) {
  const table = page.locator("table.sortable").first();
  if (!(await table.count())) return [];
  const head = table.locator("thead th").first();
  await head.locator("button").click();
  const first = await head.getAttribute("aria-sort");
  const place = (await head.evaluate((cell) => cell.cellIndex)) + 1;
  const cells = () => table.locator(`tbody tr > :nth-child(${place})`).allTextContents();
  const before = await cells();
  await head.locator("button").click();
  const second = await head.getAttribute("aria-sort");
  const turned = JSON.stringify((await cells()).reverse()) === JSON.stringify(before);
  const orders = new Set([first, second]);
  const sorted = orders.has("ascending") && orders.has("descending") && turned;
  return sorted ? [] : ["does not sort its first table"];
}

/** The first point of the first plot says what it is. */
async function pointing(page) {
  const plot = page.locator("svg[data-points]").first();
  if (!(await plot.count())) return ["has no plot with points"];
  await plot.scrollIntoViewIfNeeded();
  const place = await plot.evaluate((svg) => {
    const [x, y] = svg.dataset.points.split("\n")[0].split(" ");
    const { x: left, y: top } = new DOMPoint(+x, +y).matrixTransform(svg.getScreenCTM());
    return { left, top };
  });
  await page.mouse.move(place.left, place.top);
  const tip = page.locator(".tip");
  if (!(await tip.isVisible()) || !(await tip.textContent())) return ["does not say its points"];
  const faults = await overflow(page);
  await page.mouse.move(0, 0);
  return faults.map((fault) => `with a tip it ${fault}`);
}

/** Without script everything is there, and nothing is wider than the page. */
async function withoutScript(browser, file) {
  const context = await browser.newContext({
    javaScriptEnabled: false,
    viewport: { width: 390, height: 900 },
  });
  const page = await context.newPage();
  await page.goto(pathToFileURL(file).href);
  const faults = [];
  if (!(await page.locator("section h2").count())) faults.push("has no sections without script");
  if (await page.locator("th button").count()) faults.push("has buttons without script");
  await context.close();
  return faults;
}

/** A report of a table has at most 300 KB, one with pictures 1 MB. */
function size(file) {
  const most = readFileSync(file, "utf8").includes("data:image/png") ? 1e6 : 3e5;
  const bytes = statSync(file).size;
  return bytes > most ? [`has ${bytes} bytes, more than ${most}`] : [];
}

const files = process.argv.slice(2).map((file) => resolve(file));
if (!files.length) {
  console.error("give the pages to look at: node report.mjs PAGE.html...");
  process.exit(2);
}
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath, args: quiet });
let failed = 0;
for (const file of files) {
  const faults = [...size(file), ...(await withoutScript(browser, file))];
  for (const width of widths) {
    for (const scheme of schemes) {
      const found = await look(browser, file, width, scheme);
      faults.push(...found.map((fault) => `at ${width} pixels, ${scheme}: ${fault}`));
    }
  }
  failed += faults.length;
  console.log(`${file}: ${faults.length ? `${faults.length} faults` : "no faults"}`);
  faults.forEach((fault) => console.log(`  ${fault}`));
}
await browser.close();
process.exit(failed ? 1 : 0);
