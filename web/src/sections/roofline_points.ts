// The points of the roofline: ops, blocks and phases with their intensity and their rate.
import type { Roof, Run } from '../document';
import { flopAt, type Ops } from '../ops';
import { blockTime } from './breakdown';

export type Level = 'ops' | 'blocks' | 'phases';

/** Points of one colour: pairs (flop per byte, flop/s), and which op, block or phase each one is. */
export interface PointSet {
  level: Level;
  name: string;
  points: Float64Array;
  subjects: Uint32Array;
}

export interface Filter {
  levels: ReadonlySet<string>;
  phases: ReadonlySet<string>;
  classes: ReadonlySet<string>;
}

/** Intensity and rate, or nothing where a logarithmic chart has no place for them. */
function place(work: number, moved: number, time: number): [number, number] | null {
  return work > 0 && moved > 0 && time > 0 ? [work / moved, work / time] : null;
}

export function opPoints(ops: Ops, filter: Filter): PointSet[] {
  const wantedPhase = ops.phase.names.map((name) => filter.phases.has(name));
  const wantedClass = ops.cls.names.map((name) => filter.classes.has(name));
  const found = ops.cls.names.map(() => ({ points: [] as number[], subjects: [] as number[] }));
  for (let i = 0; i < ops.length; ++i) {
    const cls = ops.cls.codes[i]!;
    if (!wantedPhase[ops.phase.codes[i]!] || !wantedClass[cls]) continue;
    const at = place(flopAt(ops, i), ops.bytes[i]!, ops.time[i]!);
    if (!at) continue;
    found[cls]!.points.push(at[0], at[1]);
    found[cls]!.subjects.push(i);
  }
  return found.map(({ points, subjects }, cls) => ({
    level: 'ops', name: ops.cls.names[cls]!, points: Float64Array.from(points), subjects: Uint32Array.from(subjects) }));
}

function roofPoints<T extends Roof & { phase: string }>(level: Level, items: readonly T[], filter: Filter, time: (item: T) => number | null): PointSet {
  const points: number[] = [];
  const subjects: number[] = [];
  items.forEach((item, index) => {
    if (!filter.phases.has(item.phase)) return;
    const at = place((item.matmul_flop ?? 0) + (item.elementwise_flop ?? 0), item.bytes ?? 0, time(item) ?? 0);
    if (!at) return;
    points.push(...at);
    subjects.push(index);
  });
  return { level, name: level, points: Float64Array.from(points), subjects: Uint32Array.from(subjects) };
}

export function pointSets(run: Run, ops: Ops, filter: Filter): PointSet[] {
  const sets: PointSet[] = [];
  if (filter.levels.has('ops')) sets.push(...opPoints(ops, filter));
  if (filter.levels.has('blocks')) sets.push(roofPoints('blocks', run.blocks, filter, blockTime));
  if (filter.levels.has('phases')) {
    // A set each: the labels of phases that lie close to each other then go to different sides.
    const phases = roofPoints('phases', run.phases, filter, (phase) => phase.measured_s ?? phase.time?.median_s ?? null);
    phases.subjects.forEach((subject, i) => sets.push({
      level: 'phases', name: run.phases[subject]!.phase, points: phases.points.slice(2 * i, 2 * i + 2), subjects: Uint32Array.of(subject) }));
  }
  return sets.filter((set) => set.subjects.length > 0);
}
