// Tests of the report page in a real browser: node run.mjs PAGE.html MODULES
// MODULES is the folder with package.json and node_modules of the page. Exit code 77: something needed is not here.
import { existsSync, statSync } from 'node:fs';
import { resolve } from 'node:path';

const kSkipped = 77;
const [page = '', modules = ''] = process.argv.slice(2);
const chromium = process.env.ROOFLM_CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync) ?? '';

function skip(reason) {
  console.log(`SKIPPED: ${reason}`);
  process.exit(kSkipped);
}

if (page === '' || !existsSync(page) || statSync(page).size === 0) skip('the report page was not built');
if (chromium === '' || !existsSync(chromium)) skip('no Chromium on this machine (Debian package chromium)');
if (!existsSync(resolve(modules, 'node_modules/playwright-core'))) skip('playwright-core is not installed');

process.env.ROOFLM_TEST_PAGE = resolve(page);
process.env.ROOFLM_TEST_MODULES = resolve(modules);
process.env.ROOFLM_TEST_CHROMIUM = chromium;
await import('./appearance_test.mjs');
await import('./access_test.mjs');
await import('./tables_test.mjs');
await import('./charts_test.mjs');
await import('./model_test.mjs');
await import('./timeline_test.mjs');
await import('./save_test.mjs');
await import('./study_test.mjs');
await import('./plan_test.mjs');
await import('./robustness_test.mjs');
await import('./large_test.mjs');
