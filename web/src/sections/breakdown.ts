// Phases and blocks as stacked bars, in numbers and as shares.
import { axis, Chart, kLabel, labelRoom, type Option, tip, tooltip } from '../chart';
import { placesOf } from '../colours';
import type { Block, Roof, Run } from '../document';
import { absent, type Child, choice, h } from '../dom';
import { percent, quantity } from '../format';
import { keyOf } from '../key';
import { heading, type Sheet } from '../save';
import { token } from '../theme';
import type { Context, Section } from './section';

type Measure = 'time' | 'wall' | 'roof' | 'flop' | 'bytes';
const kMeasures: readonly (readonly [Measure, string])[] = [['time', 'Time'], ['wall', 'Wall time'], ['roof', 'Time at the roof'], ['flop', 'FLOP'], ['bytes', 'Bytes']];
const kUnits: Record<Measure, string> = { time: 's', wall: 's', roof: 's', flop: 'flop', bytes: 'byte' };
const kBarHeight = 34;

/** A stack: one bar per row, one part per name; amounts[name][row]. */
interface Stack {
  rows: string[];
  parts: { name: string; amounts: number[] }[];
}

const kFields = { time: 'measured_s', roof: 'roof_s', flop: 'flop', bytes: 'bytes' } as const;
/** Times of phases are wall times. */
const amountOf = (item: Roof | Block, measure: Measure): number =>
  (measure !== 'wall' ? item[kFields[measure]] : 'wall_s' in item ? item.wall_s : item.measured_s) ?? 0;

function stackOf<T>(groups: readonly (readonly [string, readonly T[]])[], name: (item: T) => string, amount: (item: T) => number): Stack {
  const parts = new Map<string, number[]>();
  groups.forEach(([, items], row) => items.forEach((item) => {
    const amounts = parts.get(name(item)) ?? groups.map(() => 0);
    amounts[row]! += amount(item);
    parts.set(name(item), amounts);
  }));
  return { rows: groups.map(([title]) => title), parts: [...parts].map(([part, amounts]) => ({ name: part, amounts })) };
}

function barOption(stack: Stack, unit: string, shares: boolean, room: number): Option {
  const totals = stack.rows.map((_, row) => stack.parts.reduce((sum, part) => sum + part.amounts[row]!, 0));
  const places = placesOf(stack.parts.map((part) => part.name));
  const shown = (amount: number, row: number): number => (!shares ? amount : totals[row]! > 0 ? amount / totals[row]! : 0);
  return {
    grid: { left: room + 14, right: 76, top: 6, bottom: 26 },
    tooltip: tooltip({ trigger: 'item', formatter: (p: { seriesName: string; dataIndex: number; color: string }) => {
      const amount = stack.parts.find((part) => part.name === p.seriesName)?.amounts[p.dataIndex] ?? 0;
      return tip(`${p.seriesName}, ${stack.rows[p.dataIndex]}`, [['amount', quantity(amount, unit)], ['share', percent(amount / totals[p.dataIndex]!)]]);
    } }),
    xAxis: axis({ type: 'value', max: shares ? 1 : undefined, axisLabel: { color: token('muted'), fontSize: 11,
      formatter: (value: number) => (shares ? percent(value) : quantity(value, unit)) } }),
    yAxis: axis({ type: 'category', inverse: true, data: stack.rows, splitLine: { show: false }, axisTick: { show: false },
                  axisLabel: { color: token('text'), ...kLabel, width: room, overflow: 'break', interval: 0 } }),
    series: stack.parts.map((part, index) => ({
      type: 'bar', stack: 'all', name: part.name, barMaxWidth: 22, itemStyle: { color: token(`s${places.get(part.name)}`), borderColor: token('panel'), borderWidth: 0.5 },
      emphasis: { itemStyle: { borderColor: token('text'), borderWidth: 1 } }, data: part.amounts.map(shown),
      label: index === stack.parts.length - 1 ? { show: true, position: 'right', color: token('text'), fontSize: 11,
        formatter: (p: { dataIndex: number }) => quantity(totals[p.dataIndex], unit) } : { show: false },
    })),
  };
}

function sheetOf(stack: Stack, unit: string): Sheet {
  return { headings: ['bar', 'part', heading('amount', unit)], rows: stack.rows.flatMap((row, i) => stack.parts.map(({ name, amounts }) => [row, name, amounts[i]])) };
}

/** A bar chart whose stack is made anew when a control changes. */
class StackChart {
  private readonly key = h('div', {});
  private readonly chart: Chart;
  readonly element: HTMLElement;

  constructor(title: string, private readonly make: () => Stack, private readonly unit: () => string, private readonly shares: () => boolean) {
    this.chart = new Chart(title, kBarHeight, () => {
      const made = this.make();
      const { width, lines } = labelRoom(made.rows, this.chart.width);
      this.chart.setHeight(made.rows.length * Math.max(kBarHeight, lines * kLabel.lineHeight + 6) + 36);
      return barOption(made, this.unit(), this.shares(), width);
    }, () => sheetOf(this.make(), this.unit()));
    this.element = h('div', { class: 'panel' }, h('h3', {}, title), this.chart.element, this.key);
    this.update();
  }

  update(): void {
    const stack = this.make();
    this.chart.setHeight(stack.rows.length * kBarHeight + 36);
    const names = stack.parts.map((part) => part.name);
    const places = placesOf(names);
    this.key.replaceChildren(keyOf(names, (name) => `var(--s${places.get(name)})`));
    this.chart.draw();
  }
}

function phaseStack(runs: readonly Run[], measure: Measure): Stack {
  return stackOf(runs.map((run) => [run.label, run.phases] as const), (phase) => phase.phase, (phase) => amountOf(phase, measure));
}

function blockStack(runs: readonly Run[], run: Run, measure: Measure, rows: 'phases' | 'runs'): Stack {
  const phases = [...new Set(run.blocks.map((block) => block.phase))];
  const groups = rows === 'runs' ? runs.map((r) => [r.label, r.blocks] as const)
                                 : phases.map((phase) => [phase, run.blocks.filter((block) => block.phase === phase)] as const);
  return stackOf(groups, (block) => block.block, (block) => amountOf(block, measure));
}

function build({ document, run }: Context): Child[] {
  const runs = document.runs.filter((r) => r.phases.length > 0 || r.blocks.length > 0);
  let [measure, shares, rows]: [Measure, boolean, 'phases' | 'runs'] = ['time', false, 'phases'];
  const charts: StackChart[] = [];
  const update = (): void => charts.forEach((chart) => chart.update());
  const unit = (): string => kUnits[measure];
  const parts: Child[] = [h('div', { class: 'controls' },
    choice('Amount', kMeasures.filter(([name]) => name !== 'wall' || runs.some((r) => r.blocks.some((block) => block.wall_s !== null))), measure, (value) => { measure = value; update(); }),
    choice('Scale', [['absolute', 'Absolute'], ['share', '100 %']] as const, 'absolute', (value) => { shares = value === 'share'; update(); }),
    runs.length > 1 && choice('Bars of blocks', [['phases', 'Blocks by phase'], ['runs', 'Blocks by run']] as const, 'phases', (value) => { rows = value; update(); }))];
  if (runs.some((r) => r.phases.length > 0)) charts.push(new StackChart('Phases', () => phaseStack(runs, measure), unit, () => shares));
  else parts.push(absent('No phases were timed.'));
  if (run.blocks.length > 0) charts.push(new StackChart('Blocks', () => blockStack(runs, run, measure, rows), unit, () => shares));
  else parts.push(absent('This run has no blocks: no step of it was observed.'));
  if (charts.length === 0) return parts.slice(1); // controls of nothing
  return [...parts, ...charts.map((chart) => chart.element)];
}

export const breakdown: Section = {
  id: 'breakdown',
  title: 'Phases and blocks',
  lead: 'Where a step goes. Times of phases are medians of plain steps and need not add up to the median step; times of blocks are from observed steps, summed over layers. Wall time of blocks includes dispatch and waiting. Time at the roof, FLOP and bytes are not measured: they follow from shapes and ceilings.',
  build,
};
