// The ops of a run, ready to be sorted and drawn.
import { numbers, texts } from './columns';
import type { Run, Why } from './document';

export interface Texts {
  codes: Uint32Array;
  names: string[];
}

export interface Ops {
  length: number;
  index: Float64Array;
  kind: Texts;
  cls: Texts;
  kernel: Texts;
  name: Texts;
  phase: Texts;
  scope: Texts;
  dtype: Texts;
  shapes: Texts;
  bound: Texts;
  recomputed: Float64Array;
  matmul: Float64Array;
  elementwise: Float64Array;
  bytes: Float64Array;
  launches: Float64Array;
  instances: Float64Array;
  device: Float64Array;
  wall: Float64Array;
  min: Float64Array;
  max: Float64Array;
  std: Float64Array;
  roof: Float64Array;
  flop: Float64Array;
  intensity: Float64Array;
  /** flop/s */
  rate: Float64Array;
  /** byte/s */
  bandwidth: Float64Array;
  /** Of the median step. */
  stepShare: Float64Array;
  /** Time at the roof / device time. */
  roofShare: Float64Array;
  gain: Float64Array;
  counted: Counted | null;
  /** Why the ops of its phase and part are not faster; null where nothing says so. */
  why: (op: number) => Why | null;
}

/** What hardware counted, by row of the ops; NaN where it did not. */
export interface Counted {
  flop: Float64Array;
  /** flop/s */
  rate: Float64Array;
  bytes: Record<Level, Float64Array>;
  intensity: Record<Level, Float64Array>;
  tensorActive: Float64Array;
  l1Hits: Float64Array;
  l2Hits: Float64Array;
  /** What warps stalled on most, and for which share of their time. */
  stall: string[];
  stallShare: Float64Array;
}

/** Levels of the memory of a device. */
export type Level = 'dram' | 'l2' | 'l1';
export const kLevels: readonly Level[] = ['dram', 'l2', 'l1'];

/** "attention/qk" of "h.3/attention/qk", as rooflm names parts. */
export const partOf = (scope: string): string => scope.replace(/^h\.\d+\//, '').replace(/^h\.\d+$/, 'layer');

function readCounted(run: Run, index: Float64Array): Counted | null {
  const part = run.counted;
  if (part.length === 0) return null;
  const rowOf = new Map(Array.from(index, (number, row) => [number, row] as const));
  const rows = Array.from(numbers(part, 'op'), (op) => rowOf.get(op) ?? -1);
  const n = (key: string): Float64Array => {
    const [values, spread] = [numbers(part, key), new Float64Array(index.length).fill(NaN)];
    rows.forEach((row, i) => { if (row >= 0) spread[row] = values[i]!; });
    return spread;
  };
  const byLevel = (suffix: string): Record<Level, Float64Array> => ({ dram: n(`dram_${suffix}`), l2: n(`l2_${suffix}`), l1: n(`l1_${suffix}`) });
  const stalls = texts(part, 'stall');
  const stall = Array.from({ length: index.length }, () => '');
  rows.forEach((row, i) => { if (row >= 0) stall[row] = stalls.names[stalls.codes[i]!]!; });
  return { flop: n('flop'), rate: n('flop_per_s'), bytes: byLevel('bytes'), intensity: byLevel('intensity'), tensorActive: n('tensor_active'),
           l1Hits: n('l1_hit_share'), l2Hits: n('l2_hit_share'), stall, stallShare: n('stall_share') };
}

const made = new WeakMap<Run, Ops>();

function read(run: Run): Ops {
  const part = run.ops;
  const n = (key: string): Float64Array => numbers(part, key);
  const t = (key: string): Texts => texts(part, key);
  const [index, phase, scope] = [n('op'), t('phase'), t('scope')];
  const whys = new Map(run.why.map((why) => [`${why.phase} ${why.part}`, why]));
  return {
    counted: readCounted(run, index),
    why: (op) => whys.get(`${phase.names[phase.codes[op]!]} ${partOf(scope.names[scope.codes[op]!] ?? '')}`) ?? null,
    length: part.length, index, kind: t('kind'), cls: t('class'), kernel: t('kernel'), name: t('name'), phase,
    scope, dtype: t('dtype'), shapes: t('shapes'), bound: t('bound'), recomputed: n('recomputed'), matmul: n('matmul_flop'),
    elementwise: n('elementwise_flop'), bytes: n('bytes'), launches: n('launches'), instances: n('instances'), device: n('device_s'), wall: n('wall_s'),
    min: n('min_s'), max: n('max_s'), std: n('std_s'), roof: n('roof_s'), flop: n('flop'), intensity: n('intensity'),
    rate: n('flop_per_s'), bandwidth: n('byte_per_s'), stepShare: n('step_share'), roofShare: n('roof_share'), gain: n('gain_s'),
  };
}

export function opsOf(run: Run): Ops {
  let ops = made.get(run);
  if (!ops) {
    ops = read(run);
    made.set(run, ops);
  }
  return ops;
}

/** A name for op `i` that says where it stands: "h.3/attention/qk matmul". */
export function opTitle(ops: Ops, i: number): string {
  const scope = ops.scope.names[ops.scope.codes[i]!] ?? '';
  const kind = ops.kind.names[ops.kind.codes[i]!] ?? '';
  return [scope, kind].filter((part) => part !== '').join(' ') || `op ${ops.index[i]}`;
}
