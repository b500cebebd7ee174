// `thinfer watch` in a real browser: what a run shows while it trains and when, keyboard, narrow
// screens, both colour schemes, hostile names, and that nothing is asked of another machine.
//
//   npm install --prefix tests/browser
//   node tests/browser/watch.mjs target/release/thinfer [FOLDER_FOR_PICTURES]
//
// The browser is Chromium: /usr/bin/chromium, or what CHROMIUM names.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const require = createRequire(import.meta.url);
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const SHOWN_WITHIN = 2.0; // seconds after the end of an epoch
const program = resolve(process.argv[2] ?? 'target/release/thinfer');
const pictures = process.argv[3] && resolve(process.argv[3]);
if (pictures) mkdirSync(pictures, { recursive: true });
const place = mkdtempSync(join(tmpdir(), 'thinfer-browser-'));
const children = [];

function start(words) {
  const child = spawn(program, words, { cwd: place, stdio: ['ignore', 'pipe', 'pipe'] });
  child.out = '';
  child.err = '';
  child.stdout.on('data', (data) => { child.out += data; });
  child.stderr.on('data', (data) => { child.err += data; });
  child.ended = new Promise((done) => child.on('exit', (code, signal) => done({ code, signal })));
  children.push(child);
  return child;
}

async function until(what, seconds, message) {
  const end = Date.now() + 1000 * seconds;
  for (;;) {
    const found = await what();
    if (found) return found;
    assert.ok(Date.now() < end, message);
    await new Promise((later) => setTimeout(later, 20));
  }
}

// When each epoch ended, from the event files that the run wrote beside: step -> seconds since 1970.
function epochEnds(run) {
  const folder = join(place, run, 'tensorboard/chain-0');
  const ends = new Map();
  for (const name of readdirSync(folder)) {
    const bytes = readFileSync(join(folder, name));
    for (let at = 0; at < bytes.length;) {
      const length = Number(bytes.readBigUInt64LE(at));
      const event = bytes.subarray(at + 12, at + 12 + length);
      at += 16 + length;
      // wall_time is field 1, a double; step is field 2, a varint, and is missing where it is 0.
      if (event[9] !== 0x10) continue;
      let [step, shift, next] = [0, 0, 10];
      do { step |= (event[next] & 0x7f) << shift; shift += 7; } while (event[next++] & 0x80);
      ends.set(step, event.readDoubleLE(1));
    }
  }
  return ends;
}

async function check(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const told = violations.map((v) => `${v.impact}: ${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`);
  const serious = violations.filter((v) => ['serious', 'critical'].includes(v.impact));
  assert.equal(serious.length, 0, `${what}: ${told.join('; ')}`);
  console.log(`axe, ${what}: ${violations.length ? told.join('; ') : 'no fault'}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(wide <= 0, `${what}: ${wide} pixels too wide`);
}

async function main() {
  mkdirSync(join(place, 'runs'));
  const watch = start(['watch', 'runs', '--port', '0']);
  const url = (await until(() => /http:\S+/.exec(watch.out), 20, `no address: ${watch.err}`))[0];
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const asked = [];
  const trouble = [];
  page.on('request', (request) => asked.push(request.url()));
  page.on('pageerror', (error) => trouble.push(String(error)));
  page.on('console', (message) => { if (message.type() === 'error') trouble.push(message.text()); });
  page.on('dialog', (dialog) => { trouble.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(url);
  await page.getByText('No run is there yet').waitFor();
  console.log('a folder without runs: says so');

  // A run with a hostile name, over at once.
  const hostile = '<img src=x onerror=alert(1)>&"';
  const small = ['--set', 'data.columns=20', '--set', 'data.train_rows=400', '--set', 'data.validation_rows=50',
    '--set', 'data.test_rows=50', '--set', 'train.epochs=300', '--set', 'prune.warm_up_epochs=20',
    '--set', 'prune.freeze_after_epochs=200', '--set', 'chains=2', '--device', 'cpu'];
  const config = resolve(import.meta.dirname, '../../configs');
  const done = start(['train', join(config, 'example1.toml'), ...small, '--out', 'runs/first']);
  assert.equal((await done.ended).code, 0, done.err);
  renameSync(join(place, 'runs/first'), join(place, 'runs', hostile));
  await page.getByText(`runs/${hostile}`).first().waitFor({ timeout: 5000 });
  await page.getByText('finished', { exact: true }).waitFor({ timeout: 5000 });
  assert.equal(await page.locator('img').count(), 0);
  console.log('a hostile name: is text');

  // A run that trains: every epoch is seen when it comes up.
  const seen = new Map();
  await page.exposeFunction('saw', (epoch, at) => { if (!seen.has(epoch)) seen.set(epoch, at); });
  await page.evaluate(() => {
    const look = () => {
      for (const row of document.querySelectorAll('#runs tbody tr')) {
        if (!row.textContent.includes('runs/live')) continue;
        const epoch = /(\d+) of 15/.exec(row.querySelector('[data-label="Epoch"]').textContent);
        if (epoch) globalThis.saw(Number(epoch[1]), Date.now() / 1000);
      }
    };
    new MutationObserver(look).observe(document.querySelector('#runs'), { subtree: true, childList: true, characterData: true });
  });
  const live = start(['train', join(config, 'shapes.toml'), '--set', 'train.epochs=15', '--set', 'data.train_rows=2000', '--set', 'train.tensorboard=true',
    '--device', 'cpu', '--out', 'runs/live']);
  await page.locator('tr', { hasText: 'runs/live' }).getByText('running').waitFor({ timeout: 60000 });
  await until(() => seen.size > 4, 120, 'no epochs came');
  await page.getByRole('img', { name: /Test accuracy/ }).waitFor();
  if (pictures) await page.screenshot({ path: join(pictures, 'watch-1280-light.png') });
  assert.equal((await live.ended).code, 0, live.err);
  await page.locator('tr', { hasText: 'runs/live' }).getByText('finished').waitFor({ timeout: 5000 });
  const ends = epochEnds('runs/live');
  assert.equal(ends.size, 15, 'an event for every epoch');
  let worst = 0;
  for (const [epoch, end] of ends) {
    // An epoch may be over before the one before it was drawn; then a later one stands for it.
    const shown = Math.min(...[...seen].filter(([at]) => at >= epoch).map(([, at]) => at));
    worst = Math.max(worst, shown - end);
  }
  assert.ok(worst <= SHOWN_WITHIN, `an epoch was shown ${worst.toFixed(2)} s after its end`);
  console.log(`epochs: shown at most ${worst.toFixed(2)} s after their end, ${seen.size} of 15 one by one`);

  // Keyboard alone: the slider of a plot reads values, the box of a run hides its curves.
  const slider = page.getByRole('slider', { name: 'Epoch in: Training loss' });
  await slider.focus();
  const last = await slider.getAttribute('aria-valuetext');
  for (let i = 0; i < 5; i++) await page.keyboard.press('ArrowLeft');
  const before = await slider.getAttribute('aria-valuetext');
  assert.notEqual(before, last);
  assert.match(before, /runs\/live at epoch \d+: /);
  const box = page.getByRole('checkbox', { name: /runs\/live/ });
  await box.focus();
  await page.keyboard.press('Space');
  await until(async () => !/runs\/live/.test(await slider.getAttribute('aria-valuetext')), 5, 'the curve stays');
  await page.keyboard.press('Space');
  await until(async () => /runs\/live/.test(await slider.getAttribute('aria-valuetext')), 5, 'the curve is gone');
  await page.getByText('Values as a table').first().click();
  await page.getByRole('columnheader', { name: 'runs/live' }).first().waitFor();
  console.log('keyboard: reads values, hides and shows curves');

  await page.getByText('Values as a table').first().click();
  for (const scheme of ['light', 'dark']) {
    for (const width of [1280, 390]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height: 900 });
      await check(page, `${scheme}, ${width} pixels`);
      if (pictures) {
        const name = `watch-${width}-${scheme}${width === 1280 && scheme === 'light' ? '-over' : ''}.png`;
        await page.screenshot({ path: join(pictures, name), fullPage: true });
      }
    }
  }
  const origin = new URL(url).origin;
  const elsewhere = asked.filter((address) => new URL(address).origin !== origin);
  assert.deepEqual(elsewhere, [], 'only this server is asked');
  assert.deepEqual(trouble, []);
  console.log(`requests: ${asked.length}, all to ${origin}`);

  watch.kill('SIGINT');
  assert.deepEqual(await watch.ended, { code: 0, signal: null }, watch.err);
  await page.getByText('thinfer watch does not answer').waitFor({ timeout: 10000 });
  console.log('Ctrl-C: ends with exit code 0, and the page says so');
  await browser.close();
}

let code = 0;
try {
  await main();
} catch (error) {
  console.error(error);
  code = 1;
}
for (const child of children) child.kill('SIGKILL');
rmSync(place, { recursive: true, force: true });
process.exit(code);
