// Charts: the roofline's points and filters, stacks, memory, scopes, and the comparison of two runs.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { open, rowsOf, sampleDocument, test, textsOf } from './browser.mjs';

const document_ = sampleDocument();
const [run] = document_.runs;
const numberIn = (text) => Number(text.replaceAll(/[^\d]/g, ''));
const drawnOps = (page) => page.locator('#roofline .status').innerText().then((text) => numberIn(text.split(' op')[0]));

/** Brings a chart into view and waits until it is drawn. */
async function drawn(page, selector) {
  const chart = page.locator(selector).first();
  await chart.evaluate((element) => element.scrollIntoView({ block: 'center' }));
  await chart.locator('canvas').first().waitFor();
  return chart;
}

test('a click on a point of the roofline opens all its numbers', async () => {
  const { page, close } = await open(document_);
  for (const name of ['blocks', 'phases']) await page.locator('#roofline').getByLabel(name, { exact: true }).uncheck();
  const chart = await drawn(page, '#roofline .chart');
  const [x, y] = await chart.evaluate((element) => element.firstPoint());
  await chart.click({ position: { x, y } });
  const text = await page.getByRole('dialog').innerText();
  const number = Number(text.match(/op\s+#([\d\u202f]+)/)[1].replaceAll(/\D/g, ''));
  const row = run.ops.op.indexOf(number);
  assert.ok(row >= 0 && text.includes(textsOf(run.ops, 'scope')[row]));
  assert.ok(text.includes('time at the roof') && text.includes('FLOP/B') && text.includes('device time'));
  await page.getByRole('button', { name: 'Close details' }).click();
  assert.equal(await page.getByRole('dialog').count(), 0);
  await close();
});

test('filters by phase and class take ops off the roofline', async () => {
  const { page, close } = await open(document_);
  const [classes, phases] = ['class', 'phase'].map((key) => textsOf(run.ops, key));
  assert.equal(await drawnOps(page), run.ops.op.length);
  await page.locator('#roofline').getByLabel('matmul', { exact: true }).uncheck();
  assert.equal(await drawnOps(page), classes.filter((name) => name !== 'matmul').length);
  await page.locator('#roofline').getByLabel('backward', { exact: true }).uncheck();
  assert.equal(await drawnOps(page), classes.filter((name, i) => name !== 'matmul' && phases[i] !== 'backward').length);
  await close();
});

test('the roofline shows ops by what hardware counted, too', async () => {
  const { page, close } = await open(document_);
  const chart = await drawn(page, '#roofline .chart');
  for (const name of ['blocks', 'phases']) await page.locator('#roofline').getByLabel(name, { exact: true }).uncheck();
  const before = await chart.evaluate((element) => element.firstPoint());
  await page.locator('#roofline').getByRole('button', { name: 'Counted, L1' }).click();
  const placed = run.counted.l1_intensity.filter((intensity, i) => intensity > 0 && run.counted.flop_per_s[i] > 0).length;
  assert.equal(await drawnOps(page), placed);
  const [x, y] = await chart.evaluate((element) => element.firstPoint());
  assert.notDeepEqual([x, y], before);
  await chart.click({ position: { x, y } });
  const text = await page.getByRole('dialog').innerText();
  for (const part of ['Counted by the hardware', 'bytes at DRAM', 'warps stalled on', 'bound by', 'what would help']) assert.ok(text.includes(part), part);
  await close();
  const without = await open({ ...document_, runs: [document_.runs[1]] });
  assert.equal(await without.page.locator('#roofline').getByRole('button', { name: /Counted/ }).count(), 0, 'nothing was counted');
  await without.close();
});

test('stacks switch between amounts and shares', async () => {
  const { page, close } = await open(document_);
  const chart = await drawn(page, '#breakdown .chart');
  const picture = () => chart.locator('canvas').first().evaluate((canvas) => canvas.toDataURL());
  const absolute = await picture();
  await page.locator('#breakdown').getByRole('button', { name: '100 %' }).click();
  await page.waitForTimeout(100);
  const shares = await picture();
  assert.notEqual(shares, absolute);
  await page.locator('#breakdown').getByRole('button', { name: 'Bytes' }).click();
  await page.waitForTimeout(100);
  assert.notEqual(await picture(), shares);
  await close();
});

test('no two names in the key of a chart have one colour', async () => {
  const { page, close } = await open(document_);
  const keys = await page.$$eval('#breakdown ul.key', (all) => all.map((key) => [...key.querySelectorAll('.swatch')].map((swatch) => getComputedStyle(swatch).backgroundColor)));
  assert.ok(Math.max(...keys.map((key) => key.length)) >= 15, 'a whole step of GPT-2');
  for (const key of keys) assert.equal(new Set(key).size, key.length, key.join());
  await close();
});

test('the memory timeline names the tensors that hold the bytes', async () => {
  const { page, close } = await open(document_);
  const chart = await drawn(page, '#memory .chart');
  const { width, height } = await chart.boundingBox();
  await chart.hover({ position: { x: width * 0.3, y: height * 0.4 } });
  const tip = page.locator('#memory .tip');
  await tip.waitFor();
  const text = await tip.innerText();
  const op = Number(text.match(/op #([\d\u202f]+)/)[1].replaceAll(/\D/g, ''));
  assert.ok(text.includes(textsOf(run.ops, 'scope')[run.ops.op.indexOf(op)]), 'the op is the one of that number');
  const bytesOf = (name) => text.match(new RegExp(`${name}\\s+([\\d.]+ .?B)`))[1];
  const weights = run.memory.persistent.find(({ role }) => role === 'weight').bytes;
  assert.equal(bytesOf('weight'), `${(weights / 1e6).toPrecision(3)} MB`, 'what persists is counted once');
  const names = new Set(textsOf(run.memory.tensors, 'name'));
  assert.ok(text.split('\n').some((line) => names.has(line.split('\t')[0].trim())), text);
  const [largest] = await rowsOf(page, 'memory');
  assert.ok(names.has(largest.cells[0]));
  await close();
});

test('memory of ops that come again is drawn event by event', async () => {
  const changed = structuredClone(document_);
  const { memory, ops } = changed.runs[0];
  const quarter = memory.events.op.length / 4;
  const twice = [ops.op[0], ops.op[5]];
  memory.events.op = memory.events.op.map((_, event) => twice[Math.floor(event / quarter) % 2]);
  const { page, close } = await open(changed);
  const chart = await drawn(page, '#memory .chart');
  const { width, height } = await chart.boundingBox();
  const seen = [];
  for (const part of [1, 3, 5, 7]) {
    await chart.hover({ position: { x: 74 + (width - 138) * part / 8, y: height * 0.4 } });
    const tip = page.locator('#memory .tip');
    await tip.waitFor();
    await page.waitForTimeout(50);
    seen.push(Number((await tip.innerText()).match(/op #([\d\u202f]+)/)[1].replaceAll(/\D/g, '')));
  }
  assert.deepEqual(seen, [...twice, ...twice]);
  await close();
});

test('scopes zoom by click and by keyboard', async () => {
  const { page, close } = await open(document_);
  const canvas = page.locator('#scopes canvas');
  await canvas.evaluate((element) => element.scrollIntoView({ block: 'center' }));
  await canvas.click({ position: { x: 20, y: 36 } });
  const path = page.locator('#scopes .path');
  assert.match(await path.innerText(), /forward/);
  await canvas.focus();
  await page.keyboard.press('Escape');
  assert.doesNotMatch(await path.innerText(), /forward/);
  for (const key of ['ArrowDown', 'ArrowRight', 'Enter']) await page.keyboard.press(key);
  assert.match(await path.innerText(), /backward/);
  const backward = run.ops.device_s.filter((_, i) => textsOf(run.ops, 'phase')[i] === 'backward').reduce((sum, s) => sum + s, 0);
  assert.ok((await page.locator('#scopes .status').innerText()).includes(`${backward.toPrecision(3)} s`));
  await close();
});

test('two runs are compared, and others can be chosen', async () => {
  const { page, close } = await open(document_);
  const compare = page.locator('#compare');
  const text = await compare.innerText();
  for (const { verdict } of document_.comparison.rows) assert.ok(text.includes(verdict));
  const [said] = document_.comparison.verdicts;
  assert.ok(text.includes(said) && text.indexOf(said) < text.indexOf(document_.comparison.note), 'the verdict first');
  const order = await page.locator('main > section').evaluateAll((sections) => sections.map(({ id }) => id));
  assert.ok(order.indexOf('compare') >= 0 && order.indexOf('compare') < order.indexOf('overview'), 'before what one run does');
  await compare.getByLabel('B', { exact: true }).selectOption({ label: document_.runs[2].label });
  const ratio = document_.runs[2].step.median_s / run.step.median_s;
  const change = ratio < 1 ? `${(100 * (1 - ratio)).toPrecision(3)} % shorter` : `${(100 * (ratio - 1)).toPrecision(3)} % longer`;
  assert.ok((await compare.locator('.verdict').innerText()).includes(change));
  const key = ({ phase, block }) => `${phase} ${block}`;
  const union = new Set([...run.blocks, ...document_.runs[2].blocks].map(key)).size;
  const status = await compare.locator('.table', { has: page.getByRole('grid', { name: 'Blocks of both runs' }) }).locator('.status').innerText();
  assert.equal(numberIn(status), union);
  await close();
});

test('the median stands where it is among the samples, however short steps are', async () => {
  const whole = sampleDocument('--runs', '1');
  const [run] = whole.runs;
  const kShort = 1e-3; // steps of a few milliseconds
  run.samples.seconds = run.samples.seconds.map((value) => value * kShort);
  for (const key of ['median_s', 'ci_low_s', 'ci_high_s']) run.step[key] *= kShort;
  const { page, close } = await open(whole);
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save "Samples in the order they were taken" as SVG' }).click()]);
  const svg = readFileSync(await download.path(), 'utf8');
  const text = await page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue('--text').trim());
  const lines = [...svg.matchAll(/<path d="M[\d.]+ ([\d.]+)L[\d.]+ \1" fill="none" stroke="([^"]+)"/g)].filter(([, , stroke]) => stroke === text).map(([, y]) => Number(y));
  const points = [...svg.matchAll(/transform="matrix\([\d.]+,0,0,[\d.]+,[\d.]+,([\d.]+)\)"/g)].map(([, y]) => Number(y));
  assert.equal(lines.length, 3, `the median and its interval: ${lines}`);
  assert.ok(points.length > 20 && Math.max(...lines) < Math.max(...points) && Math.min(...lines) > Math.min(...points), `${lines} among ${Math.min(...points)} to ${Math.max(...points)}`);
  await close();
});

/** The words of a chart as it is saved, line by line. */
async function textsIn(page, name) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: `Save "${name}" as SVG` }).first().click()]);
  return [...readFileSync(await download.path(), 'utf8').matchAll(/<text[^>]*>([^<]*)</g)].map(([, text]) => text.trim());
}

test('labels of bars, of sizes and of units are whole', async () => {
  const whole = sampleDocument('--runs', '1');
  const sizes = [16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192];
  const points = sizes.map((size) => [size, size / 1e5]);
  const chart = (id, kind, x, y) => ({ id, view: 'kernels', title: id, note: '', kind, x: { title: '', unit: '', log: false, ...x }, y: { title: '', unit: '', log: false, ...y }, series: [{ name: 'step', points }] });
  whole.charts = [chart('Bars', 'bar', { title: 'T' }, { title: 'time', unit: 's' }), chart('Sizes', 'line', { title: 'seq', log: true }, { title: 'time', unit: 's', log: true }),
                  { ...chart('Temperature', 'line', { title: 'time', unit: 's' }, { title: 'temperature', unit: 'C' }), series: [{ name: 'cuda:0', points: points.map(([x]) => [x / 1e3, 40 + x / 10]) }] }];
  const { page, close } = await open(whole);
  const bars = await textsIn(page, 'Bars');
  for (const size of sizes) assert.ok(bars.includes(String(size)), `${size} of ${bars}`);
  const ticks = (await textsIn(page, 'Sizes')).filter((text) => sizes.includes(Number(text)));
  assert.ok(ticks.length >= 6 && ticks.includes('192'), `sizes on the axis: ${ticks}`);
  const temperature = await textsIn(page, 'Temperature');
  assert.ok(temperature.some((text) => /^\d+ °C$/.test(text)) && temperature.some((text) => /ms$/.test(text)) && temperature.includes('time'), `${temperature}`);
  await close();
});

test('each role of the memory has a colour of its own, and each tensor says its layer', async () => {
  const whole = structuredClone(document_);
  const { memory } = whole.runs[0];
  const { tensors } = memory;
  const roles = ['activation', 'gradient', 'activation_gradient', 'workspace', 'scratch', 'statistics', 'mask', 'seed'];
  const at = tensors.names.push(...roles, 'fc1') - roles.length - 1;
  tensors.role = tensors.role.map((role, i) => (tensors.first_op[i] < 0 ? role : at + (i % roles.length)));
  tensors.name = tensors.name.map((name, i) => (tensors.names[tensors.scope[i]] === '' ? name : at + roles.length));
  const { page, close } = await open(whole);
  const key = await page.$$eval('#memory .key li', (all) => all.map((item) => [item.textContent, getComputedStyle(item.querySelector('.swatch')).backgroundColor]));
  assert.ok(roles.every((role) => key.some(([name]) => name === role)), JSON.stringify(key));
  assert.equal(new Set(key.map(([, colour]) => colour)).size, key.length, JSON.stringify(key));
  const chart = await drawn(page, '#memory .chart');
  const { width, height } = await chart.boundingBox();
  await chart.hover({ position: { x: width * 0.5, y: height * 0.4 } });
  const tip = page.locator('#memory .tip');
  await tip.waitFor();
  const names = await tip.locator('th').allInnerTexts();
  assert.ok(names.some((name) => /^h\.\d.*: fc1$/.test(name)) && !names.includes('fc1'), `${names}`);
  await close();
});

test('thousands of samples are there at once', async () => {
  const whole = sampleDocument('--runs', '1');
  const { samples } = whole.runs[0];
  const kSamples = 24_000;
  for (const key of Object.keys(samples)) if (key !== 'names') samples[key] = Array.from({ length: kSamples }, (_, i) => samples[key][i % samples[key].length]);
  samples.step = samples.step.map((_, i) => i);
  const { page, close } = await open(whole);
  const chart = page.locator('#method .chart').first();
  await chart.evaluate((element) => element.scrollIntoView({ block: 'center' }));
  await chart.locator('canvas').first().waitFor();
  const picture = () => chart.locator('canvas').evaluateAll((all) => all.map((canvas) => canvas.toDataURL()));
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const first = await picture();
  await page.waitForTimeout(500);
  assert.deepEqual(await picture(), first);
  await close();
});

test('on a phone the names of ceilings are broken, never cut', async () => {
  const whole = sampleDocument('--runs', '1');
  whole.runs[0].roofs.rates = [{ name: 'matmul burst bf16', value: 766e12 }, { name: 'matmul bf16', value: 707e12 }];
  const { page, close } = await open(whole, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
  await drawn(page, '#roofline .chart');
  const lines = await textsIn(page, 'Roofline: rate against arithmetic intensity');
  assert.ok(lines.includes('matmul burst bf16 766 TFLOP/s,') && lines.includes('matmul bf16 707 TFLOP/s'), `${lines}`);
  await close();
});
