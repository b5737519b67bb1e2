// The roofline: rate against intensity, both logarithmic, under the ceilings of this machine.
import { axis, Chart, type Option, tip, tooltip } from '../chart';
import { colourOf, colourVariable } from '../colours';
import { showDetails } from '../details';
import { blockRows, opRows, phaseRows } from '../detail_rows';
import type { RoofLines } from '../document';
import { absent, type Child, choice, h, ticks } from '../dom';
import { digits, flopPerSecond, percent, plural, quantity, seconds } from '../format';
import { keyOf } from '../key';
import { type Ops, opsOf, opTitle } from '../ops';
import type { Sheet } from '../save';
import { token } from '../theme';
import { type Filter, opHasPlace, placesOf, type PointSet, pointSets } from './roofline_points';
import type { Context, Section } from './section';

const kHeight = 520;
const kNarrow = 480; // pixels: a phone
const kBytes: readonly (readonly [Filter['bytes'], string])[] = [['shapes', 'By shapes'], ['dram', 'Counted, DRAM'], ['l2', 'Counted, L2'], ['l1', 'Counted, L1']];
const kManyPoints = 5000; // from here on points are drawn in bulk, without a mark for the one under the pointer

interface Extent {
  x: [number, number];
  y: [number, number];
}

/** The nearest 1 or 3 times a power of ten below or above. */
function roundDecade(value: number, up: boolean): number {
  const power = 10 ** Math.floor(Math.log10(value));
  const ratio = value / power;
  if (up) return ratio <= 1 ? power : ratio <= 3 ? 3 * power : 10 * power;
  return ratio >= 3 ? 3 * power : power;
}

/** Round limits around all points, and around the ridges of the roofs; `narrow` rates have labels of several lines. */
function extentOf(sets: readonly PointSet[], roofs: RoofLines, narrow: boolean): Extent {
  const [x, y]: [[number, number], [number, number]] = [[Infinity, -Infinity], [Infinity, -Infinity]];
  const include = (range: [number, number], value: number): void => {
    if (!(value > 0)) return;
    range[0] = Math.min(range[0], value);
    range[1] = Math.max(range[1], value);
  };
  for (const { points } of sets) for (let i = 0; i < points.length; i += 2) {
    include(x, points[i]!);
    include(y, points[i + 1]!);
  }
  for (const rate of roofs.rates) include(y, rate.value * (narrow ? 4 : 1.5));
  for (const rate of roofs.rates) for (const bandwidth of roofs.bandwidths) include(x, (2 * rate.value) / bandwidth.value);
  // Air beside the last points: a round limit may lie right at one.
  const kAir = 1.3;
  const limits = (range: [number, number]): [number, number] => (range[0] > range[1] ? [1, 10] : [roundDecade(range[0] / kAir, false), roundDecade(range[1] * kAir, true)]);
  return { x: limits(x), y: limits(y) };
}

const kBroken = { overflow: 'break', lineHeight: 13 }; // labels on a phone

/** Letters beside lines and marks, which must not cross them. */
const labelText = (colour: string): Option => ({ color: token(colour), fontSize: 11, textBorderColor: token('panel'), textBorderWidth: 3 });

function roofLines(roofs: RoofLines, { x, y }: Extent, narrow: boolean): Option[] {
  const peak = roofs.rates[0]?.value ?? y[1];
  const fastest = roofs.bandwidths[0]?.value ?? Infinity;
  const line = (label: string, from: [number, number], to: [number, number], atEnd: boolean): Option => ({
    type: 'line', name: label, data: [from, to], silent: true, showSymbol: false, symbol: 'none', z: 1, lineStyle: { color: token('muted'), width: 1.2 },
    endLabel: { show: atEnd && label !== '', formatter: label, ...labelText('muted'), align: 'right', ...(narrow ? { ...kBroken, width: 180, verticalAlign: 'bottom', offset: [-6, -2] } : { offset: [-6, -9] }) },
    markPoint: atEnd ? undefined : { symbol: 'rect', symbolSize: 0.01, silent: true, data: [{ coord: slopeLabelAt(from, to) }],
      label: { show: label !== '', formatter: label, ...labelText('muted'), position: 'right', distance: 6, ...(narrow ? { ...kBroken, width: 120 } : {}) } },
  });
  const labels = labelsOf(roofs.bandwidths, 'byte/s', narrow ? 2.6 : 1.4);
  const rates = labelsOf(roofs.rates, 'flop/s', narrow ? 8 : 1.6);
  return [
    ...roofs.rates.map((rate, index) => line(rates[index]!, [Math.max(x[0], rate.value / fastest), rate.value], [x[1], rate.value], true)),
    ...roofs.bandwidths.map((bandwidth, index) => {
      const left = Math.max(x[0], y[0] / bandwidth.value);
      const right = Math.min(x[1], peak / bandwidth.value);
      return line(labels[index]!, [left, left * bandwidth.value], [right, right * bandwidth.value], false);
    }),
  ];
}

/** Names with values, fastest first. Lines that are less than a factor of `apart` from each other share the label of the first: there is no room for another. */
function labelsOf(lines: RoofLines['rates'], unit: string, apart: number): string[] {
  const labels: string[] = [];
  let first = 0;
  lines.forEach((line, index) => {
    const label = `${line.name} ${quantity(line.value, unit)}`;
    if (index > 0 && lines[index - 1]!.value < apart * line.value) {
      labels[first] += `, ${label}`;
      labels.push('');
    } else {
      first = index;
      labels.push(label);
    }
  });
  return labels;
}

/** Low on a slope, where there are few points, on the logarithmic scale. */
function slopeLabelAt(from: [number, number], to: [number, number]): [number, number] {
  const between = (a: number, b: number): number => a ** 0.9 * b ** 0.1;
  return [between(from[0], to[0]), between(from[1], to[1])];
}

const kMarks = { ops: { symbol: 'circle', size: 6 }, blocks: { symbol: 'diamond', size: 13 }, phases: { symbol: 'rect', size: 15 } };

/** Names of phases stand above or below their points in turn, at their side where a ceiling is named right above; on a phone, at the side with more room. */
function phaseLabelAt(set: PointSet, index: number, sets: readonly PointSet[], roofs: RoofLines, { x }: Extent, narrow: boolean): Option {
  const kJustBelow = 1.8;
  const isNamedAbove = roofs.rates.some(({ value }) => set.points[1]! <= value && value < kJustBelow * set.points[1]!);
  if (!narrow) return { position: index % 2 === 1 ? 'bottom' : isNamedAbove ? 'left' : 'top' };
  const isHighest = sets.every(({ level, points }) => level !== 'phases' || points[1]! <= set.points[1]!);
  return { position: set.points[0]! < Math.sqrt(x[0] * x[1]) ? 'right' : 'left', offset: [0, isHighest ? -6 : 7] };
}

function pointSeries(set: PointSet, index: number, sets: readonly PointSet[], roofs: RoofLines, extent: Extent, narrow: boolean): Option {
  const many = set.subjects.length >= kManyPoints;
  const { symbol, size } = kMarks[set.level];
  const colour = set.level === 'ops' ? colourOf(set.name) : set.level === 'blocks' ? token('raised') : token('text');
  return {
    type: 'scatter', id: `points-${index}`, name: set.name, data: set.points, dimensions: ['x', 'y'], symbol, symbolSize: many ? 3.5 : size, cursor: 'pointer',
    large: many, largeThreshold: kManyPoints, progressive: 0, z: set.level === 'ops' ? 2 : set.level === 'blocks' ? 3 : 4,
    itemStyle: { color: colour, opacity: set.level === 'ops' ? (many ? 0.5 : 0.75) : 1,
                 borderColor: set.level === 'ops' ? undefined : token(set.level === 'blocks' ? 'text' : 'raised'), borderWidth: set.level === 'ops' ? 0 : 1.2 },
    emphasis: { scale: 1.5 },
    ...(set.level === 'phases' ? { label: { show: true, ...phaseLabelAt(set, index, sets, roofs, extent, narrow), distance: 7, ...labelText('text'), formatter: set.name } } : {}),
  };
}

class Roofline {
  private sets: PointSet[] = [];
  private readonly ops: Ops;
  private readonly roofs: RoofLines;
  private readonly chart: Chart;
  private readonly count = h('p', { class: 'status', 'aria-live': 'polite' });
  private filter: Filter;

  constructor(private readonly context: Context) {
    const { run } = context;
    this.ops = opsOf(run);
    this.roofs = run.roofs;
    this.filter = { levels: new Set(['ops', 'blocks', 'phases']), phases: new Set(this.phases()), classes: new Set(this.ops.cls.names), bytes: 'shapes' };
    this.collect();
    this.chart = new Chart('Roofline: rate against arithmetic intensity', kHeight, () => this.option(), () => this.sheet());
    this.chart.whenReady((chart) => {
      chart.on('click', (event) => this.open(event as { seriesId?: string; dataIndex: number }));
      // Where a test clicks: the pixel of the first drawn op, seen from the chart's corner.
      (this.chart.place as HTMLElement & { firstPoint?: () => number[] }).firstPoint = () => {
        const { points } = this.sets[0]!;
        return chart.convertToPixel('grid', [points[0]!, points[1]!]) as number[];
      };
      context.selection.onChange(() => chart.setOption({ series: [this.chosenSeries()] }));
    });
  }

  /** Rings around the chosen ops that have a place. */
  private chosenSeries(): Option {
    const places = placesOf(this.ops, this.filter.bytes);
    const chosen = [...(this.context.selection.current?.ops ?? [])].filter((op) => opHasPlace(places, op));
    return { id: 'chosen', type: 'scatter', name: 'chosen', silent: true, z: 6, symbol: 'circle', symbolSize: 15, data: chosen.map((op) => [places.intensity[op], places.rate[op]]),
             itemStyle: { color: 'transparent', borderColor: token('text'), borderWidth: 2 } };
  }

  get empty(): boolean { return this.sets.length === 0; }

  private phases(): string[] {
    return [...new Set([...this.context.run.phases.map((phase) => phase.phase), ...this.ops.phase.names])];
  }

  private collect(): void {
    this.sets = pointSets(this.context.run, this.ops, this.filter);
    let drawn = 0;
    for (const set of this.sets) if (set.level === 'ops') drawn += set.subjects.length;
    let unplaced = 0;
    const places = placesOf(this.ops, this.filter.bytes);
    for (let i = 0; i < this.ops.length; ++i) if (!opHasPlace(places, i)) ++unplaced;
    this.count.textContent = `${plural(drawn, 'op')} drawn${unplaced > 0 ? `; ${plural(unplaced, 'op')} without FLOP, bytes or time cannot be placed` : ''}.`;
  }

  private change(part: Partial<Filter>): void {
    this.filter = { ...this.filter, ...part };
    this.collect();
    this.chart.draw();
  }

  private subject(set: PointSet, at: number): { title: string; time: number | null; roof: number | null; share: number | null; bound: string } {
    const index = set.subjects[at]!;
    const { run } = this.context;
    if (set.level === 'ops') {
      const { ops } = this;
      return { title: opTitle(ops, index), time: ops.device[index]!, roof: ops.roof[index]!, share: ops.roofShare[index]!, bound: ops.bound.names[ops.bound.codes[index]!] ?? '' };
    }
    const item = set.level === 'blocks' ? run.blocks[index]! : run.phases[index]!;
    const title = set.level === 'blocks' ? `${run.blocks[index]!.block}, ${item.phase}` : item.phase;
    return { title, time: item.measured_s, roof: item.roof_s, share: item.share, bound: item.bound ?? '' };
  }

  private open(event: { seriesId?: string; dataIndex: number }): void {
    const set = this.sets[Number(event.seriesId?.replace('points-', ''))];
    if (!set) return;
    const index = set.subjects[event.dataIndex]!;
    const { run } = this.context;
    const { title } = this.subject(set, event.dataIndex);
    const { selection } = this.context;
    if (set.level !== 'phases') selection.choose(set.level === 'ops' ? [index] : selection.opsOfBlock(run.blocks[index]!), title, this);
    const rows = set.level === 'ops' ? opRows(this.ops, index) : set.level === 'blocks' ? blockRows(run.blocks[index]!) : phaseRows(run.phases[index]!);
    showDetails({ title, subtitle: set.level === 'ops' ? `op of the ${run.label} run` : `${set.level.slice(0, -1)} of the ${run.label} run`, rows });
  }

  /** The points that are drawn, and the roofs above them. */
  private sheet(): Sheet {
    const points = this.sets.flatMap((set) => Array.from(set.subjects, (_, i) => {
      const { title, time, roof, share, bound } = this.subject(set, i);
      return [set.level, title, set.points[2 * i], set.points[2 * i + 1], time, roof, share, bound];
    }));
    const { rates, bandwidths } = this.roofs;
    return { headings: ['level', 'name', 'intensity (FLOP/byte)', 'rate (FLOP/s)', 'time (s)', 'time at the roof (s)', 'share of the roof', 'bound by'],
             rows: [...points, ...rates.map(({ name, value }) => ['ceiling', name, null, value]), ...bandwidths.map(({ name, value }) => ['ceiling, byte/s', name, null, value])] };
  }

  private hover(event: { seriesId?: string; dataIndex: number }): HTMLElement | string {
    const set = this.sets[Number(event.seriesId?.replace('points-', ''))];
    if (!set) return '';
    const { title, time, roof, share, bound } = this.subject(set, event.dataIndex);
    const [x, y] = [set.points[2 * event.dataIndex]!, set.points[2 * event.dataIndex + 1]!];
    return tip(title, [['intensity', quantity(x, 'FLOP/B')], ['rate', flopPerSecond(y)], ['time', seconds(time)],
                       ['at the roof', seconds(roof)], ['share of the roof', percent(share)], ['bound by', bound]]);
  }

  private option(): Option {
    const narrow = this.chart.width < kNarrow;
    const extent = extentOf(this.sets, this.roofs, narrow);
    const rate = (value: number): string => (narrow ? quantity(value, 'flop/s', 1).replace('FLOP/s', '') : quantity(value, 'flop/s', 1));
    const label = (format: (value: number) => string): Option => ({ color: token('muted'), fontSize: 11, formatter: format });
    return {
      grid: { left: narrow ? 58 : 86, right: narrow ? 12 : 24, top: 16, bottom: 48 },
      tooltip: tooltip({ trigger: 'item', formatter: (event: { seriesId?: string; dataIndex: number }) => this.hover(event) }),
      xAxis: axis({ type: 'log', name: 'arithmetic intensity, FLOP per byte', min: extent.x[0], max: extent.x[1], axisLabel: label((value) => digits(value, 1)) }),
      yAxis: axis({ type: 'log', name: 'rate, FLOP/s', nameGap: narrow ? 40 : 66, min: extent.y[0], max: extent.y[1], axisLabel: label(rate) }),
      series: [...roofLines(this.roofs, extent, narrow), ...this.sets.map((set, index) => pointSeries(set, index, this.sets, this.roofs, extent, narrow)), this.chosenSeries()],
    };
  }

  parts(): Child[] {
    const controls = h('div', { class: 'controls' },
      this.ops.counted && choice('FLOP and bytes', kBytes, 'shapes', (bytes) => this.change({ bytes })),
      ticks('Show', ['ops', 'blocks', 'phases'], () => undefined, (levels) => this.change({ levels })),
      ticks('Phases', this.phases(), () => undefined, (phases) => this.change({ phases })),
      this.ops.cls.names.length > 0 && ticks('Classes of ops', this.ops.cls.names, colourVariable, (classes) => this.change({ classes })));
    const noRoof = this.roofs.rates.length + this.roofs.bandwidths.length === 0;
    return [controls, h('div', { class: 'panel' }, this.chart.element, h('div', { class: 'on-paper' }, keyOf(this.ops.cls.names)), this.count),
            noRoof && absent('This report has no ceilings for the device of this run, so no roof is drawn.')];
  }
}

export const roofline: Section = {
  id: 'roofline',
  title: 'Roofline',
  lead: 'Circles are ops, diamonds blocks, squares phases; lines are the measured ceilings. Click a point for all its numbers; the table of ops opens the same panel with Enter.',
  build: (context) => {
    const { run } = context;
    if (run.ops.length === 0 && run.blocks.length === 0 && run.phases.length === 0) return [absent('This run has no ops, blocks or phases to place.')];
    const chart = new Roofline(context);
    return chart.empty ? [absent('None of the ops, blocks and phases of this run has FLOP, bytes and a time, so none can be placed on the roofline.')] : chart.parts();
  },
};
