// Pages of several runs: the question and what answers it come first, and single runs wait behind a click.
import assert from 'node:assert/strict';
import { open, ready, sampleDocument, test } from './browser.mjs';

const kScreen = 900;

/** A study of thirteen runs over T, with a chart and a table that answer it and others of single runs. */
function study() {
  const whole = sampleDocument();
  const [run] = whole.runs;
  whole.answers = ['scaling', 'growth'];
  whole.runs = Array.from({ length: 13 }, (_, i) => ({ ...run, id: i, label: `T=${64 * (i + 1)}` }));
  whole.advice = [];
  whole.comparison = null;
  const x = { title: 'T', unit: '', log: false };
  const chart = (view, title) => ({ id: title.replaceAll(/\W/g, '_'), view, title, note: '', kind: 'line', x, y: { title: 'time', unit: 's', log: false },
                                    series: [{ name: 'step', points: whole.runs.map((_, i) => [64 * (i + 1), 0.01 * (i + 1)]) }] });
  whole.charts = [chart('growth', 'Time against T'), ...whole.runs.map(({ label }) => chart('saved', `Saved: ${label}`)), chart('scaling', 'Blocks over T: B=4')];
  const table = (view, title) => ({ id: view, view, title, note: '', columns: [{ key: 'block', title: 'block', unit: '' }], rows: [{ block: 'ln1' }] });
  whole.tables = [table('instances', 'Instances'), table('scaling', 'Blocks')];
  return whole;
}

const visible = (page, selector) => page.$$eval(selector, (all) => all.filter((element) => element.checkVisibility()).map((element) => element.innerText));

test('a study shows its question, its answer and what it goes through, in fewer than eight screens', async () => {
  const whole = study();
  const { page, close } = await open(whole, { viewport: { width: 1100, height: kScreen } });
  assert.ok((await page.locator('header.top').innerText()).includes(whole.question) && (await page.locator('header.top').innerText()).includes(whole.answer));
  const [text, pickers] = await Promise.all(['.answer', '.settings'].map((selector) => page.locator(`header.top ${selector}`).boundingBox()));
  assert.ok(text.width > 700 && text.y >= pickers.y + pickers.height, 'the answer goes on below the pickers');
  assert.deepEqual(await visible(page, 'main h2'), ['Answer', 'Runs', 'One run, taken apart', 'Further views', 'How it was measured']);
  assert.deepEqual(await visible(page, '#answer h3'), ['Blocks over T: B=4', 'Time against T', 'Blocks'], 'in the order of the study');
  assert.ok(await page.evaluate(() => document.body.scrollHeight) < 8 * kScreen);
  assert.equal(await page.locator('#timeline canvas').count(), 0, 'what nobody asked for is not drawn');
  await close();
});

test('thirteen runs of no study fit in eight screens, too', async () => {
  const whole = { ...study(), question: '', answer: '', answers: [] };
  const { page, close } = await open(whole);
  assert.deepEqual(await visible(page, 'main h2'), ['From run to run', 'Runs', 'Phases and blocks', 'One run, taken apart', 'Further views', 'How it was measured']);
  assert.ok(!/answer/i.test(await page.locator('#answer > p').first().innerText()), 'nobody asked anything');
  assert.ok(await page.evaluate(() => document.body.scrollHeight) < 8 * kScreen);
  await close();
});

test('a click on a run, on a link or on a title brings what waits; an address, too', async () => {
  const { page, close } = await open(study());
  await page.locator('#runs .row').nth(4).click();
  await page.waitForFunction(() => document.querySelector('#overview').checkVisibility());
  assert.equal(await page.getByLabel('Run', { exact: true }).inputValue(), '4');
  assert.ok((await page.locator('#overview').innerText()).length > 200);
  await page.locator('#timeline canvas.lanes').waitFor();
  await page.locator('nav.contents').getByText('Charts', { exact: true }).click();
  assert.equal(await page.locator('#charts h3').first().innerText(), `Saved: ${'T=64'}`);
  await page.locator('#measured summary').first().click();
  assert.ok(await page.locator('#environment').isVisible());
  await page.locator('#measured summary').first().click();
  assert.ok(!await page.locator('#environment').isVisible());
  const address = page.url().split('#')[0];
  await page.goto('about:blank');
  await page.goto(`${address}#roofline?run=2`);
  await ready(page);
  await page.waitForFunction(() => document.querySelector('#roofline').checkVisibility());
  assert.equal(await page.getByLabel('Run', { exact: true }).inputValue(), '2');
  await close();
});

test('two runs of a study fold, a study of one run does not', async () => {
  const whole = study();
  const two = await open({ ...whole, runs: whole.runs.slice(0, 2) });
  assert.equal(await two.page.locator('details.group').count(), 3);
  await two.close();
  const one = await open({ ...whole, runs: whole.runs.slice(0, 1) });
  assert.equal(await one.page.locator('details.group').count(), 0);
  assert.ok(await one.page.locator('#timeline').isVisible());
  await one.close();
});
