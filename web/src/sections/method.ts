// How it was measured and how sure it is: samples, intervals, facts, the method's sentences and the environment.
import { axis, Chart, type Option, tip, tooltip } from '../chart';
import { colourOf } from '../colours';
import { numberColumn, numbers, numbersFrom, textAt, textColumn, texts } from '../columns';
import type { Run } from '../document';
import { absent, type Child, choice, h } from '../dom';
import { count, quantity, seconds } from '../format';
import { heading, type Sheet } from '../save';
import { Table } from '../table';
import { token } from '../theme';
import type { Section } from './section';

function summaries(run: Run): Child {
  const rows = [{ name: 'step', time: run.step }, ...run.phases.map((phase) => ({ name: phase.phase, time: phase.time }))].filter((row) => row.time !== null);
  if (rows.length === 0) return absent('There are no summaries of samples.');
  const n = (key: 'median_s' | 'ci_low_s' | 'ci_high_s' | 'mean_s' | 'std_s' | 'mad_s' | 'min_s' | 'max_s' | 'samples' | 'outliers'): Float64Array => numbersFrom(rows, (row) => row.time![key]);
  const table = new Table({
    label: 'Times and their spread', length: rows.length, search: false,
    columns: [
      textColumn('name', 'what', rows.map((row) => row.name)), numberColumn('median', 'median', 's', n('median_s')),
      numberColumn('low', 'from', 's', n('ci_low_s'), 'Lower end of the interval of the median'), numberColumn('high', 'to', 's', n('ci_high_s'), 'Upper end of the interval of the median'),
      numberColumn('mean', 'mean', 's', n('mean_s')), numberColumn('std', 'std', 's', n('std_s')), numberColumn('mad', 'MAD', 's', n('mad_s'), 'Median absolute deviation'),
      numberColumn('min', 'min', 's', n('min_s')), numberColumn('max', 'max', 's', n('max_s')), numberColumn('samples', 'samples', '', n('samples')),
      numberColumn('outliers', 'outliers', '', n('outliers')),
    ],
  });
  return h('div', { class: 'panel' }, h('h3', {}, 'Times and their spread'), table.element);
}

/** ECharts rounds where lines stand, to hundredths unless it is told. */
const kExact = 15;

function samplesOption(run: Run, phase: string): Option {
  const [step, value] = [numbers(run.samples, 'step'), numbers(run.samples, 'seconds')];
  const [phases, kinds] = [texts(run.samples, 'phase'), texts(run.samples, 'kind')];
  const outlier = numbers(run.samples, 'outlier');
  const rows = [...step.keys()].filter((i) => textAt(phases, i) === phase);
  const group = (name: string, colour: string, symbol: string, wanted: (i: number) => boolean): Option => ({
    type: 'scatter', name, symbol, symbolSize: 6, progressive: 0, itemStyle: { color: colour, opacity: 0.8 }, data: rows.filter(wanted).map((i) => [step[i], value[i]]) });
  const plain = (i: number): boolean => textAt(kinds, i) === 'plain' || textAt(kinds, i) === '';
  const time = phase === 'step' ? run.step : run.phases.find((p) => p.phase === phase)?.time;
  const lines = [time?.median_s, time?.ci_low_s, time?.ci_high_s].filter((at) => typeof at === 'number');
  const main = group('sample', phase === 'step' ? token('accent') : colourOf(phase), 'circle', (i) => plain(i) && outlier[i] !== 1);
  return {
    grid: { left: 84, right: 24, top: 14, bottom: 44 },
    tooltip: tooltip({ trigger: 'item', formatter: (p: { seriesName: string; value: [number, number] }) => tip(p.seriesName, [['step', count(p.value[0])], ['time', seconds(p.value[1], 4)]]) }),
    xAxis: axis({ type: 'value', name: 'step', splitLine: { show: false } }),
    yAxis: axis({ type: 'value', scale: true, axisLabel: { color: token('muted'), fontSize: 11, formatter: (at: number) => seconds(at, 4) } }),
    series: [
      { ...main, markLine: { symbol: 'none', silent: true, precision: kExact, label: { show: false }, data: lines.map((at, i) => ({ yAxis: at,
        lineStyle: { color: token('text'), type: i === 0 ? 'solid' : 'dashed', width: 1 } })) } },
      group('outlier', token('bad'), 'triangle', (i) => plain(i) && outlier[i] === 1),
      group('not counted: warm-up or observed', token('muted'), 'emptyCircle', (i) => !plain(i)),
    ],
  };
}

function samplesSheet(run: Run): Sheet {
  const [step, value, outlier] = [numbers(run.samples, 'step'), numbers(run.samples, 'seconds'), numbers(run.samples, 'outlier')];
  const [phases, kinds] = [texts(run.samples, 'phase'), texts(run.samples, 'kind')];
  return { headings: ['phase', 'step', heading('time', 's'), 'kind', 'outlier'],
           rows: [...step.keys()].map((i) => [textAt(phases, i), step[i], value[i], textAt(kinds, i), outlier[i]]) };
}

function samples(run: Run): Child {
  if (run.samples.length === 0) return absent('This report has no individual samples.');
  const { names } = texts(run.samples, 'phase');
  let phase = names.includes('step') ? 'step' : names[0]!;
  const chart = new Chart('Samples in the order they were taken', 260, () => samplesOption(run, phase), () => samplesSheet(run));
  return h('div', { class: 'panel' }, h('h3', {}, 'Samples in the order they were taken'),
           choice('Phase', names.map((name) => [name, name] as const), phase, (value) => { phase = value; chart.draw(); }), chart.element,
           h('p', { class: 'note' }, 'The solid line is the median, the dashed ones are its interval; triangles are outliers, rings are samples that no summary includes.'));
}

function facts(run: Run): Child {
  const entries = Object.entries(run.facts);
  if (entries.length === 0) return null;
  const items = entries.flatMap(([key, fact]): Child[] => [h('dt', {}, key.replaceAll('_', ' ')),
    h('dd', {}, [fact.value === null ? '' : quantity(fact.value, fact.unit), fact.text].filter((part) => part !== '').join(', ') || '–')]);
  return h('div', { class: 'panel' }, h('h3', {}, 'Facts of the run'), h('dl', { class: 'facts' }, ...items));
}

export const method: Section = {
  id: 'method',
  title: 'Method and certainty',
  lead: 'How the numbers were measured, and how certain they are.',
  build: ({ document, run }): Child[] => [
    run.method.length + document.method.length > 0 ? h('ul', { class: 'method' }, ...[...run.method, ...document.method].map((sentence) => h('li', {}, sentence)))
      : absent('This report does not say how it was measured.'),
    summaries(run), samples(run), facts(run)],
};

export const environment: Section = {
  id: 'environment',
  title: 'Environment',
  lead: 'The machine and the software that the numbers apply to.',
  build: ({ document }): Child[] => {
    if (document.environment.length === 0) return [absent('The environment was not recorded, so these numbers cannot be attributed to a machine.')];
    const valueText = (value: string, unit: string): string => (unit !== '' && value !== '' && Number.isFinite(Number(value)) ? quantity(Number(value), unit) : [value, unit].filter((part) => part !== '').join(' '));
    const items = document.environment.flatMap(({ key, value, unit }): Child[] => [h('dt', {}, key.replaceAll('_', ' ')), h('dd', {}, valueText(value, unit) || '–')]);
    return [h('div', { class: 'panel' }, h('dl', { class: 'facts wide' }, ...items))];
  },
};
