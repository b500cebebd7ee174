// Draws the runs that the server of `thinfer watch` knows, and asks it for news. Every name comes in
// as text: nothing here makes HTML out of it.
'use strict';

const EVERY = 500; // milliseconds between two questions
const WHEN_HIDDEN = 5000;
const SHOWN_AT_FIRST = 6;
const SVG = 'http://www.w3.org/2000/svg';
const SIZE = { width: 420, height: 220, left: 56, right: 10, top: 10, bottom: 26 };

const PLOTS = [
  { key: 'loss', title: 'Training loss', log: true },
  { key: 'accuracy', title: 'Test accuracy', percent: true },
  { key: 'nll', title: 'Test negative log-likelihood', log: true },
  { key: 'pruned', title: 'Pruned share of all parameters', percent: true, from: 0 },
  { key: 'inputs', title: 'Inputs that the network reads', log: true, varies: true },
  { key: 'temperature', title: 'Temperature of the injected noise, times N', log: true },
  { key: 'rhat', title: 'R-hat of predictions after each stage', log: true },
];
const WORDS = {
  running: 'running', evaluating: 'evaluating', finished: 'finished', stopped: 'stopped',
  failed: 'failed', unreadable: 'cannot be read',
};

const byId = (id) => document.getElementById(id);
const runs = new Map(); // id -> { summary, row, shown, color, curves, version }
const plots = new Map(); // key -> plot
let colors = 0;
let said = '';
let drawn = null; // what the plots show

function element(name, attributes = {}, text) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function svg(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function number(value) {
  if (value === null || value === undefined) return '';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2).replace(/\.?0+e/, 'e');
  return value.toLocaleString('en', { maximumSignificantDigits: 4 });
}

const percent = (value) => (value === null || value === undefined ? '' : `${(100 * value).toFixed(1)} %`);

function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

// As `in_words` of the program says it.
function timeLeft({ seconds, at_most: atMost, to_check: check, known_in: known }) {
  if (typeof known === 'number') return `time left known in ${duration(known)}`;
  if (typeof check === 'number') return `check in ${duration(check)}, at most ${duration(seconds)} left`;
  return atMost ? `at most ${duration(seconds)} left` : `${duration(seconds)} left`;
}

const line = (color) => `c${color % 8} d${Math.floor(color / 8) % 3}`;

function swatch(color) {
  const drawn = svg('svg', { class: 'swatch', viewBox: '0 0 22 10', 'aria-hidden': 'true' });
  drawn.append(svg('line', { x1: 0, y1: 5, x2: 22, y2: 5, 'stroke-width': 3, class: line(color) }));
  return drawn;
}

// ---- the table of runs

function makeRow(id, summary, shown) {
  const run = { id, summary, shown, color: colors++, curves: null, version: null };
  const row = element('tr');
  const head = element('th', { scope: 'row' });
  const label = element('label', { class: 'run' });
  const box = element('input', { type: 'checkbox' });
  box.checked = shown;
  box.addEventListener('change', () => {
    run.shown = box.checked;
    refresh();
  });
  const words = element('span');
  const name = element('span');
  const about = element('span', { class: 'about' });
  words.append(name, about);
  label.append(box, swatch(run.color), words);
  head.append(label);
  row.append(head);
  const cells = {};
  for (const key of ['State', 'Epoch', 'Loss', 'Test', 'Pruned', 'T × N', 'R-hat', 'Time']) {
    cells[key] = element('td', { 'data-label': key });
    row.append(cells[key]);
  }
  const state = element('span', { class: 'state' });
  const why = element('span', { class: 'why' });
  const stateBox = element('span');
  stateBox.append(state, why);
  cells.State.append(stateBox);
  const epoch = element('span');
  const bar = element('progress', { max: 1, 'aria-label': 'share of the steps that is done' });
  const epochBox = element('span');
  epochBox.append(epoch, bar);
  cells.Epoch.append(epochBox);
  Object.assign(run, { row, name, about, state, why, epoch, bar, cells });
  return run;
}

function fillRow(run) {
  const { summary } = run;
  setText(run.name, summary.name);
  setText(run.about, summary.about);
  setText(run.state, WORDS[summary.state] || summary.state);
  run.state.className = `state ${summary.state}`;
  setText(run.why, summary.message || '');
  run.why.hidden = !summary.message;
  setText(run.epoch, summary.epochs ? `${summary.epoch} of ${summary.epochs}` : '');
  const busy = summary.state === 'running';
  run.bar.hidden = !busy;
  if (busy) run.bar.value = summary.done ?? summary.epoch / Math.max(1, summary.epochs);
  const fill = (key, text) => {
    const cell = run.cells[key];
    setText(cell, text);
    cell.classList.toggle('empty', text === '');
  };
  fill('Loss', number(summary.loss));
  const test = summary.metric;
  fill('Test', test ? `${test.name} ${test.percent ? percent(test.value) : number(test.value)}` : '');
  fill('Pruned', percent(summary.pruned));
  fill('T × N', number(summary.temperature));
  fill('R-hat', summary.rhat ? summary.rhat.toFixed(2) : '');
  let time = '';
  if (busy && summary.left) time = timeLeft(summary.left);
  else if (busy) time = 'time left not known yet';
  else if (summary.seconds) time = `took ${duration(summary.seconds)}`;
  fill('Time', time);
}

function order(list) {
  const body = byId('runs').tBodies[0];
  const focused = document.activeElement;
  let at = body.firstElementChild;
  for (const { id } of list) {
    const { row } = runs.get(id);
    if (row !== at) body.insertBefore(row, at);
    at = row.nextElementSibling;
  }
  if (focused && focused !== document.activeElement) focused.focus();
}

function tell(list) {
  const counts = {};
  for (const { state } of list) counts[state] = (counts[state] || 0) + 1;
  const parts = Object.entries(counts).map(([state, count]) => `${count} ${WORDS[state] || state}`);
  const text = list.length ? parts.join(', ') : 'No run yet';
  byId('news').classList.remove('lost');
  // A screen reader says what changed, so the same words are not written again.
  if (text !== said) setText(byId('news'), text);
  said = text;
}

// ---- plots

function ticks(low, high, log) {
  if (log) {
    const found = [];
    for (let p = Math.floor(low); p <= Math.ceil(high); p++) {
      for (const m of high - low > 2.5 ? [1] : [1, 2, 5]) found.push(p + Math.log10(m));
    }
    const inside = found.filter((t) => t >= low - 1e-9 && t <= high + 1e-9);
    const each = Math.ceil(inside.length / 6);
    return inside.filter((_, i) => i % each === 0);
  }
  const rough = (high - low) / 5 || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough);
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) found.push(t);
  return found;
}

function makePlot(what) {
  const box = element('figure', { class: 'plot', 'aria-labelledby': `title-${what.key}` });
  const title = element('h3', { id: `title-${what.key}` }, what.title);
  const drawing = svg('svg', { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: 'img' });
  const slider = element('input', { type: 'range', min: 0, max: 1, 'aria-label': `Epoch in: ${what.title}` });
  const readout = element('ul', { 'aria-label': `Values: ${what.title}` });
  const details = element('details');
  const values = element('div', { class: 'values', tabindex: '0', role: 'region' });
  values.setAttribute('aria-label', `Table: ${what.title}`);
  details.append(element('summary', {}, 'Values as a table'), values);
  box.append(title, drawing, slider, readout, details);
  const plot = { what, box, drawing, slider, readout, details, values, at: null, series: [], scale: null };
  const move = () => {
    plot.at = Number(slider.value) >= Number(slider.max) ? null : Number(slider.value);
    read(plot);
  };
  slider.addEventListener('input', move);
  drawing.addEventListener('pointermove', (event) => {
    if (!plot.scale) return;
    const place = drawing.getBoundingClientRect();
    const x = ((event.clientX - place.left) / place.width) * SIZE.width;
    const share = (x - SIZE.left) / (SIZE.width - SIZE.left - SIZE.right);
    slider.value = Math.round(plot.scale.first + share * (plot.scale.last - plot.scale.first));
    move();
  });
  details.addEventListener('toggle', () => fillTable(plot));
  return plot;
}

// The curves of one kind, of the runs that are shown.
function seriesOf(what) {
  const found = [];
  for (const run of runs.values()) {
    if (!run.shown || !run.curves) continue;
    run.curves.chains.forEach((chain) => {
      const heights = chain[what.key];
      if (!heights) return;
      const points = [];
      heights.forEach((y, i) => {
        if (y !== null && Number.isFinite(y)) points.push([chain.epoch[i], y]);
      });
      if (points.length) found.push({ run, chain: chain.chain, many: run.curves.chains.length > 1, points });
    });
    if (what.key === 'rhat' && run.curves.agreed.length) {
      found.push({ run, chain: 0, many: false, points: run.curves.agreed });
    }
  }
  return found;
}

function draw(plot) {
  const { what, drawing } = plot;
  const all = plot.series.flatMap((series) => series.points);
  const ys = all.map((point) => point[1]);
  let low = ys.reduce((a, b) => Math.min(a, b), Infinity);
  let high = ys.reduce((a, b) => Math.max(a, b), -Infinity);
  const log = Boolean(what.log) && low > 0 && high / low > 8;
  if (what.from !== undefined) low = Math.min(low, what.from);
  if (log) [low, high] = [Math.log10(low), Math.log10(high)];
  const room = high > low ? 0.04 * (high - low) : Math.abs(high) * 0.1 || 0.5;
  high += room;
  if (what.from === undefined || low < what.from) low -= room;
  const first = all.reduce((a, p) => Math.min(a, p[0]), Infinity);
  const last = Math.max(first + 1, all.reduce((a, p) => Math.max(a, p[0]), -Infinity));
  const width = SIZE.width - SIZE.left - SIZE.right;
  const height = SIZE.height - SIZE.top - SIZE.bottom;
  const x = (epoch) => SIZE.left + ((epoch - first) / (last - first)) * width;
  const y = (value) => SIZE.top + (1 - ((log ? Math.log10(value) : value) - low) / (high - low)) * height;
  plot.scale = { first, last, x };
  const parts = [svg('title', {}, describe(plot))];
  for (const tick of ticks(low, high, log)) {
    const value = log ? 10 ** tick : tick;
    const at = SIZE.top + (1 - (tick - low) / (high - low)) * height;
    parts.push(svg('line', { class: 'grid', x1: SIZE.left, x2: SIZE.width - SIZE.right, y1: at, y2: at }));
    const shown = what.percent ? `${number(100 * value)} %` : number(value);
    parts.push(svg('text', { x: SIZE.left - 6, y: at + 4, 'text-anchor': 'end' }, shown));
  }
  for (const tick of ticks(first, last, false).filter((t) => Number.isInteger(t))) {
    const anchor = x(tick) > SIZE.width - 40 ? 'end' : 'middle';
    parts.push(svg('text', { x: x(tick), y: SIZE.height - 8, 'text-anchor': anchor }, String(tick)));
  }
  for (const { run, many, points } of plot.series) {
    const path = points.map((p, i) => `${i ? 'L' : 'M'}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join('');
    const dot = points.length === 1 ? 'h.01' : '';
    const attributes = { d: path + dot, class: line(run.color), 'stroke-linecap': 'round' };
    if (many) attributes['stroke-opacity'] = 0.75;
    parts.push(svg('path', attributes));
  }
  plot.cursor = svg('line', { class: 'cursor', y1: SIZE.top, y2: SIZE.top + height, x1: 0, x2: 0 });
  parts.push(plot.cursor);
  drawing.replaceChildren(...parts);
  plot.slider.min = first;
  plot.slider.max = last;
  if (plot.at === null) plot.slider.value = last;
  read(plot);
  if (plot.details.open) fillTable(plot);
}

function nearest(points, epoch) {
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (points[middle][0] <= epoch) low = middle;
    else high = middle - 1;
  }
  return points[low];
}

const shownValue = (plot, value) => (plot.what.percent ? percent(value) : number(value));
const nameOf = (series) => (series.many ? `${series.run.summary.name}, chain ${series.chain}` : series.run.summary.name);

function read(plot) {
  const epoch = plot.at ?? plot.scale.last;
  plot.cursor.setAttribute('x1', plot.scale.x(epoch));
  plot.cursor.setAttribute('x2', plot.scale.x(epoch));
  plot.cursor.setAttribute('visibility', plot.at === null ? 'hidden' : 'visible');
  const lines = plot.series.slice(0, 12).map((series) => {
    const [at, value] = nearest(series.points, epoch);
    return { series, text: `${shownValue(plot, value)}`, at };
  });
  plot.readout.replaceChildren(...lines.map(({ series, text, at }) => {
    const item = element('li');
    item.append(swatch(series.run.color), element('span', {}, `${nameOf(series)}, epoch ${at}`), element('b', {}, text));
    return item;
  }));
  const spoken = lines.map(({ series, text, at }) => `${nameOf(series)} at epoch ${at}: ${text}`).join('; ');
  plot.slider.setAttribute('aria-valuetext', spoken);
}

function describe(plot) {
  const parts = plot.series.slice(0, 12).map((series) => {
    const [, first] = series.points[0];
    const [epoch, last] = series.points[series.points.length - 1];
    return `${nameOf(series)}: from ${shownValue(plot, first)} to ${shownValue(plot, last)} at epoch ${epoch}`;
  });
  return `${plot.what.title}. ${parts.join('. ')}`;
}

function fillTable(plot) {
  if (!plot.details.open) return;
  const table = element('table');
  const head = element('tr');
  head.append(element('th', { scope: 'col' }, 'Epoch'));
  plot.series.forEach((series) => head.append(element('th', { scope: 'col' }, nameOf(series))));
  const header = element('thead');
  header.append(head);
  const epochs = [...new Set(plot.series.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => b - a);
  const body = element('tbody');
  const maps = plot.series.map((series) => new Map(series.points));
  for (const epoch of epochs.slice(0, 200)) {
    const row = element('tr');
    row.append(element('th', { scope: 'row' }, String(epoch)));
    maps.forEach((map) => row.append(element('td', {}, map.has(epoch) ? shownValue(plot, map.get(epoch)) : '')));
    body.append(row);
  }
  table.append(header, body);
  plot.values.replaceChildren(table);
}

function drawAll() {
  const shown = [...runs.values()].filter((run) => run.shown);
  byId('key').replaceChildren(...shown.map((run) => {
    const item = element('li');
    item.append(swatch(run.color), element('span', {}, run.summary.name));
    return item;
  }));
  for (const what of PLOTS) {
    const series = seriesOf(what);
    const flat = what.varies && new Set(series.flatMap((s) => s.points.map((p) => p[1]))).size < 2;
    let plot = plots.get(what.key);
    if (!series.length || flat) {
      if (plot) plot.box.hidden = true;
      continue;
    }
    if (!plot) {
      plot = makePlot(what);
      plots.set(what.key, plot);
      const next = PLOTS.slice(PLOTS.indexOf(what) + 1).map((p) => plots.get(p.key)).find(Boolean);
      byId('plots').insertBefore(plot.box, next ? next.box : null);
    }
    plot.box.hidden = false;
    plot.series = series;
    draw(plot);
  }
}

// ---- news

async function ask(path) {
  const answer = await fetch(path, { cache: 'no-store' });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

let busy = null;

function refresh() {
  busy = (busy || Promise.resolve()).then(update, update);
  return busy;
}

async function update() {
  const { runs: list } = await ask('/api/runs');
  const there = new Set(list.map(({ id }) => id));
  for (const [id, run] of runs) {
    if (!there.has(id)) {
      run.row.remove();
      runs.delete(id);
    }
  }
  let shown = [...runs.values()].filter((run) => run.shown).length;
  for (const summary of list) {
    if (!runs.has(summary.id)) {
      runs.set(summary.id, makeRow(summary.id, summary, shown < SHOWN_AT_FIRST));
      shown += 1;
    }
    const run = runs.get(summary.id);
    run.summary = summary;
    fillRow(run);
  }
  byId('runs').hidden = !list.length;
  byId('none').hidden = list.length > 0;
  order(list);
  const stale = [...runs.values()].filter((run) => run.shown && run.version !== run.summary.version);
  await Promise.all(stale.map(async (run) => {
    const { version } = run.summary;
    run.curves = await ask(`/api/runs/${run.id}`);
    run.version = version;
  }));
  tell(list);
  const shows = [...runs.values()].filter((run) => run.shown);
  const picture = shows.map((run) => `${run.id} ${run.version} ${run.summary.name}`).join('\n');
  if (picture !== drawn) drawAll();
  drawn = picture;
}

async function keepAsking() {
  try {
    await refresh();
  } catch {
    const text = 'thinfer watch does not answer. What is shown is old; start it again to go on.';
    setText(byId('news'), text);
    byId('news').classList.add('lost');
    said = text;
  }
  setTimeout(keepAsking, document.hidden ? WHEN_HIDDEN : EVERY);
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) refresh().catch(() => {});
});
keepAsking();
