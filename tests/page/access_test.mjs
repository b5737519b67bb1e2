// What axe-core finds that would keep people out: on a desk and on a phone, light and dark.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { open, sampleDocument } from './browser.mjs';

const axe = readFileSync(createRequire(join(process.env.ROOFLM_TEST_MODULES, 'package.json')).resolve('axe-core/axe.min.js'), 'utf8');
const document_ = sampleDocument();

async function findings(page) {
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  assert.ok(passes.length > 20, `${passes.length} rules had something to look at`);
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary.split('\n').slice(1).join(';').trim()}`));
}

for (const [where, width] of [['a desk', 1400], ['a phone', 390]]) {
  for (const colorScheme of ['light', 'dark']) {
    test(`axe-core finds nothing on ${where}, ${colorScheme}`, async () => {
      const { page, close } = await open(document_, { viewport: { width, height: 900 }, colorScheme });
      assert.deepEqual(await findings(page), []);
      await page.locator('#ops .row').first().click();
      await page.keyboard.press('Enter');
      await page.getByRole('dialog').waitFor();
      assert.deepEqual(await findings(page), [], 'with all numbers of an op open');
      await page.keyboard.press('Escape');
      await close();
    });
  }
}
