// What axe-core finds that would keep people out: on a desk and on a phone, light and dark.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findings } from './axe.mjs';
import { open, sampleDocument } from './browser.mjs';

const document_ = sampleDocument();

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

test('the keyboard leaves a mark wherever it is', async () => {
  const { page, close } = await open(document_);
  await page.keyboard.press('Tab');
  const unmarked = await page.evaluate(() => [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')].filter((element) => {
    if (!element.checkVisibility()) return false;
    element.focus({ preventScroll: true });
    return document.activeElement === element && getComputedStyle(element).outlineStyle === 'none';
  }).map((element) => element.outerHTML.slice(0, 100)));
  assert.deepEqual(unmarked, []);
  await close();
});
