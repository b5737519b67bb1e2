// Pictures and tables that leave the page, and addresses that lead back to what was looked at.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { open, ready, sampleDocument, test } from './browser.mjs';

const document_ = sampleDocument();
const [run] = document_.runs;

const kBetweenMs = 110; // Chromium throws away what goes over ten downloads a second

async function saved(page, action) {
  await page.waitForTimeout(kBetweenMs);
  const [download] = await Promise.all([page.waitForEvent('download'), action()]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

/** Width and height that a PNG says. */
const sizeOf = (png) => [png.readUInt32BE(16), png.readUInt32BE(20)];

test('every chart is saved as PNG, as SVG and as the numbers that it draws', async () => {
  const { page, close } = await open(document_);
  const labels = await page.$$eval('.saving', (all) => all.map((buttons) => buttons.firstChild.getAttribute('aria-label').match(/"(.*)"/)[1]));
  assert.ok(labels.length > 8 && ['Timeline', 'Phases', 'Blocks', 'Scopes'].every((label) => labels.includes(label)), labels.join());
  const failed = [];
  for (const [at, label] of labels.entries()) {
    const buttons = page.locator('.saving').nth(at);
    if (!await buttons.isVisible()) continue; // charts of a kind that are made when asked for
    const take = (form) => saved(page, () => buttons.getByText(form, { exact: true }).click());
    const [png, svg, csv] = [await take('PNG'), await take('SVG'), await take('CSV')];
    const [width, height] = sizeOf(png.bytes);
    const lines = csv.bytes.toString().trimEnd().split('\n');
    const marks = svg.bytes.toString().match(/<(path|rect|text)/g) ?? [];
    if (png.bytes.toString('latin1', 1, 4) !== 'PNG' || width < 300 || height < 40 || !svg.bytes.toString().startsWith('<svg') || marks.length < 3 || lines.length < 2) {
      failed.push(`${label}: ${width} x ${height}, ${marks.length} marks, ${lines.length} lines`);
    }
  }
  assert.deepEqual(failed, []);
  await close();
});

test('a saved chart carries its name, its key, and the numbers of the document', async () => {
  const { page, close } = await open(document_);
  const save = (name) => saved(page, () => page.getByRole('button', { name, exact: true }).click());
  const svg = (await save('Save "Phases" as SVG')).bytes.toString();
  for (const text of ['Phases', ...run.phases.map((phase) => phase.phase)]) assert.ok(svg.includes(`>${text}<`), text);
  const csv = await save('Save "Phases" as CSV');
  assert.equal(csv.name, 'Phases.csv');
  const rows = csv.bytes.toString().trimEnd().split('\n');
  assert.equal(rows[0], 'bar,part,amount (s)');
  for (const phase of run.phases) assert.ok(rows.some((row) => row.endsWith(`,${phase.phase},${phase.measured_s}`)), phase.phase);
  const timeline = (await save('Save "Timeline" as CSV')).bytes.toString().trimEnd().split('\n');
  assert.ok(timeline.length > 500 && timeline[0].startsWith('start (s),duration (s),lane,name'));
  const picture = (await save('Save "Timeline" as SVG')).bytes.toString();
  assert.ok(picture.includes('time in step') && picture.split('<rect').length > 200);
  await page.evaluate((text) => { if (new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror')) throw new Error('no XML'); }, picture);
  await close();
});

test('the address leads to the section, the run and the span of time that were looked at', async () => {
  const { page, close } = await open(document_, { reducedMotion: 'reduce' });
  await page.getByLabel('Run', { exact: true }).selectOption('1');
  await page.locator('#timeline').evaluate((element) => element.scrollIntoView());
  const lanes = page.locator('#timeline canvas.lanes');
  const spanOf = () => lanes.evaluate(({ dataset }) => [Number(dataset.from), Number(dataset.to)]);
  await page.getByRole('button', { name: 'Zoom in', exact: true }).click(); // once: a second one would race with the address of the first
  const name = `1-${document_.runs[1].label.replaceAll(/[^A-Za-z0-9.]+/g, '-').replaceAll(/^-+|-+$/g, '')}`;
  await page.waitForFunction((name) => {
    const { from, to } = document.querySelector('#timeline canvas.lanes').dataset;
    return window.location.hash === `#timeline?run=${name}&from=${from}&to=${to}`;
  }, name);
  const [address, span] = [page.url(), await spanOf()];
  await page.goto('about:blank');
  await page.goto(address);
  await ready(page);
  await page.waitForFunction(() => document.querySelector('#timeline canvas.lanes').dataset.from);
  assert.equal(await page.getByLabel('Run', { exact: true }).inputValue(), '1');
  const again = await spanOf();
  again.forEach((time, i) => assert.ok(Math.abs(time - span[i]) <= 1, `${again} for ${span}`));
  const top = () => page.locator('#timeline').evaluate((element) => element.getBoundingClientRect().top);
  assert.ok(Math.abs(await top()) < 120, `${await top()}`);
  await page.locator('nav.contents').getByText('Roofline').click(); // a link within the page keeps the rest
  await page.waitForFunction(() => /^#roofline\?run=1-[^&]+&from=/.test(window.location.hash));
  assert.equal(await page.getByLabel('Run', { exact: true }).inputValue(), '1');
  await page.evaluate(() => { window.location.hash = '#memory?run=0'; }); // as one who pastes an address
  await page.waitForFunction(() => document.querySelector('.settings select').value === '0');
  await close();
});

test('an address that names nothing of the page shows it from the start', async () => {
  const { page, close } = await open(document_);
  const address = page.url().split('#')[0];
  for (const hash of ['#nowhere?run=99&from=5&to=2', '#timeline?from=9999999999999999&to=99999999999999999', '#?run=-1', '#%00?run=1e9']) {
    await page.goto('about:blank');
    await page.goto(`${address}${hash}`);
    await ready(page);
    assert.equal(await page.getByLabel('Run', { exact: true }).inputValue(), '0', hash);
    assert.equal(await page.getByText('could not be drawn').count(), 0);
  }
  await close();
});
