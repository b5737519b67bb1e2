// Which colour stands for what: the same name has the same colour in every chart of the page.
import { token } from './theme';

const kSeries = 12;
const kAll = 16; // the paler ones at the end are for names that are known

// Known names get fixed places, so that two reports can be held beside each other.
const kFixed: Record<string, number> = {
  forward: 0, backward: 1, optimizer: 2, step: 7, communication: 5,
  matmul: 0, gemm: 0, attention: 3, softmax: 4, norm: 10, elementwise: 1, reduction: 6, loss: 8, embedding: 13, copy: 9, cast: 12, collective: 5, convolution: 11, pooling: 14,
  unknown: 7, api: 7, sync: 6, range: 12, overhead: 13,
  'idle: host': 4, 'idle: dependency': 7, 'idle: queued': 10, 'idle: copy': 9, 'idle: sync': 6, 'idle: tracing': 13, 'idle: stall': 14, 'idle: unknown': 7, 'exposed: transfer': 5, 'exposed: waiting': 4,
  arithmetic: 0, 'DRAM bandwidth': 1, 'L2 bandwidth': 6, launch: 4, tail: 9, clock: 5, latency: 7,
  compute: 0, 'slowed by overlap': 12, 'exposed communication': 14, host: 4, waiting: 9, bubble: 7,
  'idle: exposed communication': 14, 'idle: waiting': 9, 'idle: bubble': 7, 'communication buffers': 5, fragmentation: 7, context: 12,
  computation: 0, 'exposed collectives': 5, 'unknown: no price': 7, 'in kernels': 0, 'between kernels': 4,
  weight: 0, optimizer_state: 2, cache: 6, activation: 1, gradient: 3, activation_gradient: 10, workspace: 4, input: 7, result: 8,
  feed_forward: 1, 'attention/qkv': 0, 'attention/qk': 11, 'attention/softmax': 4, 'attention/v': 9, 'attention/proj': 12, 'attention/flash': 3,
  qkv: 0, qk: 11, v: 9, proj: 12, flash: 3, looped: 1, batched: 0, big: 2, eager: 1, fused: 0,
  'feed_forward/fc1': 1, 'feed_forward/act': 5, 'feed_forward/fc2': 6,
  // Blocks stand side by side in one bar: all of them differ.
  ln1: 10, ln2: 9, ln_f: 6, residual1: 7, residual2: 11, lm_head: 14,
};
const assigned = new Map<string, number>(Object.entries(kFixed));
let next = 0;

export function colourOf(name: string): string {
  let index = assigned.get(name);
  if (index === undefined) {
    index = next++ % kSeries;
    assigned.set(name, index);
  }
  return token(`s${index}`);
}

/**
 * Places of the colours of one chart's names: their own, and another where two of the chart would look the same. From kAll names on
 * some are shared.
 */
export function placesOf(names: readonly string[]): Map<string, number> {
  const places = new Map<string, number>();
  const taken = new Set<number>();
  const give = (name: string, place: number): void => {
    places.set(name, place);
    taken.add(place);
  };
  names.forEach(colourVariable);
  for (const name of names) if (name in kFixed && !taken.has(kFixed[name]!)) give(name, kFixed[name]!);
  for (const name of names) {
    if (places.has(name)) continue;
    let place = assigned.get(name)!;
    for (let i = 0; i < kAll && taken.has(place); ++i) place = (place + 1) % kAll;
    give(name, place);
  }
  return places;
}

/** The style sheet's variable for the colour of `name`: follows the theme without being drawn again. */
export function colourVariable(name: string): string {
  colourOf(name);
  return `var(--s${assigned.get(name)})`;
}
