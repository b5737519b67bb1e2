// What a span of time holds: time of each class, alone and beside others, and idle time. Nothing is counted twice.
import type { TimelineModel } from './model';

export interface ClassSum {
  name: string;
  events: number;
  /** All durations together, cut at the ends of the span. */
  total: number;
  /** While nothing else ran on the device. */
  alone: number;
}

/** A device, of several ranks that of one. */
interface Place {
  device: string;
  rank: number | null;
}

const isOf = (place: Place, lane: Place | undefined): boolean => lane?.device === place.device && lane.rank === place.rank;

/** Of one device: alone of all classes + shared + idle = observed. Nanoseconds. */
export interface Sums {
  device: string;
  /** The part of the span that lies in steps; all of it where there are none. */
  observed: number;
  busy: number;
  /** While two or more events ran at once. */
  shared: number;
  idle: number;
  classes: ClassSum[];
  /** Parts of the idle time by their causes, where they are known. */
  causes: { name: string; ns: number }[];
}

/** Parts of [from, to] in which the device was watched. */
function watched(model: TimelineModel, from: number, to: number): [number, number][] {
  if (model.data.steps.length === 0) return [[from, to]];
  return model.data.steps.map((step): [number, number] => [Math.max(from, step.start_ns), Math.min(to, step.end_ns)]).filter(([a, b]) => b > a);
}

/** Whether an event is idle time with its cause. Where only copies run no kernel does, but the device is not idle. */
const isCause = (model: TimelineModel, event: number, place: Place): boolean => {
  const lane = model.data.lanes[model.lane[event]!];
  return lane?.kind === 'idle' && isOf(place, lane) && model.text(event) !== 'copy';
};

function sumsOf(model: TimelineModel, place: Place, spans: readonly [number, number][]): Sums {
  const classes = model.data.classes.map((name): ClassSum => ({ name, events: 0, total: 0, alone: 0 }));
  const device = [place.rank === null ? '' : `rank ${place.rank}`, place.device].filter((part) => part !== '').join(', ');
  const sums: Sums = { device, observed: 0, busy: 0, shared: 0, idle: 0, classes: [], causes: [] };
  const causes = new Map<string, number>();
  for (const [from, to] of spans) {
    sums.observed += to - from;
    let running: number[] = []; // events, few at a time
    let now = from;
    /** Gives the time from `now` to `until` to what runs. */
    const advance = (until: number): void => {
      while (now < until && running.length > 0) {
        const next = running.reduce((least, event) => Math.min(least, model.end[event]!), until);
        const length = next - now;
        sums.busy += length;
        if (running.length > 1) sums.shared += length;
        else classes[model.cls[running[0]!]!]!.alone += length;
        now = next;
        running = running.filter((event) => model.end[event]! > now);
      }
      now = Math.max(now, until);
    };
    for (let i = 0; i < model.count && model.start[i]! < to; ++i) {
      const [start, end] = [Math.max(from, model.start[i]!), Math.min(to, model.end[i]!)];
      if (end > start && isCause(model, i, place)) causes.set(model.text(i), (causes.get(model.text(i)) ?? 0) + end - start);
      if (end <= start || !model.isWork(i) || !isOf(place, model.data.lanes[model.lane[i]!]) || model.cls[i]! < 0) continue;
      const sum = classes[model.cls[i]!]!;
      sum.events += 1;
      sum.total += end - start;
      advance(start);
      running.push(i);
    }
    advance(to);
  }
  sums.idle = sums.observed - sums.busy;
  sums.causes = [...causes].map(([name, ns]) => ({ name, ns })).sort((a, b) => b.ns - a.ns);
  sums.classes = classes.filter((sum) => sum.events > 0).sort((a, b) => b.total - a.total);
  return sums;
}

/** Sums of each device with lanes of work, in the order of the lanes. */
export function sumsIn(model: TimelineModel, from: number, to: number): Sums[] {
  const spans = watched(model, from, to);
  const places: Place[] = [];
  for (const lane of model.data.lanes) if (lane.kind === 'device' && !places.some((place) => isOf(place, lane))) places.push(lane);
  return places.map((place) => sumsOf(model, place, spans));
}
