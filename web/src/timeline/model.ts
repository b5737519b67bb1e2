// The events of a timeline, ready to be drawn, found and summed up.
import type { Run, Timeline } from '../document';
import { type Ops, opsOf } from '../ops';
import { unpack } from './packed';

/** A line of bars that do not overlap, by start. */
export interface Row {
  /** Place among the tracks. */
  track: number;
  events: Uint32Array;
}

/** What is drawn as one lane: a lane, or many of which each has little. */
export interface LaneGroup {
  label: string;
  kind: string;
  rank: number | null;
}

export interface Series {
  name: string;
  device: string;
  unit: string;
  time: Float64Array;
  value: Float64Array;
  least: number;
  most: number;
}

/** What colours events: a place in `names` for each. */
export interface Colouring {
  codes: Uint16Array;
  names: string[];
}

const kMostRows = 8;
const kMostLanes = 8; // of a kind and device; a replayed graph has a stream per branch
const kKeptLanes = 3; // that stay by themselves where there are more

/** The first place whose value is greater than `limit`, of values in order. */
export function after(length: number, value: (place: number) => number, limit: number): number {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(middle) > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

function column(data: Timeline, key: string): Float64Array {
  const values = unpack(data.events.columns[key], data.events.count);
  if (!values) throw new RangeError(`column ${key} of the timeline is missing or damaged`);
  return values;
}

/** Places in a list of `length`, or -1: anything else would be read outside of it. */
function places(data: Timeline, key: string, length: number): Int32Array {
  return Int32Array.from(column(data, key), (value) => (value >= 0 && value < length ? value : -1));
}

export class TimelineModel {
  readonly count: number;
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly lane: Int32Array;
  readonly name: Int32Array;
  readonly cls: Int32Array;
  /** Row of the op among the ops of the run, -1 for none. */
  readonly op: Int32Array;
  readonly launch: Int32Array;
  /** The event that started it, -1 for none. */
  readonly cause: Int32Array;
  readonly bytes: Float64Array;
  readonly tracks: LaneGroup[] = [];
  readonly rows: Row[];
  /** Which row an event is in. */
  readonly rowOf: Uint16Array;
  readonly series: Series[];
  readonly from: number;
  readonly to: number;
  readonly ops: Ops;
  /** Ranks whose lanes are here, in their order; none where there is one alone. */
  readonly ranks: number[];
  private readonly eventsOfOp = new Map<number, number[]>();

  /** Throws RangeError when the columns are damaged. */
  constructor(readonly data: Timeline, readonly run: Run) {
    this.count = data.events.count;
    this.ops = opsOf(run);
    this.start = column(data, 'start_ns');
    const ns = column(data, 'ns');
    this.end = Float64Array.from(this.start, (start, i) => start + Math.max(0, ns[i]!));
    this.lane = places(data, 'lane', data.lanes.length);
    this.name = places(data, 'name', data.names.length);
    this.cls = places(data, 'class', data.classes.length);
    this.launch = places(data, 'launch', data.launches.length);
    this.cause = places(data, 'cause', this.count);
    this.bytes = column(data, 'bytes');
    const rowOfOp = new Map(Array.from(this.ops.index, (number, row) => [number, row] as const));
    this.op = Int32Array.from(column(data, 'op'), (number) => rowOfOp.get(number) ?? -1);
    this.op.forEach((op, event) => {
      if (op < 0) return;
      const events = this.eventsOfOp.get(op);
      if (events) events.push(event);
      else this.eventsOfOp.set(op, [event]);
    });
    this.ranks = [...new Set(data.lanes.flatMap(({ rank }) => (rank === null ? [] : [rank])))];
    this.rowOf = new Uint16Array(this.count);
    this.rows = this.layOut();
    this.series = data.series.flatMap((series) => this.readSeries(series));
    const steps = data.steps;
    this.from = this.start.reduce((least, start) => Math.min(least, start), steps[0]?.start_ns ?? this.start[0] ?? 0);
    this.to = this.end.reduce((most, end) => Math.max(most, end), this.from + 1);
  }

  private readSeries(series: Timeline['series'][number]): Series[] {
    const [time, value] = [unpack(series.time_ns, series.count), unpack(series.value, series.count)];
    if (!time || !value || series.count === 0) return [];
    for (let i = 0; i < value.length; ++i) value[i]! *= series.step;
    const [least, most] = [value.reduce((a, b) => Math.min(a, b)), value.reduce((a, b) => Math.max(a, b))];
    return [{ name: series.name, device: series.device, unit: series.unit, time, value, least, most }];
  }

  /** The track of each lane. Where a device has many lanes, those with few events share one. */
  private group(): number[] {
    const { lanes } = this.data;
    const events = lanes.map(() => 0);
    for (const lane of this.lane) if (lane >= 0) events[lane]! += 1;
    const alike = (lane: number): string => `${lanes[lane]!.kind} ${lanes[lane]!.device} ${lanes[lane]!.rank}`;
    const shared = new Map<string, number>();
    return lanes.map(({ name, kind, device, rank }, lane) => {
      const others = lanes.map((_, other) => other).filter((other) => alike(other) === alike(lane)).sort((a, b) => events[b]! - events[a]!);
      const suffix = device !== '' && kind !== 'host' && rank === null ? `, ${device}` : '';
      const prefix = rank === null ? '' : `rank ${rank}: `;
      const folds = others.length > kMostLanes && others.indexOf(lane) >= kKeptLanes;
      const known = folds ? shared.get(alike(lane)) : undefined;
      if (known !== undefined) return known;
      if (folds) shared.set(alike(lane), this.tracks.length);
      this.tracks.push({ label: `${prefix}${folds ? `${others.length - kKeptLanes} other ${kind === 'host' ? 'threads' : 'streams'}` : name}${suffix}`, kind, rank });
      return this.tracks.length - 1;
    });
  }

  /** Each event goes to the first row of its track that is free: what lies inside of another lies below it. */
  private layOut(): Row[] {
    const trackOf = this.group();
    const tracks = this.tracks.map(() => [] as { end: number; events: number[] }[]);
    const depth = new Uint8Array(this.count);
    for (let i = 0; i < this.count; ++i) {
      const rows = tracks[trackOf[this.lane[i]!] ?? -1];
      if (!rows) continue;
      let place = rows.findIndex((row) => row.end <= this.start[i]!);
      if (place < 0) place = Math.min(rows.length, kMostRows - 1);
      const row = (rows[place] ??= { end: 0, events: [] });
      row.end = Math.max(row.end, this.end[i]!);
      row.events.push(i);
      depth[i] = place;
    }
    const first: number[] = [];
    const all: Row[] = [];
    tracks.forEach((rows, track) => {
      first.push(all.length);
      for (const row of rows) all.push({ track, events: Uint32Array.from(row.events) });
    });
    for (let i = 0; i < this.count; ++i) this.rowOf[i] = (first[trackOf[this.lane[i]!] ?? -1] ?? 0) + depth[i]!;
    return all;
  }

  text(event: number): string { return this.data.names[this.name[event]!]?.text ?? ''; }
  /** The name without types, namespaces and parameters. */
  title(event: number): string { return this.data.names[this.name[event]!]?.short ?? ''; }
  kind(event: number): string { return this.data.names[this.name[event]!]?.kind ?? ''; }
  className(event: number): string { return this.data.classes[this.cls[event]!] ?? ''; }
  laneTitle(lane: number): string {
    const { name, rank } = this.data.lanes[lane] ?? { name: '', rank: null };
    return rank === null ? name : `rank ${rank}, ${name}`;
  }
  laneName(event: number): string { return this.laneTitle(this.lane[event]!); }
  isWork(event: number): boolean {
    return this.data.names[this.name[event]!]?.work === true && this.data.lanes[this.lane[event]!]?.kind !== 'host';
  }

  /** Events of an op of the run, in order. */
  eventsOf(op: number): readonly number[] { return this.eventsOfOp.get(op) ?? []; }

  /** The step that holds `time`; -1 between steps and without steps. */
  stepAt(time: number): number { return this.data.steps.findIndex((step) => time >= step.start_ns && time <= step.end_ns); }

  /** The step in the middle of a view that shows little else; -1 for none. */
  stepIn(from: number, to: number): number {
    const step = this.stepAt((from + to) / 2);
    const found = this.data.steps[step];
    return found && to - from < 1.2 * (found.end_ns - found.start_ns) + 1000 ? step : -1;
  }

  /** Place in its row of the first event that ends after `time`. */
  firstAfter(row: Row, time: number): number { return after(row.events.length, (place) => this.end[row.events[place]!]!, time); }

  /** The event of a row nearest to `time`, no further than `slack` away; -1 for none. */
  at(row: Row, time: number, slack: number): number {
    const place = this.firstAfter(row, time);
    let [best, nearest] = [-1, slack];
    for (const candidate of [place - 1, place, place + 1]) {
      const event = row.events[candidate];
      if (event === undefined) continue;
      const distance = Math.max(0, this.start[event]! - time, time - this.end[event]!);
      if (distance < nearest || (distance === 0 && nearest > 0)) [best, nearest] = [event, distance];
    }
    return best;
  }

  /** Events whose name, kind, class, scope, phase or kind of op holds every word; null without words. */
  search(text: string): Uint32Array | null {
    const words = text.toLowerCase().split(/\s+/).filter((word) => word !== '');
    if (words.length === 0) return null;
    const { ops } = this;
    const nameTexts = this.data.names.map((name) => `${name.text} ${name.kind}`.toLowerCase());
    const classTexts = this.data.classes.map((name) => name.toLowerCase());
    const opTexts = Array.from({ length: ops.length }, (_, i) =>
      [ops.scope, ops.phase, ops.kind].map((part) => part.names[part.codes[i]!] ?? '').join(' ').toLowerCase());
    // Each distinct text is looked through once.
    const holds = words.map((word) => ({
      name: nameTexts.map((name) => name.includes(word)), cls: classTexts.map((name) => name.includes(word)), op: opTexts.map((name) => name.includes(word)) }));
    const found: number[] = [];
    for (let i = 0; i < this.count; ++i) {
      if (holds.every(({ name, cls, op }) => name[this.name[i]!] || cls[this.cls[i]!] || op[this.op[i]!])) found.push(i);
    }
    return Uint32Array.from(found);
  }

  colouring(by: 'class' | 'phase' | 'block'): Colouring {
    if (by === 'class') return { codes: Uint16Array.from(this.cls, (cls) => Math.max(0, cls)), names: this.data.classes };
    const part = by === 'phase' ? this.ops.phase : this.ops.scope;
    const title = (name: string): string => (by === 'phase' ? name : blockOf(name));
    const names: string[] = [...new Set([...this.data.classes, ...part.names.map(title)])];
    const ofPart = part.names.map((name) => names.indexOf(title(name)));
    const ofClass = this.data.classes.map((name) => names.indexOf(name));
    return { names, codes: Uint16Array.from(this.cls, (cls, i) => {
      const op = this.op[i]!;
      return op >= 0 ? ofPart[part.codes[op]!]! : ofClass[cls] ?? 0;
    }) };
  }
}

/** "attention" of "h.3/attention/qk", as rooflm names blocks. */
export const blockOf = (scope: string): string => scope.replace(/^h\.\d+\//, '').split('/')[0] ?? scope;
