// What is said of an event, and of a span of time.
import { colourVariable } from '../colours';
import { type DetailRow, heading, known, opRows, row, whyRows } from '../detail_rows';
import { append, h } from '../dom';
import { bytes, count, percent, plural, quantity, seconds } from '../format';
import { opTitle } from '../ops';
import type { TimelineModel } from './model';
import { type Sums, sumsIn } from './sums';

const kNano = 1e-9;
const kMostOpenSums = 4; // of more each waits behind a click
export const duration = (ns: number): string => seconds(kNano * ns, 4);

const kByteKeys = new Set(['shared_static', 'shared_dynamic', 'local']);
const kLaunchTitles: Record<string, string> = {
  shared_static: 'shared memory, static', shared_dynamic: 'shared memory, dynamic', local: 'local memory', registers: 'registers per thread',
  occupancy_limit: 'occupancy limited by' };

function launchText(key: string, value: unknown): string {
  if (Array.isArray(value)) return value.map((part) => count(Number(part))).join(' × ');
  if (typeof value === 'number') return kByteKeys.has(key) ? bytes(value) : key === 'occupancy' ? percent(value) : quantity(value, '');
  return typeof value === 'string' || typeof value === 'boolean' ? String(value) : '';
}

function launchRows(model: TimelineModel, event: number): DetailRow[] {
  const launch = model.data.launches[model.launch[event]!];
  if (!launch) return [];
  return [heading('Launch'), ...Object.entries(launch).map(([key, value]) => row(kLaunchTitles[key] ?? key.replaceAll('_', ' '), launchText(key, value)))];
}

/** The op's line of the program: number, kind, scope, phase and shapes. */
export function programLine(model: TimelineModel, op: number): string {
  const { ops } = model;
  const [kind, phase, shapes] = [ops.kind, ops.phase, ops.shapes].map((part) => part.names[part.codes[op]!] ?? '');
  const scope = ops.scope.names[ops.scope.codes[op]!] ?? '';
  return `#${ops.index[op]} ${kind} ${scope} ${phase} ${shapes}`.replaceAll(/\s+/g, ' ').trim();
}

/** Time in which nothing else of the lane ran before it. */
function gapBefore(model: TimelineModel, event: number): number {
  const { events } = model.rows[model.rowOf[event]!]!;
  const before = events[events.indexOf(event) - 1];
  return before === undefined || !model.isWork(event) || model.stepAt(model.start[before]!) !== model.stepAt(model.start[event]!) ? NaN
    : model.start[event]! - model.end[before]!;
}

/** `why`: with the causes of the op's time. */
export function eventRows(model: TimelineModel, event: number, why = true): DetailRow[] {
  const [start, end, cause, op] = [model.start[event]!, model.end[event]!, model.cause[event]!, model.op[event]!];
  const step = model.stepAt(start);
  const moved = model.bytes[event]!;
  return known([
    heading('Event'), row('name', model.text(event)), row('kind', model.kind(event)), row('class', model.className(event)), row('lane', model.laneName(event)),
    row('step', step < 0 ? '' : String(model.data.steps[step]!.step)), row('start', duration(start - (step < 0 ? model.from : model.data.steps[step]!.start_ns))),
    row('duration', duration(end - start)), row('gap before it', duration(gapBefore(model, event))),
    ...(moved > 0 ? [row('moved', bytes(moved)), row('bandwidth', quantity(moved / (kNano * (end - start)), 'byte/s'))] : []),
    ...(cause >= 0 ? [row('started by', `${model.title(cause)} on ${model.laneName(cause)}`), row('from the call to its start', duration(start - model.start[cause]!))] : []),
    ...launchRows(model, event),
    ...(op >= 0 ? [heading('Op'), row('op', opTitle(model.ops, op)), row('program line', programLine(model, op)), ...(why ? whyRows(model.ops, op) : [])] : []),
  ]);
}

/** All numbers of an event and of its op. */
export const detailRows = (model: TimelineModel, event: number): DetailRow[] => {
  const op = model.op[event]!;
  return [...eventRows(model, event, false), ...(op >= 0 ? opRows(model.ops, op) : [])];
};

/** One line: what, how long, where. */
export function eventLine(model: TimelineModel, event: number): string {
  const op = model.op[event]!;
  return [model.title(event), duration(model.end[event]! - model.start[event]!), model.laneName(event), op >= 0 ? opTitle(model.ops, op) : ''].filter((part) => part !== '').join(', ');
}

const kCauses: Record<string, string> = { host: 'the host was late', dependency: 'from one kernel to the next', queued: 'it waited in its queue', sync: 'the host waited', tracing: 'tracing', stall: 'the host did something else', unknown: 'its launch was not recorded' };

function sumsTable(sums: Sums): HTMLElement {
  const line = (name: string, events: number | null, total: number, alone: number | null, colour?: string): HTMLElement => h('tr', {},
    h('th', { scope: 'row' }, colour ? h('i', { class: 'swatch', style: `background:${colour}` }) : null, name),
    h('td', {}, events === null ? '' : count(events)), h('td', {}, duration(total)), h('td', {}, percent(total / sums.observed)), h('td', {}, alone === null ? '' : duration(alone)));
  const body = h('tbody', {});
  append(body, [...sums.classes.map((sum) => line(sum.name, sum.events, sum.total, sum.alone, colourVariable(sum.name))),
                line('two or more at once', null, sums.shared, null), line('busy', null, sums.busy, null), line('idle', null, sums.idle, null),
                ...sums.causes.map((cause) => line(`idle: ${kCauses[cause.name] ?? cause.name}`, null, cause.ns, null, colourVariable(`idle: ${cause.name}`)))]);
  return h('table', { class: 'sums' }, h('caption', {}, `${sums.device || 'device'}: ${duration(sums.observed)}`),
           h('thead', {}, h('tr', {}, ...['class', 'events', 'time', 'share', 'alone'].map((title) => h('th', { scope: 'col' }, title)))), body);
}

/** Tables of what ran from `from` to `to`, one per device. */
export function sumTables(model: TimelineModel, from: number, to: number): HTMLElement[] {
  const all = sumsIn(model, from, to);
  if (all.length > kMostOpenSums) {
    return all.map((sums) => h('details', { class: 'sums' }, h('summary', {}, `${sums.device}: busy ${percent(sums.busy / sums.observed)} of ${duration(sums.observed)}`), sumsTable(sums)));
  }
  return all.length > 0 ? all.map(sumsTable) : [h('p', { class: 'note' }, `No device lanes; ${plural(model.count, 'event')} of hosts.`)];
}
