// What axe-core finds that would keep people out: on a desk and on a phone, light and dark.
import assert from 'node:assert/strict';
import { findings } from './axe.mjs';
import { open, sampleDocument, test } from './browser.mjs';

const document_ = sampleDocument();

for (const [where, width] of [['a desk', 1400], ['a phone', 390]]) {
  for (const colorScheme of ['light', 'dark']) {
    test(`axe-core finds nothing on ${where}, ${colorScheme}`, async () => {
      const { page, close } = await open(document_, { viewport: { width, height: 900 }, colorScheme });
      assert.deepEqual(await findings(page), []);
      assert.deepEqual(await page.$$eval('*', (all) => all.flatMap((element) => element.getAttributeNames().filter((name) => name.startsWith('aria-') && element.getAttribute(name) === '')
        .map((name) => `${element.tagName} ${name}`))), [], 'no attribute of ARIA is empty');
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

const kPhone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };

test('fingers find what they press: nothing is lower than 24 pixels', async () => {
  const { page, close } = await open(document_, kPhone);
  const low = await page.$$eval('button, select, summary, nav a, .ticks label', (all) => all.filter((element) => element.checkVisibility() && element.getBoundingClientRect().height < 23.9)
    .map((element) => `${element.tagName} ${element.className} ${element.textContent}: ${element.getBoundingClientRect().height}`));
  assert.deepEqual(low, []);
  await close();
});

test('Close stays one word beside the longest name, and headings of rows are whole', async () => {
  const whole = structuredClone(document_);
  const { blocks } = whole.runs[0];
  const longest = blocks.reduce((most, { measured_s }, i) => (measured_s > blocks[most].measured_s ? i : most), 0); // stands first
  blocks[longest].block = 'a_block_whose_name_has_no_place_to_break_it_'.repeat(4);
  const { page, close } = await open(whole, kPhone);
  await page.locator('#blocks [role=grid]').focus();
  for (const key of ['Home', 'Enter']) await page.keyboard.press(key);
  const button = page.getByRole('button', { name: 'Close details' });
  assert.ok((await button.boundingBox()).height < 40);
  assert.ok(await page.getByRole('dialog').evaluate((panel) => panel.scrollWidth <= panel.clientWidth), 'nothing sticks out');
  await button.click();
  await close();
});

test('in forced colours swatches keep theirs and the pressed button is outlined', async () => {
  const { page, close } = await open(document_, { forcedColors: 'active' });
  const swatches = await page.$$eval('#breakdown ul.key', (all) => all.map((key) => [...key.querySelectorAll('.swatch')].map((swatch) => getComputedStyle(swatch).backgroundColor)));
  for (const key of swatches) assert.equal(new Set(key).size, key.length, key.join());
  const outlines = await page.$$eval('.choice button', (all) => all.map((button) => [button.getAttribute('aria-pressed'), getComputedStyle(button).outlineStyle]));
  for (const [pressed, outline] of outlines) assert.equal(outline, pressed === 'true' ? 'solid' : 'none');
  await close();
});

test('all text grows with the letters that the browser is told to use', async () => {
  const { page, close } = await open(document_);
  const sizes = () => page.$$eval('main *, header *, nav *', (all) => all.filter((element) => !element.closest('.chart, option, .floating') && [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim() !== ''))
    .map((element) => [`${element.tagName} ${element.className}`, parseFloat(getComputedStyle(element).fontSize)]));
  const before = await sizes();
  await page.evaluate(() => { document.documentElement.style.fontSize = '20px'; });
  (await sizes()).forEach(([name, size], i) => assert.ok(Math.abs(size / before[i][1] - 20 / 16) < 0.01, `${name}: ${before[i][1]} to ${size}`));
  await close();
});
