// The drawing of the model: every block once, its figures, arrows that end at blocks, and where a click leads.
import assert from 'node:assert/strict';
import { open, sampleDocument, test, textsOf } from './browser.mjs';

const document_ = sampleDocument();
const [run] = document_.runs;
const kLooks = [{}, { colorScheme: 'dark' }, { viewport: { width: 390, height: 760 }, hasTouch: true, isMobile: true },
                { viewport: { width: 390, height: 760 }, hasTouch: true, isMobile: true, colorScheme: 'dark' }];

const boxOf = (page, path) => page.locator(`#model button[data-path="${path}"]`).boundingBox();

for (const look of kLooks) {
  test(`draws each block once, frames around their blocks, arrows from block to block: ${JSON.stringify(look)}`, async () => {
    const { page, close } = await open(document_, look);
    const { nodes, edges } = run.model;
    assert.equal(await page.locator('#model .drawing button').count(), nodes.length);
    assert.equal(await page.locator('#model .drawing .frame').count(), nodes.filter((node) => node.frame).length);
    assert.ok((await page.locator('#model').innerText()).includes(`layer × ${run.config.layers}`));
    const inside = await page.$$eval('#model .drawing button', (all) => all.flatMap((button) => [...button.children].filter((part) => {
      const [outer, inner] = [button.getBoundingClientRect(), part.getBoundingClientRect()];
      return inner.left < outer.left || inner.right > outer.right + 0.5 || inner.bottom > outer.bottom + 0.5;
    }).map((part) => `${button.dataset.path}: ${part.textContent}`)));
    assert.deepEqual(inside, [], 'nothing sticks out of its block');
    const drawn = await page.$$eval('#model .arrow:not(.short):not(.back)', (all) => all.map((arrow) => {
      const { left, right, top, bottom } = arrow.getBoundingClientRect();
      return { left, right, top, bottom };
    }));
    const far = edges.filter(({ lane, back }) => lane !== null && !back);
    assert.equal(drawn.length, far.length);
    for (const [i, { from, to }] of far.entries()) {
      const [start, end] = [await boxOf(page, nodes[from].path), await boxOf(page, nodes[to].path)];
      assert.ok(start.y < drawn[i].top && drawn[i].top < start.y + start.height, `${nodes[from].path} is where it starts`);
      assert.ok(end.y < drawn[i].bottom && drawn[i].bottom < end.y + end.height, `${nodes[to].path} is where it ends`);
      assert.ok(drawn[i].left < start.x && Math.abs(drawn[i].right - Math.max(start.x, end.x)) < 2, 'beside the blocks, up to them');
    }
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
    await close();
  });
}

test('a click on a block shows its figures, chooses its ops in the whole page, and leads to them', async () => {
  const { page, close } = await open(document_);
  await page.locator('#model button[data-path="attention/qkv"]').click();
  const text = await page.getByRole('dialog').innerText();
  const node = run.model.nodes.find(({ path }) => path === 'attention/qkv');
  for (const part of [node.source, 'ln1', 'forward, all layers', 'backward, all layers', 'share of the roof', 'FLOP/B']) assert.ok(text.includes(part), part);
  const scopes = textsOf(run.ops, 'scope');
  const marked = await page.$$eval('#ops .row.marked', (rows) => rows.map((row) => Number(row.dataset.row)));
  assert.ok(marked.length > 0 && marked.every((row) => scopes[row].endsWith('attention/qkv')));
  await page.getByRole('link', { name: 'Its ops on the roofline' }).click();
  assert.equal(await page.getByRole('dialog').count(), 0);
  await page.waitForFunction(() => document.querySelector('#roofline').getBoundingClientRect().top < window.innerHeight / 2);
  await close();
});

test('a frame stands for all that it holds', async () => {
  const { page, close } = await open(document_);
  await page.locator('#model button[data-path="attention"]').click();
  const scopes = textsOf(run.ops, 'scope');
  const marked = await page.$$eval('#ops .row.marked', (rows) => rows.map((row) => Number(row.dataset.row)));
  assert.ok(marked.length > 0 && marked.every((row) => scopes[row].includes('attention/')));
  await close();
});

test('a record that lacks arrows says so; one without ops has no drawing', async () => {
  const bare = structuredClone(document_);
  bare.runs[0].model = { ...bare.runs[0].model, edges: [], lacks: ['Which block reads which is not recorded.'] };
  bare.runs[0].model.nodes[1].last = 9999;
  const { page, close } = await open(bare);
  assert.equal(await page.locator('#model .arrow').count(), 0);
  assert.ok((await page.locator('#model').innerText()).includes('Which block reads which is not recorded.'));
  await close();
  delete bare.runs[0].model;
  const none = await open(bare);
  assert.equal(await none.page.locator('section#model').count(), 0);
  assert.match(await none.page.locator('.missing li', { has: none.page.locator('#model') }).innerText(), /^Model: .*no ops/);
  await none.close();
});
