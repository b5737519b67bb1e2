// What is alive when: the memory events of a run replayed, by role and by tensor.
import { numbers, textAt, texts } from '../columns';
import type { Memory } from '../document';

const kUnknown = 'unknown';

export interface Holder {
  tensor: number;
  bytes: number;
}

/** Live bytes after events, by role; thinned to what can be drawn, keeping the highest event of each stretch. */
export interface Timeline {
  /** Which event each drawn place shows. */
  events: Uint32Array;
  /** amounts[role][place] */
  amounts: Float64Array[];
}

export class MemoryReplay {
  readonly roles: string[];
  readonly eventCount: number;
  readonly eventOp: Float64Array;
  /** Where an event is drawn: at its op, or, where ops come again and again as modules of PyTorch do, at its own number. */
  readonly place: Float64Array;
  readonly isByEvent: boolean;
  readonly total: Float64Array;
  readonly persistent: Map<string, number>;
  /** The first event of the step itself: before it stand those that say what persists, at op -1. */
  readonly firstEvent: number;
  readonly tensorName: { codes: Uint32Array; names: string[] };
  readonly tensorRole: { codes: Uint32Array; names: string[] };
  readonly tensorScope: { codes: Uint32Array; names: string[] };
  readonly firstOp: Float64Array;
  readonly lastOp: Float64Array;
  private readonly eventTensor: Float64Array;
  private readonly eventBytes: Float64Array;
  /** Live bytes by role before the first event: what persists, unless the events begin with it. */
  private readonly before: number[];

  constructor(readonly memory: Memory) {
    this.eventCount = memory.events.length;
    this.eventOp = numbers(memory.events, 'op');
    this.eventTensor = numbers(memory.events, 'tensor');
    this.eventBytes = numbers(memory.events, 'bytes');
    this.tensorName = texts(memory.tensors, 'name');
    this.tensorRole = texts(memory.tensors, 'role');
    this.tensorScope = texts(memory.tensors, 'scope');
    this.firstOp = numbers(memory.tensors, 'first_op');
    this.lastOp = numbers(memory.tensors, 'last_op');
    this.persistent = new Map(memory.persistent.map((part) => [part.role, part.bytes]));
    this.roles = [...new Set([...this.persistent.keys(), ...this.tensorRole.names])];
    if (this.eventTensor.some((tensor) => !(tensor >= 0 && tensor < memory.tensors.length))) this.roles.push(kUnknown);
    const first = this.eventOp.findIndex((op) => op >= 0);
    this.firstEvent = first < 0 ? 0 : first;
    this.isByEvent = first < 0 || this.eventOp.some((op, event) => event > first && op < this.eventOp[event - 1]!);
    this.place = this.isByEvent ? Float64Array.from(this.eventOp, (_, event) => event) : this.eventOp;
    this.total = numbers(memory.events, 'live_bytes');
    const base = this.eventCount > 0 ? this.total[0]! - this.eventBytes[0]! : 0;
    this.before = this.roles.map((role) => (base > 0 ? (this.persistent.get(role) ?? 0) : 0));
  }

  /** "h.3/ln1: d_residual2": names of tensors come again in every layer. */
  title(tensor: number): string {
    const [name, scope] = [textAt(this.tensorName, tensor), textAt(this.tensorScope, tensor)];
    if (scope === '' || name.includes(scope.replaceAll('/', '.'))) return name;
    return scope.endsWith(`/${name}`) ? scope : `${scope}: ${name}`;
  }

  private roleOf(event: number): number {
    const code = this.tensorRole.codes[this.eventTensor[event]!];
    return this.roles.indexOf(code === undefined ? kUnknown : this.tensorRole.names[code]!);
  }

  /** Where it becomes the turn of an op for the first time; NaN where it never does. */
  placeOfOp(op: number): number {
    if (!this.isByEvent) return op;
    const event = this.eventOp.indexOf(op);
    return event < 0 ? NaN : event;
  }

  /** The op of the event that is drawn there or before. */
  opAt(place: number): number {
    return this.isByEvent ? this.eventOp[Math.min(this.eventCount - 1, Math.max(0, Math.floor(place)))]! : place;
  }

  /** The event after which most is alive. */
  peakEvent(): number {
    return Math.min(Math.max(0, this.memory.peak_event ?? 0), this.eventCount - 1);
  }

  /** Events `from` to `to` (excluded) in at most `places` places. */
  timeline(from: number, to: number, places: number): Timeline {
    const width = Math.max(1, Math.ceil((to - from) / places));
    const events: number[] = [];
    for (let start = from; start < to; start += width) {
      let highest = start;
      for (let i = start; i < Math.min(start + width, to); ++i) if (this.total[i]! > this.total[highest]!) highest = i;
      events.push(highest);
    }
    return { events: Uint32Array.from(events), amounts: this.amountsAt(events) };
  }

  private amountsAt(events: readonly number[]): Float64Array[] {
    const amounts = this.roles.map(() => new Float64Array(events.length));
    const live = [...this.before];
    let event = 0;
    events.forEach((until, place) => {
      for (; event <= until; ++event) {
        const role = this.roleOf(event);
        live[role]! += this.eventBytes[event]!;
      }
      live.forEach((bytes, role) => { amounts[role]![place] = bytes; });
    });
    return amounts;
  }

  /** The tensors that are alive after `event`, largest first; also those that persist, where events name them. */
  holders(event: number): Holder[] {
    const held = new Float64Array(this.memory.tensors.length);
    for (let i = 0; i <= event; ++i) {
      const tensor = this.eventTensor[i]!;
      if (tensor >= 0 && tensor < held.length) held[tensor]! += this.eventBytes[i]!;
    }
    const holders: Holder[] = [];
    held.forEach((bytes, tensor) => { if (bytes > 0) holders.push({ tensor, bytes }); });
    return holders.sort((a, b) => b.bytes - a.bytes);
  }
}
