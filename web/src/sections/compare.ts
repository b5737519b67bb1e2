// Two runs beside each other: the step, phases and blocks; and the verdicts of the document's own comparison.
import { axis, Chart, kLabel, labelRoom, type Option, tip, tooltip } from '../chart';
import { numberColumn, numbersFrom, textColumn } from '../columns';
import type { Comparison, Run } from '../document';
import { absent, type Child, h, picker } from '../dom';
import { digits, interval, percent, seconds } from '../format';
import { Table } from '../table';
import { token } from '../theme';
import type { Context, Section } from './section';

interface Pair {
  subject: string;
  phase: string;
  a: number | null;
  b: number | null;
}

const sumOf = (values: readonly (number | null)[]): number | null => {
  const known = values.filter((value): value is number => value !== null);
  return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) : null;
};

/** Blocks of both runs by name and phase; a block that one run lacks has no time there. */
function blockPairs(a: Run, b: Run): Pair[] {
  const keys = new Map([...a.blocks, ...b.blocks].map((block) => [`${block.phase}\n${block.block}`, block]));
  const time = (run: Run, phase: string, name: string): number | null => sumOf(run.blocks.filter((block) => block.phase === phase && block.block === name).map((block) => block.measured_s));
  return [...keys.values()].map(({ phase, block }) => ({ subject: block, phase, a: time(a, phase, block), b: time(b, phase, block) }));
}

function phasePairs(a: Run, b: Run): Pair[] {
  const names = [...new Set([...a.phases, ...b.phases].map((phase) => phase.phase))];
  const time = (run: Run, name: string): number | null => run.phases.find((phase) => phase.phase === name)?.measured_s ?? null;
  return [{ subject: 'step', phase: '', a: a.step?.median_s ?? null, b: b.step?.median_s ?? null },
          ...names.map((name) => ({ subject: name, phase: '', a: time(a, name), b: time(b, name) }))];
}

function barOption(pairs: readonly Pair[], width: number): Option {
  const names = pairs.map((pair) => [...new Set([pair.subject, pair.phase])].filter((part) => part !== '').join(', '));
  const room = labelRoom(names, width).width;
  const bar = (name: string, colour: string, get: (pair: Pair) => number | null): Option => ({
    type: 'bar', name, barMaxWidth: 11, barGap: '10%', itemStyle: { color: colour }, data: pairs.map(get) });
  return {
    grid: { left: room + 14, right: 24, top: 8, bottom: 26 },
    tooltip: tooltip({ trigger: 'axis', axisPointer: { type: 'shadow', shadowStyle: { color: token('selected') } }, formatter: (items: { dataIndex: number }[]) => {
      const at = items[0]?.dataIndex ?? 0;
      const pair = pairs[at]!;
      return tip(names[at]!, [['A', seconds(pair.a)], ['B', seconds(pair.b)], ['B / A', ratioText(pair)]]);
    } }),
    xAxis: axis({ type: 'value', axisLabel: { color: token('muted'), fontSize: 11, formatter: (value: number) => seconds(value) } }),
    yAxis: axis({ type: 'category', inverse: true, data: names, splitLine: { show: false }, axisTick: { show: false },
                  axisLabel: { color: token('text'), ...kLabel, width: room, overflow: 'break', interval: 0 } }),
    series: [bar('A', token('s0'), (pair) => pair.a), bar('B', token('s1'), (pair) => pair.b)],
  };
}

const ratioOf = (pair: Pair): number => (pair.a !== null && pair.b !== null && pair.a > 0 ? pair.b / pair.a : NaN);
const ratioText = (pair: Pair): string => (Number.isNaN(ratioOf(pair)) ? '–' : digits(ratioOf(pair)));

function pairTable(label: string, pairs: readonly Pair[]): HTMLElement {
  const n = (get: (pair: Pair) => number | null): Float64Array => numbersFrom(pairs, get);
  return new Table({
    label, length: pairs.length, visibleRows: 14, search: pairs.length > 8, order: pairs.some((pair) => pair.phase !== '') ? { column: 4, descending: true } : undefined,
    columns: [
      textColumn('subject', 'block', pairs.map((pair) => pair.subject)), textColumn('phase', 'phase', pairs.map((pair) => pair.phase), { filter: true }),
      numberColumn('a', 'A', 's', n((pair) => pair.a)), numberColumn('b', 'B', 's', n((pair) => pair.b)),
      numberColumn('difference', 'B - A', 's', n((pair) => (pair.a !== null && pair.b !== null ? pair.b - pair.a : null))),
      numberColumn('ratio', 'B / A', '', n(ratioOf), 'Below 1: B is faster'),
    ],
  }).element;
}

/** One sentence on the whole step; whether the intervals do not overlap is said, significance is not claimed. */
function verdict(a: Run, b: Run): string {
  if (!a.step?.median_s || !b.step?.median_s) return 'One of the runs has no step times.';
  const ratio = b.step.median_s / a.step.median_s;
  const [aLow, aHigh, bLow, bHigh] = [a.step.ci_low_s, a.step.ci_high_s, b.step.ci_low_s, b.step.ci_high_s];
  const apart = aLow === null || aHigh === null || bLow === null || bHigh === null ? 'one of them has no interval'
    : aHigh < bLow || bHigh < aLow ? 'the intervals do not overlap' : 'the intervals overlap, so the difference may be chance';
  const change = ratio < 1 ? `${percent(1 - ratio)} shorter` : `${percent(ratio - 1)} longer`;
  return `A step of B takes ${seconds(b.step.median_s)} (${interval(bLow, bHigh)}) against ${seconds(a.step.median_s)} (${interval(aLow, aHigh)}) of A: ${change}, and ${apart}.`;
}

function differences(a: Run, b: Run): string {
  const keys = [...new Set([...Object.keys(a.config), ...Object.keys(b.config)])].filter((key) => (a.config[key] ?? '') !== (b.config[key] ?? ''));
  return keys.length === 0 ? 'The configurations are the same.' : `They differ in ${keys.map((key) => `${key} (${a.config[key] ?? 'none'}, ${b.config[key] ?? 'none'})`).join(', ')}.`;
}

class RunComparison {
  readonly element: HTMLElement;
  private readonly body = h('div', { class: 'stack' });
  private a: number;
  private b: number;
  private charts: Chart[] = [];

  constructor(private readonly runs: readonly Run[], current: number) {
    this.a = current;
    this.b = runs.findIndex((_, index) => index !== current);
    const options = runs.map((run, index) => [String(index), run.label] as const);
    this.element = h('div', { class: 'stack' }, h('div', { class: 'controls wide-picks' },
      picker('A', options, String(this.a), (value) => { this.a = Number(value); this.update(); }),
      picker('B', options, String(this.b), (value) => { this.b = Number(value); this.update(); })), this.body);
    this.update();
  }

  private update(): void {
    for (const chart of this.charts) chart.dispose();
    const [a, b] = [this.runs[this.a]!, this.runs[this.b]!];
    const [phases, blocks] = [phasePairs(a, b), blockPairs(a, b)];
    // Long bars first: what matters is at the top, and the table above has its own order.
    blocks.sort((p, q) => Math.max(q.a ?? 0, q.b ?? 0) - Math.max(p.a ?? 0, p.b ?? 0));
    const chart = (title: string, pairs: readonly Pair[]): Chart => {
      const made: Chart = new Chart(`${title} of both runs`, 40 + 32 * pairs.length, () => barOption(pairs, made.width), () => ({
        headings: ['subject', 'phase', 'A (s)', 'B (s)', 'B / A'], rows: pairs.map((pair) => [pair.subject, pair.phase, pair.a, pair.b, ratioOf(pair)]) }));
      return made;
    };
    const key = (): HTMLElement => h('ul', { class: 'key', 'aria-label': 'Key of colours' }, ...[['s0', `A: ${a.label}`], ['s1', `B: ${b.label}`]].map(([colour, text]) =>
      h('li', {}, h('i', { class: 'swatch', style: `background:var(--${colour})` }), text!)));
    this.charts = [chart('Phases', phases), ...(blocks.length > 0 ? [chart('Blocks', blocks)] : [])];
    const [phaseChart, blockChart] = this.charts;
    this.body.replaceChildren(
      h('p', { class: 'verdict' }, verdict(a, b), ' ', differences(a, b)),
      h('div', { class: 'panel' }, h('h3', {}, 'Phases'), phaseChart!.element, key()),
      ...(blockChart ? [h('div', { class: 'panel' }, h('h3', {}, 'Blocks'), pairTable('Blocks of both runs', blocks)), h('div', { class: 'panel' }, blockChart.element, key())]
                     : [absent('Neither run has blocks.')]));
  }
}

function comparisonTable({ a, b, verdicts, rows, note }: Comparison): HTMLElement {
  const table = new Table({
    label: 'Comparison', length: rows.length, visibleRows: 14, search: rows.length > 12,
    columns: [
      textColumn('subject', 'subject', rows.map((row) => row.subject)),
      textColumn('verdict', 'verdict', rows.map((row) => row.verdict), { filter: true, hint: 'Of B against A' }),
      numberColumn('a', 'A', 's', numbersFrom(rows, (row) => row.a_s)), numberColumn('b', 'B', 's', numbersFrom(rows, (row) => row.b_s)),
      numberColumn('difference', 'B - A', 's', numbersFrom(rows, (row) => (row.a_s !== null && row.b_s !== null ? row.b_s - row.a_s : null)), 'What it adds to the difference of the step'),
      numberColumn('ratio', 'B / A', '', numbersFrom(rows, (row) => row.ratio)), numberColumn('low', 'from', '', numbersFrom(rows, (row) => row.ci_low), 'Lower end of the interval of B / A'),
      numberColumn('high', 'to', '', numbersFrom(rows, (row) => row.ci_high), 'Upper end of the interval of B / A'), numberColumn('p', 'p', '', numbersFrom(rows, (row) => row.p)),
    ],
  });
  return h('div', { class: 'panel' }, h('h3', {}, `Verdicts: ${b} (B) against ${a} (A)`), ...verdicts.map((text) => h('p', { class: 'sentence' }, text)), table.element, ...note.split('\n').filter((line) => line !== '').map((line) => h('p', { class: 'note' }, line)));
}

export const compare: Section = {
  id: 'compare',
  title: 'Comparison',
  lead: 'Two runs side by side. Times are medians; B / A below 1 means that B is faster.',
  build: ({ document, runIndex }: Context): Child[] => {
    const own = document.comparison;
    const parts: Child[] = own && own.rows.length > 0 ? [comparisonTable(own)] : [];
    if (document.runs.length > 1) parts.push(new RunComparison(document.runs, runIndex).element);
    return parts.length > 0 ? parts : [absent('This report has a single run, so there is nothing to compare it with.')];
  },
};
