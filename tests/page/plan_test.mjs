// The page of a plan: its numbers first, then what they are made of, the splits that were searched, and a simulated step.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { findings } from './axe.mjs';
import { open, sampleDocument, test } from './browser.mjs';

const kLimit = 85e9;
const axis = (title, unit = '', log = false) => ({ title, unit, log });
const column = (key, unit = '') => ({ key, title: key, unit });

/** A search of three splits with a scaling curve, as rooflm writes one; the sample's runs stand for the ranks. */
function planned() {
  const whole = sampleDocument('--runs', '2');
  const [first, second] = whole.runs;
  const runs = [{ ...first, label: 'all stages' }, { ...second, label: 'every rank' }].map((run, id) => ({ ...run, id, kind: 'plan', status: 'planned', headline: '', samples: {}, step: null, phases: [] }));
  const chart = (id, kind, x, y, series, more = {}) => ({ id, view: id.split('.')[0] === 'plan' ? 'plan_time' : id, title: id, note: '', kind, x, y, series: series.map((one) => ({ line: false, ...one })), ...more });
  const point = (gigabytes, seconds, name) => [gigabytes * 1e9, seconds, null, null, name];
  const frontier = [point(40, 8.2, 'dp=32 tp=4'), point(60, 8, 'dp=64 tp=2')];
  const numbers = [{ what: 'step', value: 8, low: 7, high: 9, unit: 's', kind: 'assumed' }, { what: 'tokens per second', value: 389500, low: 3.4e5, high: 4.4e5, unit: '', kind: 'assumed' },
    { what: 'MFU', value: 0.41, low: 0.36, high: 0.47, unit: 'share', kind: 'assumed' }, { what: 'peak memory per rank', value: 6e10, low: 5.9e10, high: 6.1e10, unit: 'byte', kind: 'calibrated' }];
  const reasons = ['best', '2.5 % slower, mostly bubble (+200 ms)', 'needs 90.0 GB of 85.0 GB'];
  return { ...whole, title: 'Plan: gpt3-175b on 1024 h100-sxm', question: 'Does it fit?', answer: 'It fits: peak memory per rank is 60.0 GB of 85.0 GB.', answers: ['plan_search', 'plan_scaling', 'plan_time', 'plan_memory', 'plan'],
    runs, advice: [], comparison: null, ceilings: [],
    charts: [
      { ...chart('plan.frontier', 'points', axis('memory', 'byte'), axis('time of a step', 's'), [{ name: 'on the frontier', points: frontier }, { name: 'beaten in both', points: [point(70, 9, 'dp=16 tp=8')] }, { name: 'frontier', line: true, points: frontier }]), view: 'plan_search' },
      { ...chart('plan.speed_up', 'line', axis('GPUs', '', true), axis('speed-up', '', true), [{ name: 'planned', points: [[8, 1], [64, 7.9]] }, { name: 'linear', points: [[8, 1], [64, 8]] }]), view: 'plan_scaling' },
      chart('plan.parts', 'stacked', axis('plan'), axis('time of a step', 's'), [{ name: 'compute', points: [['gpt3-175b on 1024 h100-sxm', 5]] }, { name: 'bubble', points: [['gpt3-175b on 1024 h100-sxm', 3]] }]),
      { ...chart('plan.memory', 'stacked', axis('ranks'), axis('memory', 'byte'), [{ name: 'weight', points: [['stage 0', 2e10]] }, { name: 'activation', points: [['stage 0', 4e10]] }], { limit: { y: kLimit, name: 'memory of the device' } }), view: 'plan_memory' }],
    tables: [{ id: 'plan.numbers', view: 'plan', title: 'The plan in numbers', note: '', columns: [column('what'), column('value')], rows: numbers },
      { id: 'plan.search', view: 'plan_search', title: 'Splits that were planned', note: '', columns: [column('step_s', 's'), column('reason')], rows: reasons.map((reason, i) => ({ step_s: i < 2 ? 8 + 0.2 * i : null, reason })) }] };
}

const document_ = planned();
const visible = (page, selector) => page.$$eval(selector, (all) => all.filter((element) => element.checkVisibility()).map((element) => element.innerText));

async function saved(page, name) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name, exact: true }).click()]);
  return readFileSync(await download.path(), 'utf8');
}

test('a plan shows its numbers with interval and kind, and nothing that only a measurement has', async () => {
  const { page, close } = await open(document_);
  assert.deepEqual(await visible(page, 'main h2'), ['The plan', 'Answer', 'Timeline', 'Environment']);
  assert.match(await page.locator('header.top').innerText(), /It fits: peak memory per rank/);
  const tiles = await visible(page, '#plan .tile');
  assert.equal(tiles.length, 4);
  assert.match(tiles[0], /step\s+8\.00 s\s+7\.00 s to 9\.00 s, assumed/);
  assert.match(tiles[1], /tokens per second\s+390 k\s+340 k to 440 k, assumed/);
  assert.match(tiles[3], /60\.0 GB\s+59\.0 GB to 61\.0 GB, calibrated/);
  assert.deepEqual(await visible(page, '#answer h3'), ['plan.frontier', 'plan.speed_up', 'plan.parts', 'plan.memory', 'Splits that were planned']);
  await close();
});

test('points of the frontier say which split they are, under the pointer and in what is saved', async () => {
  const { page, close } = await open(document_);
  const chart = page.locator('#chart-plan\\.frontier .chart');
  await chart.evaluate((element) => element.scrollIntoView({ block: 'center' }));
  await chart.locator('canvas').first().waitFor();
  const svg = await saved(page, 'Save "plan.frontier" as SVG');
  assert.ok(svg.startsWith('<svg'));
  const csv = (await saved(page, 'Save "plan.frontier" as CSV')).trimEnd().split('\n');
  assert.equal(csv[0], 'series,memory (byte),time of a step (s),"time of a step, from (s)","time of a step, to (s)",what');
  assert.match(csv[1], /^on the frontier,40000000000,8\.2,,,dp=32 tp=4$/);
  // The saved picture has the points where the chart has them, below a head with its name and its key.
  const box = await chart.locator('canvas').first().boundingBox();
  const head = Number(svg.match(/^<svg width="[\d.]+" height="([\d.]+)"/)[1]) - box.height;
  const [, x, y] = svg.match(/<path [^>]*transform="matrix\([\d.]+,0,0,[\d.]+,([\d.]+),([\d.]+)\)"/);
  await page.mouse.move(box.x + Number(x), box.y + Number(y) - head);
  const tip = page.locator('#chart-plan\\.frontier .tip');
  await tip.waitFor();
  const text = await tip.innerText();
  assert.match(text, /dp=\d+ tp=\d/);
  await close();
});

test('what a device holds is a line above the bars of memory', async () => {
  const { page, close } = await open(document_);
  await page.locator('#chart-plan\\.memory').scrollIntoViewIfNeeded();
  const svg = await saved(page, 'Save "plan.memory" as SVG');
  assert.ok(svg.includes('memory of the device'), 'named in the picture');
  assert.match(svg, /stroke-dasharray/);
  await close();
});

test('the address names the ranks whose step is looked at', async () => {
  const { page, close } = await open(document_);
  await page.getByLabel('Run', { exact: true }).selectOption('1');
  await page.waitForFunction(() => location.hash.includes('run=1'));
  const lanes = page.locator('#timeline canvas.lanes');
  await lanes.focus();
  await page.keyboard.press('ArrowRight');
  const event = page.locator('#timeline .event');
  await event.getByRole('button').first().waitFor();
  assert.equal(await event.locator('a').count(), 0, 'no link leads to a section that is not there');
  assert.equal((await visible(page, 'main h2'))[0], 'The plan');
  await close();
});

test('a plan that does not fit has no step to show', async () => {
  const { page, close } = await open({ ...document_, runs: [], answer: 'It does not fit.' });
  assert.deepEqual(await visible(page, 'main h2'), ['The plan', 'Answer', 'Environment']);
  assert.doesNotMatch(await page.locator('main').innerText(), /has no runs/);
  await close();
});

for (const [where, width] of [['a desk', 1400], ['a phone', 390]]) {
  for (const colorScheme of ['light', 'dark']) {
    test(`axe-core finds nothing on the page of a plan on ${where}, ${colorScheme}`, async () => {
      const { page, close } = await open(document_, { viewport: { width, height: 900 }, colorScheme });
      assert.deepEqual(await findings(page), []);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), 'nothing is wider than the page');
      await close();
    });
  }
}
