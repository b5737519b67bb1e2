// Sums over the ops that run the same kernel, as nsys' cuda_gpu_kern_sum has them.
import type { Ops } from '../ops';

export interface KernelRow {
  name: string;
  share: number;
  /** Seconds per step. */
  total: number;
  /** Executions per step. */
  instances: number;
  average: number;
  median: number;
  min: number;
  max: number;
  std: number;
}

/** The value below which half of the weight lies. */
function weightedMedian(pairs: { value: number; weight: number }[]): number {
  const sorted = [...pairs].sort((a, b) => a.value - b.value);
  const half = sorted.reduce((sum, pair) => sum + pair.weight, 0) / 2;
  let below = 0;
  for (const { value, weight } of sorted) {
    below += weight;
    if (below >= half) return value;
  }
  return NaN;
}

function kernelRow(name: string, members: readonly number[], ops: Ops, all: number): KernelRow {
  let [total, instances, squares, min, max] = [0, 0, 0, Infinity, -Infinity];
  const each: { value: number; weight: number }[] = [];
  for (const i of members) {
    const time = ops.time[i]!;
    if (Number.isNaN(time)) continue;
    const launches = Math.max(1, ops.launches[i]! || 1);
    const one = time / launches;
    total += time;
    instances += launches;
    each.push({ value: one, weight: launches });
    min = Math.min(min, (Number.isNaN(ops.min[i]!) ? time : ops.min[i]!) / launches);
    max = Math.max(max, (Number.isNaN(ops.max[i]!) ? time : ops.max[i]!) / launches);
    const std = (ops.std[i]! || 0) / launches;
    squares += launches * (one * one + std * std);
  }
  const average = total / instances;
  return { name, share: total / all, total, instances, average, median: weightedMedian(each), min, max,
           std: Math.sqrt(Math.max(0, squares / instances - average * average)) };
}

/** Kernels by name; an op without one stands under its kind. */
export function kernelRows(ops: Ops): KernelRow[] {
  const groups = new Map<string, number[]>();
  let all = 0;
  for (let i = 0; i < ops.length; ++i) {
    const name = ops.kernel.names[ops.kernel.codes[i]!] || ops.kind.names[ops.kind.codes[i]!] || '(unnamed)';
    const members = groups.get(name);
    if (members) members.push(i);
    else groups.set(name, [i]);
    if (!Number.isNaN(ops.time[i]!)) all += ops.time[i]!;
  }
  return [...groups].map(([name, members]) => kernelRow(name, members, ops, all)).filter((row) => row.instances > 0);
}
