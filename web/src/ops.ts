// The ops of a run, ready to be sorted and drawn.
import { numbers, texts } from './columns';
import type { Run } from './document';

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
}

const made = new WeakMap<Run, Ops>();

function read(run: Run): Ops {
  const part = run.ops;
  const n = (key: string): Float64Array => numbers(part, key);
  const t = (key: string): Texts => texts(part, key);
  return {
    length: part.length, index: n('op'), kind: t('kind'), cls: t('class'), kernel: t('kernel'), name: t('name'), phase: t('phase'),
    scope: t('scope'), dtype: t('dtype'), shapes: t('shapes'), bound: t('bound'), recomputed: n('recomputed'), matmul: n('matmul_flop'),
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
