// Tables and charts that the document brings along, shown as they say.
import { axis, Chart, errorBars, legend, type Option, tip, tooltip } from '../chart';
import { colourOf } from '../colours';
import { type Column, numberColumn, textColumn } from '../columns';
import type { Axis, GenericChart, GenericTable } from '../document';
import { absent, type Child, h } from '../dom';
import { percent, plural, quantity } from '../format';
import { Table } from '../table';
import { token } from '../theme';
import type { Section } from './section';

/** A column is of numbers when every value in it is one or is missing. */
function columnOf(table: GenericTable, { key, title, unit }: GenericTable['columns'][number]): Column {
  const values = table.rows.map((row) => row[key]);
  const isNumber = values.every((value) => typeof value === 'number' || value === null || value === undefined) && values.some((value) => typeof value === 'number');
  if (isNumber) return numberColumn(key, title, unit, Float64Array.from(values, (value) => (typeof value === 'number' ? value : NaN)));
  return textColumn(key, title, values.map((value) => (typeof value === 'number' ? quantity(value, unit) : value === null || value === undefined ? '–' : String(value))));
}

function tablePanel(table: GenericTable): HTMLElement {
  const columns = table.columns.map((column) => columnOf(table, column));
  const body = table.rows.length === 0 || columns.length === 0 ? absent('This table has no rows.')
    : new Table({ label: table.title, columns, length: table.rows.length, visibleRows: 12, search: table.rows.length > 12 }).element;
  return h('div', { class: 'panel', id: `table-${table.id}` }, h('h3', {}, table.title), table.note !== '' && h('p', { class: 'note' }, table.note), body);
}

const axisTitle = ({ title, unit }: Axis): string => (unit !== '' && title !== '' ? `${title}, ${unit}` : title || unit);
const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);

interface Shape {
  bars: boolean;
  stacked: boolean;
  shares: boolean;
  /** Names on the x axis, or null where x is a number. */
  categories: string[] | null;
}

function shapeOf(chart: GenericChart): Shape {
  const shares = chart.kind === 'stacked100';
  const stacked = shares || chart.kind === 'stacked';
  const bars = stacked || chart.kind === 'bar';
  const xs = chart.series.flatMap((series) => series.points.map(([x]) => x));
  const categories = bars || xs.some((x) => !isNumber(x)) ? [...new Set(xs.map((x) => (isNumber(x) ? quantity(x, chart.x.unit) : String(x))))] : null;
  return { bars, stacked, shares, categories };
}

function totalsOf(chart: GenericChart, shape: Shape): Map<string, number> {
  const totals = new Map<string, number>();
  for (const series of chart.series) for (const [x, y] of series.points) {
    const name = isNumber(x) && shape.categories ? quantity(x, chart.x.unit) : String(x);
    if (isNumber(y)) totals.set(name, (totals.get(name) ?? 0) + y);
  }
  return totals;
}

function seriesOf(chart: GenericChart, shape: Shape): Option[] {
  const totals = totalsOf(chart, shape);
  const place = (x: unknown): string | number => (shape.categories ? (isNumber(x) ? quantity(x, chart.x.unit) : String(x)) : (x as number));
  return chart.series.flatMap((series): Option[] => {
    const colour = colourOf(series.name);
    const points = series.points.filter(([, y]) => isNumber(y) && (!chart.y.log || shape.stacked || y > 0));
    const data = points.map(([x, y]) => [place(x), shape.shares ? (y as number) / (totals.get(String(place(x))) || 1) : y]);
    const main: Option = {
      type: shape.bars ? 'bar' : 'line', name: series.name, data, stack: shape.stacked ? 'all' : undefined, barMaxWidth: 40,
      symbolSize: 6, lineStyle: { width: 1.8 }, itemStyle: { color: colour },
    };
    const ranges = points.filter((point) => isNumber(point[2]) && isNumber(point[3])).map((point) => [place(point[0]), point[2], point[3]]);
    return ranges.length > 0 && !shape.stacked ? [main, errorBars(series.name, ranges, colour)] : [main];
  });
}

function chartOption(chart: GenericChart): Option {
  const shape = shapeOf(chart);
  const number = (a: Axis): Option => ({ type: a.log ? 'log' : 'value', axisLabel: { color: token('muted'), fontSize: 11, formatter: (value: number) => quantity(value, a.unit) } });
  return {
    grid: { left: 84, right: 24, top: 40, bottom: 48 },
    legend: legend({ type: 'scroll', data: chart.series.map((series) => series.name) }),
    tooltip: tooltip({ trigger: 'item', formatter: (p: { seriesName: string; value: (string | number)[] }) => {
      const [x, y] = p.value;
      return tip(p.seriesName, [[chart.x.title || 'x', isNumber(x) ? quantity(x, chart.x.unit) : String(x)],
                                [chart.y.title || 'y', shape.shares ? percent(Number(y)) : quantity(Number(y), chart.y.unit)]]);
    } }),
    xAxis: axis({ ...(shape.categories ? { type: 'category', data: shape.categories } : number(chart.x)), name: shape.categories ? chart.x.title : axisTitle(chart.x), ...(chart.x.log && !shape.categories ? { min: 'dataMin', max: 'dataMax' } : {}) }),
    yAxis: axis({ ...(shape.shares ? { type: 'value', max: 1, axisLabel: { color: token('muted'), fontSize: 11, formatter: percent } } : number(chart.y)), name: chart.y.title, nameGap: 66 }),
    series: seriesOf(chart, shape),
  };
}

function chartPanel(chart: GenericChart): HTMLElement {
  const points = chart.series.reduce((sum, series) => sum + series.points.length, 0);
  return h('div', { class: 'panel', id: `chart-${chart.id}` }, h('h3', {}, chart.title), chart.note !== '' && h('p', { class: 'note' }, chart.note),
           points === 0 ? absent('This chart has no points.') : new Chart(chart.title, 300, () => chartOption(chart)).element);
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
    if (document.charts.length === 0) return [absent('No view of this report has a further chart.')];
    const show = (parts: readonly GenericChart[]): HTMLElement => h('div', { class: 'columns even' }, ...parts.map(chartPanel));
    return kindsOf(document.charts).flatMap((kind): Child[] => [show(kind.slice(0, kAtOnce)), more(kind.slice(kAtOnce), 'chart', show)]);
  },
};

export const tables: Section = {
  id: 'tables',
  title: 'Tables',
  lead: 'Further views, as tables.',
  build: ({ document }): Child[] => (document.tables.length === 0 ? [absent('No view of this report has a further table.')] : document.tables.map(tablePanel)),
};
