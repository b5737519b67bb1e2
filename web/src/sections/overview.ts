// What ran, how fast, and what to fix first.
import type { Advice, Run } from '../document';
import { absent, type Child, h } from '../dom';
import { bytes, count, flopPerSecond, interval, percent, plural, quantity, seconds } from '../format';
import { glance } from './glance';
import type { Context, Section } from './section';

interface Tile {
  title: string;
  value: string;
  note: string;
  /** Where the pointer rests. */
  more?: string;
}

function stepTile(run: Run): Tile {
  const { step } = run;
  const { traced_step_s, traced_steps } = run.figures;
  if (!step && traced_step_s !== null) return { title: 'Traced step, median', value: seconds(traced_step_s, 4), note: `${plural(traced_steps ?? 0, 'step')}, including the cost of recording` };
  if (!step) return { title: 'Step', value: '–', note: run.status === 'success' ? 'no whole steps were timed' : `status: ${run.status}` };
  const samples = step.samples === null ? '' : `, ${plural(step.samples, 'sample')}`;
  return { title: 'Step, median', value: seconds(step.median_s, 4), note: `${interval(step.ci_low_s, step.ci_high_s)}${samples}` };
}

function speedTiles(run: Run): Tile[] {
  const { figures } = run;
  // "sustained matmul rate of fp32, measured here: 189 GFLOP/s (...)": the tile has the rate already.
  const peak = figures.peak !== '' ? figures.peak.split(':')[0]! : 'the peak';
  const datasheet = figures.datasheet_mfu === null ? '' : `; ${percent(figures.datasheet_mfu)} of the datasheet's ${flopPerSecond(figures.datasheet_flop_per_s)}`;
  return [
    { title: 'Tokens per second', value: figures.tokens_per_s === null ? '–' : quantity(figures.tokens_per_s, 'tokens/s'),
      note: figures.tokens === null ? 'tokens per step are not recorded' : `${count(figures.tokens)} tokens per step` },
    { title: 'MFU', value: percent(figures.mfu), more: figures.peak, note: figures.mfu === null ? 'needs model FLOP, step time and peak'
      : `${flopPerSecond(figures.model_flop_per_s)} of model FLOP / ${flopPerSecond(figures.peak_flop_per_s)} (${peak})${datasheet}` },
    { title: 'Matmul rate', value: flopPerSecond(figures.matmul_flop_per_s), note: figures.matmul_share === null ? 'no peak to compare with'
      : `${percent(figures.matmul_share)} of the same peak` },
  ];
}

function roofTile(run: Run): Tile {
  const { roof_s, roof_share } = run.figures;
  if (roof_share === null) return { title: 'Share of the roof', value: '–', note: 'no roof times are recorded' };
  return { title: 'Share of the roof', value: percent(roof_share), note: `the roofline allows ${seconds(roof_s)}` };
}

function memoryTile(run: Run): Tile {
  const peak = run.figures.peak_bytes;
  const state = run.memory?.persistent_bytes;
  const source = run.kind === 'foreign' ? 'as the program allocated and freed it' : 'planned';
  return { title: 'Peak memory', value: bytes(peak), note: peak === null ? 'memory was not recorded' : state ? `${bytes(state)} of it persist between steps` : source };
}

function adviceItem(advice: Advice, largest: number): HTMLElement {
  const gain = advice.gain_s;
  return h('li', {},
           h('div', { class: 'advice-head' }, h('strong', {}, advice.subject), h('span', { class: 'gain' }, gain === null ? '' : `possible gain ${seconds(gain)}${advice.step_share !== null ? `, ${percent(advice.step_share)} of the step` : ''}`)),
           gain === null || largest <= 0 ? null : h('div', { class: 'meter', 'aria-hidden': true }, h('i', { style: `width:${(100 * gain) / largest}%` })),
           h('p', {}, advice.text));
}

function advice({ document, run }: Context): HTMLElement {
  const mine = document.advice.filter((item) => item.run === null || item.run === run.id);
  const largest = Math.max(0, ...mine.map((item) => item.gain_s ?? 0));
  return h('div', { class: 'panel' }, h('h3', {}, 'What to fix first'),
           mine.length === 0 ? absent('This report gives no advice for this run.') : h('ol', { class: 'advice' }, ...mine.map((item) => adviceItem(item, largest))));
}

/** The number large, its unit small. */
export function valueParts(value: string): Child[] {
  const at = value.indexOf(' ');
  return at < 0 ? [value] : [value.slice(0, at), ' ', h('small', {}, value.slice(at + 1))];
}

function configuration(run: Run): HTMLElement {
  const items = run.settings.filter(({ text }) => text !== '').flatMap(({ title, text }): Child[] => [h('dt', {}, title), h('dd', {}, /^\d{5,}$/.test(text) ? count(Number(text)) : text)]);
  return h('div', { class: 'panel' }, h('h3', {}, 'Configuration'), items.length > 0 ? h('dl', { class: 'facts' }, ...items) : absent('The configuration is not recorded.'));
}

export const overview: Section = {
  id: 'overview',
  title: 'Overview',
  lead: '',
  build: (context) => {
    const { run } = context;
    const tiles = [stepTile(run), ...speedTiles(run), roofTile(run), memoryTile(run)];
    return [
      run.headline === '' ? null : h('p', { class: 'headline' }, run.headline),
      h('div', { class: 'tiles' }, ...tiles.map((tile) =>
        h('div', { class: 'tile' }, h('h3', {}, tile.title), h('p', { class: 'value' }, ...valueParts(tile.value)), h('p', { class: 'note', title: tile.more || undefined }, tile.note)))),
      glance(context),
      h('div', { class: 'columns' }, advice(context), configuration(run)),
    ];
  },
};
