// What ran, how fast, and what to fix first.
import type { Advice, Run } from '../document';
import { absent, type Child, h } from '../dom';
import { bytes, count, flop, flopPerSecond, interval, percent, plural, quantity, seconds } from '../format';
import type { Context, Section } from './section';

interface Tile {
  title: string;
  value: string;
  note: string;
}

const factValue = (run: Run, key: string): number | null => run.facts[key]?.value ?? null;
const configNumber = (run: Run, key: string): number | null => (typeof run.config[key] === 'number' ? (run.config[key] as number) : null);

/** Tokens of one step: as recorded, else batch x sequence x micro-batches. */
export function tokensPerStep(run: Run): number | null {
  const recorded = factValue(run, 'tokens');
  if (recorded !== null) return recorded;
  const [batch, seq] = [configNumber(run, 'batch'), configNumber(run, 'seq')];
  return batch !== null && seq !== null ? batch * seq * (configNumber(run, 'grad_accum') ?? 1) : null;
}

function stepTile(run: Run): Tile {
  const { step } = run;
  if (!step) return { title: 'Step', value: '–', note: run.status === 'success' ? 'no whole steps were timed' : `status: ${run.status}` };
  const samples = step.samples === null ? '' : `, ${plural(step.samples, 'sample')}`;
  return { title: 'Step, median', value: seconds(step.median_s, 4), note: `${interval(step.ci_low_s, step.ci_high_s)}${samples}` };
}

function speedTiles(run: Run): Tile[] {
  const step = run.step?.median_s ?? null;
  const tokens = tokensPerStep(run);
  const [model, work, peak] = [factValue(run, 'model_flop'), factValue(run, 'matmul_flop'), factValue(run, 'peak_flop_per_s')];
  const rate = step && tokens !== null ? tokens / step : factValue(run, 'tokens_per_s');
  const mfu = step && model !== null && peak ? model / step / peak : factValue(run, 'mfu');
  const done = step && work !== null ? work / step : null;
  const peakText = run.facts.peak_flop_per_s?.text;
  return [
    { title: 'Tokens per second', value: rate === null ? '–' : quantity(rate, 'tokens/s'), note: tokens === null ? 'tokens of a step are not recorded' : `${count(tokens)} tokens per step` },
    { title: 'MFU', value: percent(mfu), note: mfu === null ? 'needs model FLOP, step time and peak'
      : step && model !== null ? `model FLOP / step / peak: ${flop(model)} / ${seconds(step)} / ${flopPerSecond(peak)}` : 'as recorded' },
    { title: 'Matrix-product rate', value: flopPerSecond(done), note: done === null || !peak ? 'no peak to compare with'
      : `${percent(done / peak)} of the peak${peakText ? `, ${peakText}` : ''}` },
  ];
}

function roofTile(run: Run): Tile {
  const roofs = run.phases.map((phase) => phase.roof_s);
  const step = run.step?.median_s ?? null;
  if (roofs.length === 0 || !step || roofs.some((roof) => roof === null)) return { title: 'Share of the roof', value: '–', note: 'no roofline times are recorded' };
  const roof = roofs.reduce<number>((total, value) => total + (value ?? 0), 0);
  return { title: 'Share of the roof', value: percent(roof / step), note: `the roofline allows ${seconds(roof)}` };
}

function memoryTile(run: Run): Tile {
  const peak = run.memory?.peak_bytes ?? factValue(run, 'plan_peak_bytes');
  const state = run.memory?.persistent.reduce((total, part) => total + part.bytes, 0);
  return { title: 'Peak memory', value: bytes(peak), note: peak === null ? 'memory was not followed' : state ? `${bytes(state)} of it lasts from step to step` : 'planned' };
}

function adviceItem(advice: Advice, run: Run, largest: number): HTMLElement {
  const step = run.step?.median_s ?? null;
  const gain = advice.gain_s;
  return h('li', {},
           h('div', { class: 'advice-head' }, h('strong', {}, advice.subject), h('span', { class: 'gain' }, gain === null ? '' : `could gain ${seconds(gain)}${step ? `, ${percent(gain / step)} of the step` : ''}`)),
           gain === null || largest <= 0 ? null : h('div', { class: 'meter', 'aria-hidden': true }, h('i', { style: `width:${(100 * gain) / largest}%` })),
           h('p', {}, advice.text));
}

function advice({ document, run }: Context): HTMLElement {
  const mine = document.advice.filter((item) => item.run === null || item.run === run.id);
  const largest = Math.max(0, ...mine.map((item) => item.gain_s ?? 0));
  return h('div', { class: 'panel' }, h('h3', {}, 'What to fix first'),
           mine.length === 0 ? absent('This report gives no advice for this run.') : h('ol', { class: 'advice' }, ...mine.map((item) => adviceItem(item, run, largest))));
}

/** The number large, its unit small. */
function valueParts(value: string): Child[] {
  const at = value.indexOf(' ');
  return at < 0 ? [value] : [value.slice(0, at), h('small', {}, value.slice(at))];
}

const kConfigTitles: Record<string, string> = {
  model: 'model', arch: 'architecture', engine: 'engine', attention: 'attention', device: 'device', dtype: 'data type', recompute: 'recompute',
  batch: 'batch B', seq: 'sequence T', vocab: 'vocabulary V', layers: 'layers L', heads: 'heads H', kv_heads: 'key/value heads K',
  d_model: 'channels C', d_ff: 'feed-forward F', params: 'parameters N', grad_accum: 'micro-batches', threads: 'threads',
};

function configuration(run: Run): HTMLElement {
  const known = Object.entries(run.config).filter(([, value]) => value !== null && value !== '' && value !== 0); // 0: not known
  const items = known.flatMap(([key, value]): Child[] => [
    h('dt', {}, kConfigTitles[key] ?? key), h('dd', {}, typeof value === 'number' ? count(value) : String(value))]);
  return h('div', { class: 'panel' }, h('h3', {}, 'What ran'), items.length > 0 ? h('dl', { class: 'facts' }, ...items) : absent('The configuration is not recorded.'));
}

export const overview: Section = {
  id: 'overview',
  title: 'Overview',
  lead: '',
  build: (context) => {
    const { run } = context;
    const tiles = [stepTile(run), ...speedTiles(run), roofTile(run), memoryTile(run)];
    return [
      h('div', { class: 'tiles' }, ...tiles.map((tile) =>
        h('div', { class: 'tile' }, h('h3', {}, tile.title), h('p', { class: 'value' }, ...valueParts(tile.value)), h('p', { class: 'note' }, tile.note)))),
      h('div', { class: 'columns' }, advice(context), configuration(run)),
    ];
  },
};
