// What the tests of the page share: one browser, pages filled with a document as the C++ side fills them.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { after } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';

const { chromium } = createRequire(join(process.env.ROOFLM_TEST_MODULES, 'package.json'))('playwright-core');
const kFlags = ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'];
const kPlace = '<script id="rooflm-data" type="application/json"></script>';
const kReadyMs = 120_000; // a limit for machines that do much else, not a claim

const folder = mkdtempSync(join(tmpdir(), 'rooflm-page-'));
const template = readFileSync(process.env.ROOFLM_TEST_PAGE, 'utf8');
let browser = null;
let files = 0;
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
});

/** A made-up document of the sample generator. */
export function sampleDocument(...options) {
  const out = join(folder, `sample-${++files}.json`);
  const script = resolve(dirname(fileURLToPath(import.meta.url)), '../../web/sample/make.mjs');
  execFileSync(process.execPath, [script, out, ...options]);
  return JSON.parse(readFileSync(out, 'utf8'));
}

/** Opens the page with `data` (an object, or text as it stands) from disk; fails on console errors and on any request. */
export async function open(data, options = {}) {
  const text = (typeof data === 'string' ? data : JSON.stringify(data)).replaceAll('</', '<\\/');
  const file = join(folder, `page-${++files}.html`);
  assert.equal(template.split(kPlace).length, 2, 'the page has one place for its data');
  writeFileSync(file, template.replace(kPlace, () => kPlace.replace('></', `>${text}</`)));
  browser ??= await chromium.launch({ executablePath: process.env.ROOFLM_TEST_CHROMIUM, args: kFlags });
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, colorScheme: 'light', ...options });
  const page = await context.newPage();
  const complaints = [];
  const url = pathToFileURL(file).href;
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => {
    if (request.url().split('#')[0] !== url && !/^(data|blob):/.test(request.url())) complaints.push(`asked for ${request.url()}`);
  });
  await page.goto(url);
  await ready(page);
  return { page, complaints, close: async () => {
    assert.deepEqual(complaints, [], 'the console stays silent and nothing is asked for');
    await context.close();
  } };
}

export const ready = (page) => page.waitForFunction(() => document.documentElement.dataset.ready === 'true', null, { timeout: kReadyMs });

/** Column `key` of a columnar part as text. */
export const textsOf = (part, key) => part[key].map((index) => part.names[index]);

/** The first rows of a table as they stand: [row number in the data, cells]. */
export const rowsOf = (page, section) => page.$$eval(`#${section} .row`, (rows) =>
  rows.map((row) => ({ row: Number(row.dataset.row), cells: [...row.children].map((cell) => cell.textContent) })));
