// Tables: sorting, search, filters, the keyboard and the details panel.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { open, rowsOf, sampleDocument, test, textsOf } from './browser.mjs';

const document_ = sampleDocument();
const { ops } = document_.runs[0];
const digitsOf = (text) => text.replaceAll(/[^\d ]/g, '').trim();

test('a heading sorts, and sorts the other way round when it is used again', async () => {
  const { page, close } = await open(document_);
  const ranked = ops.op.map((_, i) => i).sort((a, b) => ops.bytes[b] - ops.bytes[a] || a - b);
  const heading = page.locator('#ops').getByRole('columnheader', { name: 'bytes' });
  await heading.getByRole('button').click();
  assert.equal(await heading.getAttribute('aria-sort'), 'descending');
  assert.deepEqual((await rowsOf(page, 'ops')).slice(0, 10).map(({ row }) => row), ranked.slice(0, 10));
  await heading.getByRole('button').click();
  assert.equal(await heading.getAttribute('aria-sort'), 'ascending');
  const [first] = await rowsOf(page, 'ops');
  assert.equal(ops.bytes[first.row], Math.min(...ops.bytes));
  const scope = page.locator('#ops').getByRole('columnheader', { name: 'scope' }).getByRole('button');
  await scope.click();
  await page.locator('#ops input[type=search]').fill('attention/qkv');
  const scopes = (await rowsOf(page, 'ops')).map(({ row }) => textsOf(ops, 'scope')[row]);
  assert.ok(scopes.every((name, i) => i === 0 || Number(scopes[i - 1].match(/\d+/)) <= Number(name.match(/\d+/))), 'h.2 before h.10');
  await close();
});

test('search and filters keep the rows that match all of them', async () => {
  const { page, close } = await open(document_);
  const [scopes, phases, kinds] = ['scope', 'phase', 'kind'].map((key) => textsOf(ops, key));
  await page.locator('#ops input[type=search]').fill('h.3/ matmul');
  const found = scopes.filter((scope, i) => scope.includes('h.3/') && kinds[i] === 'matmul').length;
  assert.equal(digitsOf(await page.locator('#ops .status').innerText()).split(' ')[0], String(found));
  await page.locator('#ops').getByLabel('phase').selectOption({ label: 'backward' });
  const both = scopes.filter((scope, i) => scope.includes('h.3/') && kinds[i] === 'matmul' && phases[i] === 'backward').length;
  assert.ok(both > 0 && both < found);
  assert.equal(digitsOf(await page.locator('#ops .status').innerText()).split(' ')[0], String(both));
  await page.locator('#ops input[type=search]').fill('no such op');
  assert.equal(await page.locator('#ops').getByText('No row matches.').isVisible(), true);
  await page.locator('#ops input[type=search]').press('Escape');
  assert.equal(await page.locator('#ops input[type=search]').inputValue(), '');
  await close();
});

test('the keyboard alone: / to search, arrows to walk, Enter for details, Esc back', async () => {
  const { page, close } = await open(document_);
  await page.locator('#ops').scrollIntoViewIfNeeded();
  await page.locator('#ops .table').evaluate((table) => table.scrollIntoView());
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Search Ops');
  await page.keyboard.type('lm_head');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const active = page.locator('#ops .row.active');
  const row = Number(await active.getAttribute('data-row'));
  assert.equal(await page.locator('#ops [role=grid]').getAttribute('aria-activedescendant'), await active.getAttribute('id'));
  await page.keyboard.press('Enter');
  const details = page.getByRole('dialog');
  assert.ok((await details.innerText()).includes(textsOf(ops, 'scope')[row]));
  assert.ok((await details.innerText()).includes(`#${ops.op[row].toLocaleString('en-US').replaceAll(',', '\u202f')}`));
  await page.keyboard.press('Escape');
  assert.equal(await details.count(), 0);
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('role')), 'grid');
  await page.keyboard.press('End');
  assert.ok(Number(await active.getAttribute('data-place')) > 0);
  await close();
});

test('headings are reached and used by the keyboard', async () => {
  const { page, close } = await open(document_);
  await page.locator('#ops .grid').focus();
  await page.keyboard.press('Tab');
  for (let i = 0; i < 3; ++i) await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('#ops').getByRole('columnheader', { name: 'phase' }).getAttribute('aria-sort'), 'ascending');
  const [first] = await rowsOf(page, 'ops');
  assert.equal(textsOf(ops, 'phase')[first.row], 'backward');
  assert.equal(await page.getByRole('dialog').count(), 0);
  await page.keyboard.press('ArrowDown');
  assert.equal(await page.locator('#ops .row.active').getAttribute('data-place'), '0');
  await close();
});

test('kernels are summed up with the columns of nsys', async () => {
  const { page, close } = await open(document_);
  const heads = await page.locator('#kernels').getByRole('columnheader').allInnerTexts();
  assert.deepEqual(heads.map((head) => head.replace(/[^A-Za-z ]/g, '').trim()), ['Time', 'Total time', 'Instances', 'Avg', 'Med', 'Min', 'Max', 'StdDev', 'Name', 'Phase', 'Launches']);
  const { kernels } = document_.runs[0];
  const rows = await rowsOf(page, 'kernels');
  assert.ok(rows.length > 0 && rows.length <= kernels.length);
  for (const { row, cells } of rows) {
    assert.equal(cells[8], kernels[row].name);
    assert.equal(cells[2].replaceAll(/\D/g, ''), String(kernels[row].instances), 'instances are executions, as the document says');
  }
  await close();
});

test('rows are saved as CSV in SI base units', async () => {
  const { page, close } = await open(document_);
  const [download] = await Promise.all([page.waitForEvent('download'), page.locator('#blocks').getByRole('button', { name: 'CSV' }).click()]);
  const lines = readFileSync(await download.path(), 'utf8').trim().split('\n');
  assert.equal(lines.length, document_.runs[0].blocks.length + 1);
  assert.ok(lines[0].startsWith('block,phase,measured (s)'));
  const largest = Math.max(...document_.runs[0].blocks.map((block) => block.measured_s));
  assert.equal(Number(lines[1].split(',')[2]), largest);
  await close();
});

test('an op is found by the number that pictures name it by', async () => {
  const { page, close } = await open(document_);
  const row = 307;
  for (const written of [String(ops.op[row]), `#${ops.op[row]}`]) {
    await page.locator('#ops input[type=search]').fill(written);
    assert.ok((await rowsOf(page, 'ops')).some((found) => found.row === row), written);
  }
  await page.locator('#ops input[type=search]').fill(`#${ops.op[row]}`);
  assert.deepEqual((await rowsOf(page, 'ops')).map((found) => found.row), [row]);
  await close();
});

test('a row of any table shows all that its cells cut, by a click and by Enter', async () => {
  const whole = structuredClone(document_);
  const long = 'void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_tn_align8>(Params)';
  whole.tables = [{ id: 'long', view: 'kernels', title: 'Kernels by name', note: '', columns: [{ key: 'name', title: 'name', unit: '' }, { key: 'time', title: 'time', unit: 's' }],
                    rows: [{ name: 'short', time: 2 }, { name: long, time: 0.001 }] }];
  const { page, close } = await open(whole);
  await page.locator('#table-long .row').nth(1).click();
  const details = page.getByRole('dialog');
  for (const part of [long, 'Kernels by name', '1.00 ms']) assert.ok((await details.innerText()).includes(part), part);
  await page.keyboard.press('Escape');
  await page.locator('#table-long [role=grid]').focus();
  await page.keyboard.press('Home');
  await page.keyboard.press('Enter');
  assert.match(await details.innerText(), /short[^]*2\.00 s/);
  await page.keyboard.press('Escape');
  const { kernels } = whole.runs[0];
  const first = page.locator('#kernels .row').first();
  await first.click();
  assert.ok((await details.innerText()).includes(kernels[Number(await first.getAttribute('data-row'))].name));
  await page.keyboard.press('Escape');
  await close();
});
