// What the details panel says of an op, of a block and of a phase.
import type { Block, Phase, Roof, Summary } from './document';
import { h } from './dom';
import { bytes, count, flop, flopPerSecond, interval, percent, quantity, seconds } from './format';
import { kLevels, type Ops } from './ops';

export interface DetailRow {
  name: string;
  value: string;
  /** A heading over the rows that follow; it has no value. */
  heading?: boolean;
}

export const row = (name: string, value: string): DetailRow => ({ name, value });
export const heading = (name: string): DetailRow => ({ name, value: '', heading: true });

export const rowElement = (detail: DetailRow): HTMLElement =>
  detail.heading ? h('tr', { class: 'heading' }, h('th', { colspan: 2, scope: 'colgroup' }, detail.name))
                 : h('tr', {}, h('th', { scope: 'row' }, detail.name), h('td', {}, detail.value));

export const known = (rows: readonly DetailRow[]): DetailRow[] => rows.filter((r) => r.heading === true || (r.value !== '' && r.value !== '–'));

export function opRows(ops: Ops, i: number): DetailRow[] {
  const text = (column: { codes: Uint32Array; names: string[] }): string => column.names[column.codes[i]!] ?? '';
  return known([
    heading('What'), row('op', `#${count(ops.index[i])}`), row('kind', text(ops.kind)), row('name', text(ops.name)), row('class', text(ops.cls)),
    row('kernel', text(ops.kernel)), row('phase', text(ops.phase)), row('scope', text(ops.scope)), row('data type', text(ops.dtype)),
    row('shapes', text(ops.shapes)), row('recomputed', ops.recomputed[i] === 1 ? 'yes' : 'no'),
    heading('Work, counted from shapes'), row('matmul', flop(ops.matmul[i])), row('elementwise', flop(ops.elementwise[i])),
    row('least bytes moved', bytes(ops.bytes[i])), row('intensity', quantity(ops.intensity[i], 'FLOP/B')), row('launches per step', count(ops.launches[i])),
    heading('Time per step'), row('device time', seconds(ops.device[i])), row('wall time', seconds(ops.wall[i])), row('shortest', seconds(ops.min[i])),
    row('longest', seconds(ops.max[i])), row('standard deviation', seconds(ops.std[i])), row('times measured', count(ops.instances[i])),
    row('share of the step', percent(ops.stepShare[i])),
    heading('Against the roof'), row('time at the roof', seconds(ops.roof[i])), row('bound by', text(ops.bound)),
    row('share of the roof', percent(ops.roofShare[i])), row('possible gain', seconds(ops.gain[i])),
    row('rate', flopPerSecond(ops.rate[i])), row('bandwidth', quantity(ops.bandwidth[i], 'byte/s')),
    ...countedRows(ops, i), ...whyRows(ops, i),
  ]);
}

function countedRows({ counted }: Ops, i: number): DetailRow[] {
  if (!counted) return [];
  const stall = counted.stall[i]!;
  return [
    heading('Counted by the hardware'), row('FLOP', flop(counted.flop[i])),
    ...kLevels.map((level) => row(`bytes at ${level.toUpperCase()}`, bytes(counted.bytes[level][i]))), row('L1 hits', percent(counted.l1Hits[i])),
    row('L2 hits', percent(counted.l2Hits[i])), row('tensor pipe active', percent(counted.tensorActive[i])),
    row('warps stalled on', stall === '' ? '' : `${stall.replaceAll('_', ' ')}, ${percent(counted.stallShare[i])}`),
  ];
}

/** Of all ops of its phase and part: what their time is spent on, and what would mend most of it. */
export function whyRows(ops: Ops, i: number): DetailRow[] {
  const why = ops.why(i);
  if (!why || why.causes.length === 0) return [];
  const mend = why.causes.find((cause) => cause.cause === why.bound)?.mend ?? '';
  return [heading(`Why ${why.part || 'it'}, ${why.phase} takes ${seconds(why.time_s)}`), row('bound by', `${why.bound}, by ${why.counted ? 'counters' : 'shapes'}`),
          ...why.causes.filter((cause) => (cause.seconds ?? 0) > 0).map((cause) => row(cause.cause, `${seconds(cause.seconds)}, ${percent((cause.seconds ?? 0) / (why.time_s ?? NaN))}`)),
          row('occupancy', percent(why.occupancy)), row('waves', quantity(why.waves, '')), row('warps stalled on', why.stall), row('what would help', mend)];
}

function roofRows(roof: Roof): DetailRow[] {
  return [
    heading('Work, counted from shapes'), row('matmul', flop(roof.matmul_flop)), row('elementwise', flop(roof.elementwise_flop)),
    row('least bytes moved', bytes(roof.bytes)), row('intensity', quantity(roof.intensity, 'FLOP/B')),
    heading('Against the roof'), row('measured', seconds(roof.measured_s)), row('time at the roof', seconds(roof.roof_s)), row('bound by', roof.bound ?? ''),
    row('share of the roof', percent(roof.share)), row('possible gain', seconds(roof.gain_s)),
    row('share of the step', percent(roof.step_share)), row('rate', flopPerSecond(roof.flop_per_s)),
    row('bandwidth', quantity(roof.byte_per_s, 'byte/s')),
  ];
}

export function summaryRows(summary: Summary | null): DetailRow[] {
  if (!summary) return [];
  return [
    heading('Time, over samples'), row('median', seconds(summary.median_s)), row('interval of the median', interval(summary.ci_low_s, summary.ci_high_s)),
    row('mean', seconds(summary.mean_s)), row('standard deviation', seconds(summary.std_s)), row('median absolute deviation', seconds(summary.mad_s)),
    row('shortest', seconds(summary.min_s)), row('longest', seconds(summary.max_s)), row('samples', count(summary.samples)), row('outliers', count(summary.outliers)),
  ];
}

export function blockRows(block: Block): DetailRow[] {
  return known([
    heading('What'), row('block', block.block), row('phase', block.phase), row('ops', count(block.ops)), row('launches', count(block.launches)),
    row('device time', seconds(block.device_s)), row('wall time', seconds(block.wall_s)), row('gap per launch', seconds(block.gap_s)), ...roofRows(block),
  ]);
}

export const phaseRows = (phase: Phase): DetailRow[] => known([...summaryRows(phase.time), ...roofRows(phase)]);
