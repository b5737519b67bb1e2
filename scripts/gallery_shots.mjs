// Takes the pictures of docs/gallery.md: node gallery_shots.mjs RUNS PICTURES MODULES [gpu|plans|demo]
// RUNS holds the pages that scripts/gallery made; MODULES is the folder with package.json and node_modules of the page.
import { existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [runs, pictures, modules, where = 'cpu'] = process.argv.slice(2);
const { chromium } = createRequire(resolve(modules, 'package.json'))('playwright-core');
const executablePath = process.env.ROOFLM_CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

const chart = (id) => `[id^="chart-${id}"]`;
const table = (id) => `[id="table-${id}"]`;

/** Name of the picture, the page, what is taken of it: a part of it, or the first screen. */
const kGpuShots = [
  ['gpu_overview', 'gpu_gpt2', '#overview .glance'], ['gpu_advice', 'gpu_gpt2', '#overview .advice'], ['gpu_timeline', 'gpu_gpt2', '#timeline'],
  ['gpu_roofline', 'gpu_gpt2', '#roofline'], ['gpu_classes', 'gpu_gpt2', table('kernels.classes')], ['gpu_kernels', 'gpu_gpt2', table('kernels')],
  ['gpu_gemms', 'gpu_gpt2', table('kernels.gemms')], ['gpu_device', 'gpu_gpt2', table('device')], ['gpu_idle', 'gpu_gpt2', table('device.idle')],
  ['gpu_launches', 'gpu_gpt2', table('launches')], ['gpu_counters', 'gpu_gpt2', table('counters')], ['gpu_counted_roofline', 'gpu_gpt2', chart('counters.roofline')],
  ['gpu_why', 'gpu_gpt2', table('why.causes')], ['gpu_power', 'gpu_gpt2', chart('power.sm_clock_hz')], ['gpu_contention', 'gpu_apart', table('contention')],
  ['gpu_forward_memory', 'gpu_forward', '#memory'], ['gpu_losses', 'gpu_losses', chart('training.loss')],
  ['gpu_equal_loss', 'gpu_losses', table('training.equal_loss')],
  ['torch_overview', 'gpu_torch', '#overview .glance'], ['torch_advice', 'gpu_torch', '#overview .advice'], ['torch_timeline', 'gpu_torch', '#timeline'], ['torch_roofline', 'gpu_torch', '#roofline'],
  ['torch_blocks', 'gpu_torch', '#blocks'], ['torch_activities', 'gpu_torch', table('activities')], ['torch_stacks', 'gpu_torch', table('stacks.lines')],
];
const kCpuShots = [
  ['overview', 'gpt2', '#overview .glance'], ['advice', 'gpt2', '#overview .advice'], ['phases', 'studies/end_to_end', '#breakdown'],
  ['model_gpt2', 'gpt2', '#model'], ['model_llama', 'llama', '#model'], ['roofline', 'gpt2', '#roofline'], ['operations', 'gpt2', table('operations')],
  ['why', 'gpt2', table('why')], ['ops', 'gpt2', '#ops'], ['blocks', 'gpt2', '#blocks'], ['kernels_cpu', 'gpt2', '#kernels'], ['scopes', 'gpt2', '#scopes'], ['timeline', 'gpt2', '#timeline'],
  ['memory', 'gpt2', '#memory'], ['saved', 'studies/memory', table('saved')], ['allocator', 'studies/allocators', table('allocator')],
  ['samples', 'studies/warmup', '#method .panel:has(.chart)'], ['sweep', 'studies/end_to_end', table('sweep')], ['context', 'studies/context', chart('growth')],
  ['growth', 'studies/growth', chart('growth')], ['precision', 'studies/precision', chart('precision')], ['classes', 'studies/ops', chart('classes')],
  ['instances', 'studies/ops', table('instances')], ['attention', 'studies/attention_parts', chart('attention')], ['gap', 'studies/gap', table('gap')],
  ['scaling', 'studies/blocks', chart('scaling')], ['heads', 'studies/heads', chart('growth')], ['cells_attention', 'studies/attention_sweep', chart('cells')],
  ['cells_gemm', 'studies/gemm', chart('cells')], ['cells_formats', 'studies/formats', table('cells.formats')], ['cells_limits', 'studies/limits', '[id^="table-cells"]'],
  ['overhead', 'studies/overhead', table('overhead')], ['serving', 'studies/serving', chart('serving.ttft')], ['input', 'studies/input', table('input')], ['training', 'training', chart('training')],
  ['study', 'studies/blocks', null, { viewport: { width: 1200, height: 1150 } }],
  ['dark', 'gpt2', '#roofline', { colorScheme: 'dark' }], ['phone', 'gpt2', '#overview .glance', { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }],
];

const kPlanShots = [
  ['plan', 'plan', null, { viewport: { width: 1100, height: 880 } }], ['plan_stages', 'plan_stages', '#timeline .timeline'],
  ['plan_timeline', 'plan_stages', '#timeline .timeline', { hash: '#timeline?run=2' }], ['plan_memory', 'plan_stages', chart('plan.memory')],
  ['plan_scaling', 'plan_scaling', chart('plan.efficiency')],
];

/** Of README. */
const kDemoShots = [['roofline', 'profile', '#roofline', { colorScheme: 'dark' }], ['phases_and_blocks', 'profile', '#breakdown']];

async function takeShot(browser, [name, page, selector, { hash = '', ...look } = {}]) {
  const file = resolve(runs, `${page}.html`);
  if (!existsSync(file)) return `${name}: no page ${file}`;
  const context = await browser.newContext({ viewport: { width: 1100, height: 900 }, colorScheme: 'light', ...look });
  const tab = await context.newPage();
  await tab.goto(pathToFileURL(file).href + hash);
  await tab.waitForFunction(() => document.documentElement.dataset.ready === 'true');
  await tab.addStyleTag({ content: '.contents, .picture .ruler { position: static !important; }' });
  if (selector === null) {
    await tab.waitForTimeout(600);
    await tab.screenshot({ path: join(pictures, `${name}.png`), animations: 'disabled' });
    await context.close();
    return '';
  }
  await tab.evaluate(() => document.querySelectorAll('details.group').forEach((group) => { group.open = true; }));
  await tab.waitForFunction(() => !document.querySelector('section[aria-busy]'));
  const part = tab.locator(selector).first();
  if (await part.count() === 0) {
    await context.close();
    return `${name}: ${page} has no ${selector}`;
  }
  await part.scrollIntoViewIfNeeded();
  await tab.waitForTimeout(600); // charts are drawn when they come near, and move into their place
  await part.screenshot({ path: join(pictures, `${name}.png`), animations: 'disabled' });
  await context.close();
  return '';
}

const shots = { gpu: kGpuShots, plans: kPlanShots, demo: kDemoShots, cpu: kCpuShots }[where];
mkdirSync(pictures, { recursive: true });
for (const [name] of shots) rmSync(join(pictures, `${name}.png`), { force: true });
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const problems = [];
for (const shot of shots) problems.push(await takeShot(browser, shot));
await browser.close();
const bytes = readdirSync(pictures).reduce((sum, name) => sum + statSync(join(pictures, name)).size, 0);
console.log(`${readdirSync(pictures).length} pictures, ${(bytes / 1e6).toFixed(2)} MB`);
for (const problem of problems.filter((text) => text !== '')) console.log(problem);
process.exit(problems.some((text) => text !== '') ? 1 : 0);
