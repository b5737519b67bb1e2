// Wrong and missing data: one clear message, or a sentence in the place of what is missing.
import assert from 'node:assert/strict';
import { open, sampleDocument, test } from './browser.mjs';

const refused = [
  ['no data', '', /has no data/],
  ['cut off data', '{"schema": 1, "runs": [', /damaged or truncated/],
  ['a list', '[1, 2]', /not a report/],
  ['another schema', '{"schema": 2}', /schema 1; its data says schema 2/],
  ['no schema', '{"title": "x"}', /says schema nothing/],
];
for (const [name, data, message] of refused) {
  test(`says one clear thing about ${name}`, async () => {
    const { page, close } = await open(data);
    assert.match(await page.getByRole('alert').innerText(), message);
    assert.equal(await page.locator('section').count(), 0);
    await close();
  });
}

test('a document without anything says what is not there', async () => {
  const { page, close } = await open({ schema: 1 });
  const text = await page.locator('main').innerText();
  for (const sentence of ['This report has no runs.', 'Memory of this run was not recorded.', 'This run has no ops', 'has no ceilings', 'The environment was not recorded']) {
    assert.ok(text.includes(sentence), sentence);
  }
  assert.ok(!text.includes('could not be drawn') && !text.includes('NaN') && !text.includes('undefined'));
  await close();
});

test('a study of single ops shows its charts and tables alone', async () => {
  const whole = sampleDocument();
  Object.assign(whole, { runs: [], comparison: null });
  const { page, close } = await open(whole);
  assert.deepEqual(await page.locator('main h2').allInnerTexts(),
                   ['Charts', 'Tables', 'Ceilings', 'Method and certainty', 'Environment']);
  assert.deepEqual(await page.getByRole('navigation').getByRole('link').allInnerTexts(),
                   ['Charts', 'Tables', 'Ceilings', 'Method and certainty', 'Environment']);
  assert.ok(await page.locator('#charts canvas, #charts svg').count() > 0);
  assert.equal(await page.getByText('This report has no runs.').count(), 0);
  await close();
});

test('null and wrong parts are left out and said', async () => {
  const whole = sampleDocument();
  const [run] = whole.runs;
  Object.assign(whole, { complete: false, comparison: null, charts: null, tables: 'none', runs: [run] });
  Object.assign(run, { memory: null, step: null, facts: { tokens: null }, status: 'oom' });
  run.phases[0].time = null;
  run.blocks[0] = null;
  run.blocks[1].measured_s = null;
  run.ops.device_s = run.ops.device_s.slice(0, 100);
  run.ops.scope[3] = 99999;
  run.ops.roof_s[4] = null;
  run.samples = { step: [1], seconds: [2] };
  const { page, close } = await open(whole);
  const problems = await page.locator('.problems').innerText();
  for (const part of [/partial/, /"tables" is not a list/, /columns differ in length \(100 to/, /column phase is missing/, /entries of "blocks"/]) assert.match(problems, part);
  const text = await page.locator('main').innerText();
  assert.ok(!text.includes('could not be drawn') && !text.includes('NaN') && !text.includes('undefined'));
  assert.equal(await page.locator('#ops .status').innerText(), '100 rows');
  await close();
});

test('runs of the same label are told apart', async () => {
  const whole = sampleDocument();
  for (const run of whole.runs) run.label = 'same';
  const { page, close } = await open(whole);
  assert.deepEqual(await page.getByLabel('Run', { exact: true }).locator('option').allInnerTexts(), ['same', 'same (2)', 'same (3)']);
  await close();
});

test('memory events may begin with what persists or after it', async () => {
  const whole = sampleDocument();
  const { memory } = whole.runs[0];
  const first = memory.events.op.findIndex((op) => op >= 0);
  const { page, close } = await open(whole);
  const before = await page.locator('#memory .note').first().innerText();
  await close();
  for (const key of Object.keys(memory.events)) memory.events[key] = memory.events[key].slice(first);
  memory.peak_event -= first;
  const after = await open(whole);
  assert.equal(await after.page.locator('#memory .note').first().innerText(), before);
  await after.close();
});

test('text of the document is text, never markup', async () => {
  const whole = sampleDocument();
  const evil = '</script><img src=x onerror="document.title=1"><b>bold</b>';
  whole.title = evil;
  whole.advice[0].text = evil;
  whole.runs[0].label = evil;
  whole.runs[0].ops.names = whole.runs[0].ops.names.map((name) => `${name}${evil}`);
  whole.method.push(evil);
  const { page, close } = await open(whole);
  assert.equal(await page.title(), `${evil} · ${evil}`);
  assert.equal(await page.locator('img, b').count(), 0);
  assert.ok((await page.locator('#method').innerText()).includes(evil));
  await close();
});
