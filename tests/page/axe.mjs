// What axe-core finds on a page that would keep people out.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const axe = readFileSync(createRequire(join(process.env.ROOFLM_TEST_MODULES, 'package.json')).resolve('axe-core/axe.min.js'), 'utf8');

/** Its findings as sentences: of the whole page, or of what selectors name, where more than `least` rules have something to look at. */
export async function findings(page, { within = ['html'], least = 20 } = {}) {
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate((selectors) => window.axe.run({ include: selectors.map((one) => [one]) }, { resultTypes: ['violations'] }), within);
  assert.ok(passes.length > least, `${passes.length} rules had something to look at`);
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary.split('\n').slice(1).join(';').trim()}`));
}
