// A run of 100 000 ops: everything works on it. Times are printed, not judged: machines differ.
import assert from 'node:assert/strict';
import { open, rowsOf, sampleDocument, startedSample, startSample, test } from './browser.mjs';

const kOps = 100_000;
const kLarge = ['--ops', String(kOps), '--runs', '1'];
startSample(...kLarge); // takes as long as a dozen tests

/** Scrolls the table of ops to its end in 60 frames; the milliseconds of each frame. */
const scrollFrames = (page) => page.locator('#ops .grid').evaluate((grid) => new Promise((done) => {
  const [frames, kFrames] = [[], 60];
  let before = performance.now();
  const frame = (now) => {
    frames.push(now - before);
    before = now;
    grid.scrollTop = (grid.scrollHeight * frames.length) / kFrames;
    if (frames.length <= kFrames) requestAnimationFrame(frame);
    else done(frames.slice(1).sort((a, b) => a - b));
  };
  requestAnimationFrame(frame);
}));

async function timed(what, action) {
  const start = performance.now();
  await action();
  console.log(`# ${what}: ${(performance.now() - start).toFixed(0)} ms`);
}

test('a gpt2 step is there soon', async () => {
  const { page, close } = await open(sampleDocument(), { fresh: true });
  const { overview, all } = await page.evaluate(() => ({ overview: performance.getEntriesByName('overview')[0].startTime, all: performance.getEntriesByName('all')[0].startTime }));
  console.log(`# gpt2: overview after ${overview.toFixed(0)} ms, all sections after ${all.toFixed(0)} ms`);
  assert.ok(overview > 0 && all >= overview);
  await close();
});

test('100 000 ops: opened, scrolled, searched, sorted, drawn', async () => {
  const whole = await startedSample(...kLarge);
  const { ops } = whole.runs[0];
  assert.ok(ops.op.length >= kOps);
  const { page, close } = await open(whole, { fresh: true });
  const { overview, all } = await page.evaluate(() => ({ overview: performance.getEntriesByName('overview')[0].startTime, all: performance.getEntriesByName('all')[0].startTime }));
  console.log(`# ${ops.op.length} ops: overview after ${overview.toFixed(0)} ms, all sections after ${all.toFixed(0)} ms`);
  await page.locator('#ops .grid').evaluate((grid) => grid.scrollIntoView());
  const frames = await scrollFrames(page);
  console.log(`# scrolling through all rows: median frame ${frames[frames.length >> 1].toFixed(1)} ms, longest ${frames.at(-1).toFixed(1)} ms`);
  const least = ops.device_s.reduce((a, b) => Math.min(a, b));
  assert.equal(ops.device_s[(await rowsOf(page, 'ops')).at(-1).row], least);
  assert.ok(await page.locator('#ops .row').count() < 100, 'only the rows in view exist');
  await timed('search', () => page.locator('#ops input[type=search]').fill('h.7/attention'));
  await timed('sort by scope', () => page.locator('#ops').getByRole('columnheader', { name: 'scope' }).getByRole('button').click());
  const chart = page.locator('#roofline .chart');
  await chart.evaluate((element) => element.scrollIntoView({ block: 'center' }));
  await timed('roofline drawn', () => chart.locator('canvas').first().waitFor());
  await timed('roofline filtered', () => page.locator('#roofline').getByLabel('matmul', { exact: true }).uncheck());
  const { width, height } = await chart.boundingBox();
  await timed('pointer over the roofline', () => page.mouse.move(width / 2, height / 2, { steps: 10 }));
  await close();
});
