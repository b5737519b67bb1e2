// The ops of a run, ready to be summed, sorted and drawn.
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
  /** The time that charts and shares use: on the device where it was measured, else on the clock of the host. */
  time: Float64Array;
  timeName: 'device time' | 'wall time';
}

const made = new WeakMap<Run, Ops>();

function read(run: Run): Ops {
  const part = run.ops;
  const n = (key: string): Float64Array => numbers(part, key);
  const t = (key: string): Texts => texts(part, key);
  const [device, wall] = [n('device_s'), n('wall_s')];
  const hasDevice = device.some((value) => value > 0);
  return {
    length: part.length, index: n('op'), kind: t('kind'), cls: t('class'), kernel: t('kernel'), name: t('name'), phase: t('phase'),
    scope: t('scope'), dtype: t('dtype'), shapes: t('shapes'), bound: t('bound'), recomputed: n('recomputed'), matmul: n('matmul_flop'),
    elementwise: n('elementwise_flop'), bytes: n('bytes'), launches: n('launches'), instances: n('instances'), device, wall,
    min: n('min_s'), max: n('max_s'), std: n('std_s'), roof: n('roof_s'), time: hasDevice ? device : wall,
    timeName: hasDevice ? 'device time' : 'wall time',
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

const orZero = (value: number): number => (Number.isNaN(value) ? 0 : value);

/** Work of op `i` in flop: products and the rest. */
export const flopAt = (ops: Ops, i: number): number => orZero(ops.matmul[i]!) + orZero(ops.elementwise[i]!);

/** A name for op `i` that says where it stands: "h.3/attention/qk matmul". */
export function opTitle(ops: Ops, i: number): string {
  const scope = ops.scope.names[ops.scope.codes[i]!] ?? '';
  const kind = ops.kind.names[ops.kind.codes[i]!] ?? '';
  return [scope, kind].filter((part) => part !== '').join(' ') || `op ${ops.index[i]}`;
}
