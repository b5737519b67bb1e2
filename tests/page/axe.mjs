// What axe-core finds on a page that would keep people out.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const axe = readFileSync(createRequire(join(process.env.ROOFLM_TEST_MODULES, 'package.json')).resolve('axe-core/axe.min.js'), 'utf8');

/** Its findings as sentences. */
export async function findings(page) {
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  assert.ok(passes.length > 20, `${passes.length} rules had something to look at`);
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary.split('\n').slice(1).join(';').trim()}`));
}
