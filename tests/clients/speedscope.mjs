// Opens a profile with speedscope in a browser: node speedscope.mjs INDEX.html PROFILE TOTAL MODULES CHROMIUM
// Fails where its importer complains, or shows another total than TOTAL, in nanoseconds.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [index, profile, total, modules, executablePath] = process.argv.slice(2);
const { chromium } = createRequire(join(modules, 'package.json'))('playwright-core');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--use-gl=swiftshader', '--enable-unsafe-swiftshader', '--ignore-gpu-blocklist'] });
try {
  const page = await browser.newPage();
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('dialog', (dialog) => { complaints.push(dialog.message()); dialog.dismiss(); });
  page.on('console', (message) => { if (message.type() === 'error' && !message.text().includes('net::')) complaints.push(message.text()); });
  // As its command does: a script beside the profile hands it over.
  const script = `${profile}.js`;
  writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(basename(profile))}, "${readFileSync(profile).toString('base64')}")`);
  await page.goto(`${pathToFileURL(index).href}#localProfilePath=${script}`);
  const { name, shared } = JSON.parse(readFileSync(profile, 'utf8'));
  await page.waitForFunction((text) => document.title.includes(text), name);
  await page.keyboard.press('3'); // the table of all functions
  const longest = shared.frames[0].name;
  await page.getByText(longest, { exact: true }).first().waitFor();
  const shown = await page.evaluate(() => document.body.innerText);
  assert.deepEqual(complaints, []);
  // Its times have two decimals of the largest unit.
  const parts = [...shown.matchAll(/([\d.]+)(ns|µs|ms|s) \(([\d.]+)%\)/g)].map(([, value, unit, share]) => [value * { ns: 1, µs: 1e3, ms: 1e6, s: 1e9 }[unit], Number(share)]);
  assert.ok(parts.length > 0, 'the table has times');
  const [ns, share] = parts.reduce((most, one) => (one[1] > most[1] ? one : most));
  assert.ok(Math.abs(ns / (share / 100) - total) < 0.02 * total, `${ns} ns are ${share} %, of ${total} in all`);
  console.log(`speedscope shows ${name}: ${ns} ns are ${share} %`);
} finally {
  await browser.close();
}
