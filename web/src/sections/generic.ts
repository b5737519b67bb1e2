// Tables and charts that the document brings along, shown as they say.
import { axis, Chart, errorBars, kLabel, labelRoom, type Option, tip, tooltip } from '../chart';
import { placesOf } from '../colours';
import { type Column, numberColumn, textColumn } from '../columns';
import type { Axis, GenericChart, GenericTable } from '../document';
import { absent, type Child, h } from '../dom';
import { percent, plural, quantity, unitName } from '../format';
import { switchKey } from '../key';
import { heading, type Sheet } from '../save';
import { Table } from '../table';
import { token } from '../theme';
import type { Section } from './section';

/** Columns by which rows are chosen: a page of a dozen runs has each table of all of them. */
const kFilters = new Set(['which', 'phase']);

/** A column is of numbers when every value in it is one or is missing. */
function columnOf(table: GenericTable, { key, title, unit }: GenericTable['columns'][number]): Column {
  const values = table.rows.map((row) => row[key]);
  const isNumber = values.every((value) => typeof value === 'number' || value === null || value === undefined) && values.some((value) => typeof value === 'number');
  if (isNumber) return numberColumn(key, title, unit, Float64Array.from(values, (value) => (typeof value === 'number' ? value : NaN)));
  const cells = values.map((value) => (typeof value === 'number' ? quantity(value, unit) : value === null || value === undefined ? '–' : value === true ? 'yes' : value === false ? 'no' : String(value)));
  return textColumn(key, title, cells, { filter: kFilters.has(key) });
}

const linesOf = (note: string): string[] => note.split('\n').filter((line) => line !== '');

/** `said`: what the table before it says, which need not be said again. */
function tablePanel(table: GenericTable, said: readonly string[]): HTMLElement {
  const columns = table.columns.map((column) => columnOf(table, column));
  const body = table.rows.length === 0 || columns.length === 0 ? absent('This table has no rows.')
    : new Table({ label: table.title, columns, length: table.rows.length, visibleRows: 12, search: table.rows.length > 12 }).element;
  return h('div', { class: 'panel', id: `table-${table.id}` }, h('h3', {}, table.title), ...linesOf(table.note).filter((line) => !said.includes(line)).map((line) => h('p', { class: 'note' }, line)), body);
}

/** Ticks say their units themselves, with prefixes. */
const axisTitle = ({ title, unit }: Axis): string => title || unitName(unit);
const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);

interface Shape {
  bars: boolean;
  stacked: boolean;
  shares: boolean;
  /** Names on the x axis, or null where x is a number. */
  categories: string[] | null;
  /** Bars lie on their side where names would not fit below them. */
  sideways: boolean;
}

const kBarHeight = 26;
const kMostBelow = 6; // names that stand side by side below bars
const kLongestBelow = 13;
const kMostBeside = 60;
/** More lines than these cannot be told apart at once; the others wait in the key. */
const kMostLines = 9;
const kMostTicks = 12;

function shapeOf(chart: GenericChart): Shape {
  const shares = chart.kind === 'stacked100';
  const stacked = shares || chart.kind === 'stacked';
  const bars = stacked || chart.kind === 'bar';
  const xs = chart.series.flatMap((series) => series.points.map(([x]) => x));
  const categories = bars || xs.some((x) => !isNumber(x)) ? [...new Set(xs.map((x) => (isNumber(x) ? quantity(x, chart.x.unit) : String(x))))] : null;
  const isLong = categories !== null && (categories.length > kMostBelow || categories.some((name) => name.length > kLongestBelow));
  return { bars, stacked, shares, categories, sideways: bars && isLong && categories.length <= kMostBeside };
}

function totalsOf(chart: GenericChart, shape: Shape): Map<string, number> {
  const totals = new Map<string, number>();
  for (const series of chart.series) for (const [x, y] of series.points) {
    const name = isNumber(x) && shape.categories ? quantity(x, chart.x.unit) : String(x);
    if (isNumber(y)) totals.set(name, (totals.get(name) ?? 0) + y);
  }
  return totals;
}

/** Lines through more points have no marks, which would hide them. */
const kMostMarks = 60;

/** What y should not exceed, across the chart. */
const limitLine = ({ y, name }: { y: number; name: string }, sideways: boolean): Option => ({
  symbol: 'none', silent: true, precision: 15, lineStyle: { color: token('bad'), type: 'dashed', width: 1.5 },
  label: { formatter: name, color: token('text'), fontSize: 11, position: sideways ? 'insideEndTop' : 'insideStartTop' }, data: [sideways ? { xAxis: y } : { yAxis: y }] });

function seriesOf(chart: GenericChart, shape: Shape, places: ReadonlyMap<string, number>, hidden: ReadonlySet<string>): Option[] {
  const totals = totalsOf(chart, shape);
  const first = chart.series.find((series) => !hidden.has(series.name))?.name;
  const place = (x: unknown): string | number => (shape.categories ? (isNumber(x) ? quantity(x, chart.x.unit) : String(x)) : (x as number));
  return chart.series.filter((series) => !hidden.has(series.name)).flatMap((series): Option[] => {
    const colour = token(`s${places.get(series.name)}`);
    const points = series.points.filter(([, y]) => isNumber(y) && (!chart.y.log || shape.stacked || y > 0));
    const data = points.map(([x, y, , , label]) => [place(x), shape.shares ? (y as number) / (totals.get(String(place(x))) || 1) : y, ...(label ? [String(label)] : [])]);
    const main: Option = {
      type: shape.bars ? 'bar' : chart.kind === 'points' && !series.line ? 'scatter' : 'line', showSymbol: !series.line && points.length <= kMostMarks, name: series.name, data: shape.sideways ? data.map(([x, y, ...label]) => [y, x, ...label]) : data, stack: shape.stacked ? 'all' : undefined,
      barMaxWidth: shape.sideways ? 20 : 40, symbolSize: 6, lineStyle: { width: 1.8 }, itemStyle: { color: colour, ...(shape.stacked ? { borderColor: token('panel'), borderWidth: 0.5 } : {}) },
      ...(chart.kind === 'points' && series.line ? { z: 1, silent: true } : {}), // what it joins lies above it, under the pointer, too
      emphasis: shape.bars ? {} : { focus: 'series' },
    };
    const ranges = points.filter((point) => isNumber(point[2]) && isNumber(point[3])).map((point) => [place(point[0]), point[2], point[3]]);
    if (chart.limit && series.name === first) main.markLine = limitLine(chart.limit, shape.sideways);
    return ranges.length > 0 && !shape.stacked ? [main, errorBars(series.name, ranges, colour, shape.sideways)] : [main];
  });
}

const kPlainUnits = new Set(['', 'ms', 'nats', 'C', 'flop/byte']);

/** "0.1 ms": the value of a tick, which is round. */
const tickText = (value: number, unit: string): string => (kPlainUnits.has(unit) && Math.abs(value) < 1e4 ? `${Number(value.toPrecision(4))} ${unitName(unit)}`.trim() : quantity(value, unit));

/** The sizes themselves as ticks of a logarithmic axis, of many every few: powers of ten would not be among them. */
function sizeTicks(chart: GenericChart): Option {
  const sizes = [...new Set(chart.series.flatMap((series) => series.points.map(([x]) => x).filter(isNumber)))].sort((a, b) => a - b);
  const every = Math.ceil(sizes.length / kMostTicks);
  return { customValues: sizes.filter((_, i) => (sizes.length - 1 - i) % every === 0) };
}

/** A line far above zero would be flat with zero in view. */
function isFarFromZero(chart: GenericChart): boolean {
  const ys = chart.series.flatMap((series) => series.points.map(([, y]) => y).filter(isNumber));
  return chart.kind === 'line' && Math.min(...ys) > 0.4 * Math.max(...ys);
}

function chartOption(chart: GenericChart, shape: Shape, series: Option[], room: number): Option {
  const label = { color: token('muted'), fontSize: 11 };
  const number = (a: Axis): Option => ({ type: a.log ? 'log' : 'value', axisLabel: { ...label, formatter: (value: number) => tickText(value, a.unit) } });
  const names: Option = { type: 'category', data: shape.categories };
  const sizes = number(chart.x);
  if (chart.x.log && chart.kind === 'line') Object.assign(sizes, { min: 'dataMin', max: 'dataMax', axisTick: sizeTicks(chart), axisLabel: { ...(sizes.axisLabel as Option), ...sizeTicks(chart) } });
  const x = axis({ ...(shape.categories ? names : sizes), name: shape.categories ? chart.x.title : axisTitle(chart.x) });
  // A line at a value makes no room for itself.
  const limit = chart.limit?.y;
  const amounts = number(chart.y);
  if (limit !== undefined) Object.assign(amounts, { max: ({ max }: { max: number }) => Math.max(max, 1.08 * limit), axisLabel: { ...(amounts.axisLabel as Option), showMaxLabel: false } });
  const y = axis({ ...(shape.shares ? { type: 'value', max: 1, axisLabel: { ...label, formatter: percent } } : { ...amounts, scale: isFarFromZero(chart) }), name: chart.y.title, nameGap: shape.sideways ? 28 : 66 });
  return {
    grid: shape.sideways ? { left: room + 14, right: 24, top: 8, bottom: 48 } : { left: 84, right: 24, top: 12, bottom: 48 },
    tooltip: tooltip({ trigger: 'item', formatter: (p: { seriesName: string; value: (string | number)[] }) => {
      const [at, amount] = shape.sideways ? [p.value[1], p.value[0]] : p.value;
      return tip(p.value[2] === undefined ? p.seriesName : String(p.value[2]), [[chart.x.title || 'x', isNumber(at) ? quantity(at, chart.x.unit) : String(at)],
                                [chart.y.title || 'y', shape.shares ? percent(Number(amount)) : quantity(Number(amount), chart.y.unit)]]);
    } }),
    xAxis: shape.sideways ? y : x,
    yAxis: shape.sideways ? axis({ ...names, inverse: true, splitLine: { show: false }, axisTick: { show: false },
                                   axisLabel: { color: token('text'), ...kLabel, width: room, overflow: 'break', interval: 0 } }) : y,
    series,
  };
}

function sheetOf(chart: GenericChart): Sheet {
  const y = chart.y.title || 'value';
  const hasLabels = chart.series.some(({ points }) => points.some((point) => point[4]));
  return { headings: ['series', heading(chart.x.title || 'x', chart.x.unit), heading(y, chart.y.unit), heading(`${y}, from`, chart.y.unit), heading(`${y}, to`, chart.y.unit), ...(hasLabels ? ['what'] : [])],
           rows: chart.series.flatMap(({ name, points }) => points.map(([x, y, low, high, label]) =>
             [name, isNumber(x) ? x : String(x), ...[y, low, high].map((value) => (isNumber(value) ? value : null)), ...(hasLabels ? [String(label ?? '')] : [])])) };
}

function drawing(chart: GenericChart): Child[] {
  const shape = shapeOf(chart);
  const names = [...new Set(chart.series.map((series) => series.name))];
  const places = placesOf(names);
  const hidden = new Set(shape.bars ? [] : names.slice(kMostLines));
  const view: Chart = new Chart(chart.title, 300, () => {
    const { width, lines } = labelRoom(shape.sideways ? shape.categories! : [], view.width);
    if (shape.sideways) view.setHeight(shape.categories!.length * Math.max(kBarHeight, lines * kLabel.lineHeight + 4) + 64);
    return chartOption(chart, shape, seriesOf(chart, shape, places, hidden), width);
  }, () => sheetOf(chart));
  const key = names.length > 1 || !shape.bars ? switchKey(names, (name) => `var(--s${places.get(name)})`, hidden, () => view.draw()) : null;
  return [view.element, key, hidden.size > 0 && h('p', { class: 'note' }, `The first ${kMostLines} lines are drawn; press a name to show or hide its line.`)];
}

/** `withNote`: the charts of a kind share their note. */
function chartPanel(chart: GenericChart, withNote = true): HTMLElement {
  const points = chart.series.reduce((sum, series) => sum + series.points.length, 0);
  return h('div', { class: 'panel', id: `chart-${chart.id}` }, h('h3', {}, chart.title), withNote && chart.note !== '' && h('p', { class: 'note' }, chart.note),
           ...(points === 0 ? [absent('This chart has no points.')] : drawing(chart)));
}

/** As many of one kind stand at once; a study of a dozen runs brings a dozen charts of each. */
const kAtOnce = 4;

/** Charts and tables of several runs are called "Op classes: T=64 warmup=1": kinds are what stands before the colon. */
function kindsOf<T extends { title: string }>(parts: readonly T[]): T[][] {
  const kinds = new Map<string, T[]>();
  for (const part of parts) {
    const kind = part.title.split(': ')[0]!;
    kinds.set(kind, [...(kinds.get(kind) ?? []), part]);
  }
  return [...kinds.values()];
}

/** The parts of a kind beyond the first few, made when they are asked for. */
function more<T>(parts: readonly T[], noun: string, show: (parts: readonly T[]) => HTMLElement): HTMLElement | null {
  if (parts.length === 0) return null;
  const all = h('details', { class: 'more' }, h('summary', {}, `${plural(parts.length, `more ${noun}`)} of this kind`));
  all.addEventListener('toggle', () => all.append(show(parts)), { once: true });
  return all;
}

export const charts: Section = {
  id: 'charts',
  title: 'Charts',
  lead: 'Further views, as charts.',
  build: ({ document }): Child[] => {
    if (document.charts.length === 0) return [absent('This report has no further charts.')];
    return kindsOf(document.charts).flatMap((kind): Child[] => {
      const isShared = kind.length > 1 && kind[0]!.note !== '' && kind.every((chart) => chart.note === kind[0]!.note);
      const show = (parts: readonly GenericChart[]): HTMLElement => h('div', { class: 'columns even' }, ...parts.map((chart) => chartPanel(chart, !isShared)));
      return [isShared && h('p', { class: 'note' }, kind[0]!.note), show(kind.slice(0, kAtOnce)), more(kind.slice(kAtOnce), 'chart', show)];
    });
  },
};

export const tables: Section = {
  id: 'tables',
  title: 'Tables',
  lead: 'Further views, as tables. Notes on how to read a view are above its first table.',
  build: ({ document }): Child[] => (document.tables.length === 0 ? [absent('This report has no further tables.')] : document.tables.map((table, i) => tablePanel(table, i > 0 ? linesOf(document.tables[i - 1]!.note) : []))),
};
