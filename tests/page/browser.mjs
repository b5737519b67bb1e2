// What the tests of the page share: one browser, pages filled with a document as the C++ side fills them.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { after, test as onlyTest } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';

const { chromium } = createRequire(join(process.env.ROOFLM_TEST_MODULES, 'package.json'))('playwright-core');
const kFlags = ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'];
const kPlace = '<script id="rooflm-data" type="application/json"></script>';
const kMakeSample = resolve(dirname(fileURLToPath(import.meta.url)), '../../web/sample/make.mjs');
const kReadyMs = 120_000; // a limit for machines that do much else, not a claim

const folder = mkdtempSync(join(tmpdir(), 'rooflm-page-'));
const template = readFileSync(process.env.ROOFLM_TEST_PAGE, 'utf8');
const kLook = { viewport: { width: 1400, height: 900 }, colorScheme: 'light' };
const pages = new Map(); // by options
let browser = null;
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
});

const samples = new Map(); // as text, by options

/** A made-up document of the sample generator, which the caller may change. */
export function sampleDocument(...options) {
  const key = options.join(' ');
  if (!samples.has(key)) {
    const out = join(folder, `sample-${samples.size}.json`);
    execFileSync(process.execPath, [kMakeSample, out, ...options]);
    samples.set(key, readFileSync(out, 'utf8'));
  }
  return JSON.parse(samples.get(key));
}

const started = new Map(); // samples that are made by a process of their own, by options

/** Begins to make a sample that takes long, beside the tests that come before it is wanted. */
export function startSample(...options) {
  const out = join(folder, `started-${started.size}.json`);
  const child = spawn(process.execPath, [kMakeSample, out, ...options], { stdio: 'inherit' });
  started.set(options.join(' '), new Promise((done, failed) => {
    child.once('error', failed);
    child.once('exit', (code) => (code === 0 ? done(readFileSync(out, 'utf8')) : failed(new Error(`${kMakeSample} ended with ${code}`))));
  }));
}

/** The sample that was begun with these options. */
export const startedSample = async (...options) => JSON.parse(await started.get(options.join(' ')));

/**
 * A test that is tried once more, in new pages, when it failed, and says so: input and pictures pass through other processes of the
 * browser, and on a busy machine they come later than a test waits. What is wrong fails twice.
 */
export function test(name, body) {
  return onlyTest(name, async () => {
    try {
      await body();
    } catch (error) {
      console.log(`# tried again: ${name}: ${String(error.message ?? error).split('\n').slice(0, 6).join(' | ')}`);
      for (const made of pages.values()) await made.page.context().close().catch(() => {});
      pages.clear();
      if (browser?.isConnected() === false) browser = null;
      await body();
    }
  });
}

/** A page of its own, with what it complains about. */
async function newPage(options) {
  browser ??= await chromium.launch({ executablePath: process.env.ROOFLM_TEST_CHROMIUM, args: kFlags });
  const context = await browser.newContext({ ...kLook, ...options });
  const made = { page: await context.newPage(), complaints: [], url: '' };
  const { page } = made;
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) made.complaints.push(message.text()); });
  page.on('pageerror', (error) => made.complaints.push(String(error)));
  page.on('request', (request) => {
    if (request.url().split('#')[0] !== made.url && !/^(data|blob):/.test(request.url())) made.complaints.push(`asked for ${request.url()}`);
  });
  return made;
}

/** Leaves nothing of a test to the next: what it stored, how it looked, where its pointer was. */
async function cleared({ page, complaints }, options) {
  await page.evaluate(() => localStorage.clear());
  await page.mouse.move(0, 0);
  await page.emulateMedia({ media: null, colorScheme: { ...kLook, ...options }.colorScheme });
  assert.deepEqual(complaints, [], 'the console stays silent and nothing is asked for');
}

/**
 * Opens the page with `data` (an object, or text as it stands) from disk; fails on console errors and on any request. Tests with the
 * same options follow one another in one page: its process has compiled the code, which is most of the time that opening takes.
 * `fresh`: a process of its own, for times.
 */
export async function open(data, { fresh = false, ...options } = {}) {
  const text = (typeof data === 'string' ? data : JSON.stringify(data)).replaceAll('</', '<\\/');
  const key = JSON.stringify(options);
  const file = join(folder, 'page.html'); // compiled code is known by the name of its file, too
  assert.equal(template.split(kPlace).length, 2, 'the page has one place for its data');
  writeFileSync(file, template.replace(kPlace, () => kPlace.replace('></', `>${text}</`)));
  const made = (fresh ? null : pages.get(key)) ?? await newPage(options);
  if (!fresh) pages.set(key, made);
  made.url = pathToFileURL(file).href;
  made.complaints.length = 0; // of a test that failed
  await made.page.goto(made.url);
  await ready(made.page);
  return { page: made.page, complaints: made.complaints, close: async () => {
    await cleared(made, options);
    if (fresh) await made.page.context().close();
  } };
}

export const ready = (page) => page.waitForFunction(() => document.documentElement.dataset.ready === 'true', null, { timeout: kReadyMs });

/** Column `key` of a columnar part as text. */
export const textsOf = (part, key) => part[key].map((index) => part.names[index]);

/** The first rows of a table as they stand: [row number in the data, cells]. */
export const rowsOf = (page, section) => page.$$eval(`#${section} .row`, (rows) =>
  rows.map((row) => ({ row: Number(row.dataset.row), cells: [...row.children].map((cell) => cell.textContent) })));
