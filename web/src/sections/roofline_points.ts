// The points of the roofline: ops, blocks and phases with their intensity and their rate.
import type { Roof, Run } from '../document';
import type { Level as MemoryLevel, Ops } from '../ops';

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
  /** What bytes and FLOP are: those of shapes, or those that hardware counted at a level of memory. */
  bytes: 'shapes' | MemoryLevel;
}

/** Where ops stand: FLOP per byte and FLOP per second. */
export function placesOf(ops: Ops, bytes: Filter['bytes']): { intensity: Float64Array; rate: Float64Array } {
  if (bytes === 'shapes' || !ops.counted) return { intensity: ops.intensity, rate: ops.rate };
  return { intensity: ops.counted.intensity[bytes], rate: ops.counted.rate };
}

/** Whether a logarithmic chart has a place for them. */
const hasPlace = (intensity: number | null, rate: number | null): boolean => (intensity ?? 0) > 0 && (rate ?? 0) > 0;
export const opHasPlace = (places: { intensity: Float64Array; rate: Float64Array }, i: number): boolean => hasPlace(places.intensity[i]!, places.rate[i]!);

export function opPoints(ops: Ops, filter: Filter): PointSet[] {
  const wantedPhase = ops.phase.names.map((name) => filter.phases.has(name));
  const wantedClass = ops.cls.names.map((name) => filter.classes.has(name));
  const places = placesOf(ops, filter.bytes);
  const found = ops.cls.names.map(() => ({ points: [] as number[], subjects: [] as number[] }));
  for (let i = 0; i < ops.length; ++i) {
    const cls = ops.cls.codes[i]!;
    if (!wantedPhase[ops.phase.codes[i]!] || !wantedClass[cls]) continue;
    if (!opHasPlace(places, i)) continue;
    found[cls]!.points.push(places.intensity[i]!, places.rate[i]!);
    found[cls]!.subjects.push(i);
  }
  return found.map(({ points, subjects }, cls) => ({
    level: 'ops', name: ops.cls.names[cls]!, points: Float64Array.from(points), subjects: Uint32Array.from(subjects) }));
}

function roofPoints<T extends Roof & { phase: string }>(level: Level, items: readonly T[], filter: Filter): PointSet {
  const points: number[] = [];
  const subjects: number[] = [];
  items.forEach((item, index) => {
    if (!filter.phases.has(item.phase)) return;
    if (!hasPlace(item.intensity, item.flop_per_s)) return;
    points.push(item.intensity!, item.flop_per_s!);
    subjects.push(index);
  });
  return { level, name: level, points: Float64Array.from(points), subjects: Uint32Array.from(subjects) };
}

export function pointSets(run: Run, ops: Ops, filter: Filter): PointSet[] {
  const sets: PointSet[] = [];
  if (filter.levels.has('ops')) sets.push(...opPoints(ops, filter));
  if (filter.bytes !== 'shapes') return sets.filter((set) => set.subjects.length > 0); // counters are of ops
  if (filter.levels.has('blocks')) sets.push(roofPoints('blocks', run.blocks, filter));
  if (filter.levels.has('phases')) {
    // A set each: the labels of phases that lie close to each other then go to different sides.
    const phases = roofPoints('phases', run.phases, filter);
    phases.subjects.forEach((subject, i) => sets.push({
      level: 'phases', name: run.phases[subject]!.phase, points: phases.points.slice(2 * i, 2 * i + 2), subjects: Uint32Array.of(subject) }));
  }
  return sets.filter((set) => set.subjects.length > 0);
}
