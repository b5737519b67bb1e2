// The memory timeline: live bytes by role over the ops of a step, who holds them, and the peak.
import { axis, Chart, type Option, tip, tooltip } from '../chart';
import { placesOf } from '../colours';
import { numberColumn, numbers, textColumn } from '../columns';
import { absent, type Child, h } from '../dom';
import { bytes, count, percent, plural } from '../format';
import { keyOf } from '../key';
import { opsOf, opTitle } from '../ops';
import { Table } from '../table';
import { heading, type Sheet } from '../save';
import { after } from '../timeline/model';
import { token } from '../theme';
import { MemoryReplay, type Timeline } from './memory_timeline';
import type { Context, Section } from './section';

const kPlaces = 1600;
const kHolders = 8;
const kLeastNamed = 0.08; // of all ops
const kMostPhaseMarks = 12;
const kMostChosen = 60;

class MemoryChart {
  readonly chart: Chart;
  private timeline: Timeline;
  private readonly peak: number;
  private readonly places: Map<string, number>;

  constructor(private readonly context: Context, private readonly replay: MemoryReplay) {
    this.peak = replay.peakEvent();
    this.places = placesOf(replay.roles);
    this.timeline = replay.timeline(replay.firstEvent, replay.eventCount, kPlaces);
    this.chart = new Chart('Live bytes by role over the ops of a step', 340, () => this.option(), () => this.sheet());
    const { selection, run } = context;
    this.chart.whenReady((chart) => {
      selection.onChange(() => chart.setOption({ series: [this.chosenSeries()] }));
      chart.getZr().on('click', ({ offsetX, offsetY }) => {
        if (!chart.containPixel('grid', [offsetX, offsetY])) return;
        const [at] = chart.convertFromPixel({ seriesId: 'alive' }, [offsetX, offsetY]) as [number, number];
        const ops = opsOf(run);
        const row = after(ops.length, (i) => ops.index[i]!, this.replay.opAt(at)) - 1;
        if (row >= 0) selection.choose([row], opTitle(ops, row), this);
      });
    });
    this.chart.whenReady((chart) => chart.on('datazoom', () => {
      const [zoom] = (chart.getOption() as { dataZoom: { startValue: number; endValue: number }[] }).dataZoom;
      if (!zoom) return;
      this.look(zoom.startValue, zoom.endValue);
      chart.setOption({ series: this.series().filter(({ id }) => id !== 'chosen').map(({ id, data }) => ({ id, data })) });
    }));
  }

  private colour(role: string): string { return token(`s${this.places.get(role)}`); }

  get key(): HTMLElement { return keyOf(this.replay.roles, (role) => `var(--s${this.places.get(role)})`); }

  private sheet(): Sheet {
    const { replay, timeline } = this;
    return { headings: ['op', heading('alive', 'byte'), ...replay.roles.map((role) => heading(role, 'byte'))],
             rows: Array.from(timeline.events, (event, place) => [replay.eventOp[event], replay.total[event], ...timeline.amounts.map((amounts) => amounts[place])]) };
  }

  /** Thins anew, so that all events between two ops are drawn once there is room for them. */
  private look(first: number, last: number): void {
    const { place, eventCount } = this.replay;
    let [from, to] = [this.replay.firstEvent, eventCount];
    while (from < to - 1 && place[from + 1]! < first) ++from;
    while (to > from + 2 && place[to - 2]! > last) --to;
    this.timeline = this.replay.timeline(from, to, kPlaces);
  }

  /** Places where another phase begins; none when phases alternate too often to be read. */
  private phaseMarks(): { xAxis: number; name: string }[] {
    const ops = opsOf(this.context.run);
    const marks: { xAxis: number; name: string }[] = [];
    for (let i = 0; i < ops.length && marks.length <= kMostPhaseMarks; ++i) {
      const isFirst = i === 0 || ops.phase.codes[i] !== ops.phase.codes[i - 1];
      const xAxis = isFirst ? this.placeOfPhase(i) : NaN;
      if (!Number.isNaN(xAxis)) marks.push({ xAxis, name: ops.phase.names[ops.phase.codes[i]!]! });
    }
    if (marks.length > kMostPhaseMarks) return [];
    // A phase of a few ops, as the loss in the middle of a step, has no room for its name.
    const end = this.replay.isByEvent ? this.replay.eventCount : (ops.index[ops.length - 1] ?? 0);
    const least = kLeastNamed * (marks.length > 0 ? end - marks[0]!.xAxis : 0);
    return marks.map((mark, i) => (i + 1 < marks.length && marks[i + 1]!.xAxis - mark.xAxis < least ? { ...mark, name: '' } : mark));
  }

  /** Where the phase that begins with that row of ops is drawn: of its ops the one whose turn comes first. */
  private placeOfPhase(row: number): number {
    const ops = opsOf(this.context.run);
    if (!this.replay.isByEvent) return ops.index[row]!;
    let place = NaN;
    for (let i = row; i < ops.length && ops.phase.codes[i] === ops.phase.codes[row]; ++i) {
      const own = this.replay.placeOfOp(ops.index[i]!);
      if (!(own >= place)) place = Number.isNaN(own) ? place : own;
    }
    return place;
  }

  private hover(place: number): HTMLElement {
    const { replay, timeline } = this;
    const event = timeline.events[place]!;
    const ops = opsOf(this.context.run);
    const op = replay.eventOp[event]!;
    const row = ops.index.indexOf(op); // ops may be left out, so that numbers are no places
    // What persists is the same everywhere; its roles say it.
    const holders = replay.holders(event).filter((holder) => replay.firstOp[holder.tensor]! >= 0);
    const rest = holders.slice(kHolders).reduce((sum, holder) => sum + holder.bytes, 0);
    const title = row >= 0 ? `op #${count(op)}: ${opTitle(ops, row)}` : `op #${count(op)}`;
    return tip(title, [
      ['alive', bytes(replay.total[event])],
      ...replay.roles.map((role, i): [string, string, string] => [role, bytes(timeline.amounts[i]![place]), this.colour(role)]),
      ...holders.slice(0, kHolders).map((holder): [string, string] => [replay.title(holder.tensor), bytes(holder.bytes)]),
      ...(rest > 0 ? [[`${plural(holders.length - kHolders, 'more tensor')}`, bytes(rest)] as [string, string]] : []),
    ]);
  }

  /** Lines at the chosen ops, unless they are everywhere. */
  private chosenSeries(): Option {
    const ops = opsOf(this.context.run);
    const chosen = [...(this.context.selection.current?.ops ?? [])];
    const lines = chosen.length > kMostChosen ? [] : chosen.map((op) => ({ xAxis: this.replay.placeOfOp(ops.index[op]!), name: `op #${count(ops.index[op]!)}` }))
      .filter(({ xAxis }) => !Number.isNaN(xAxis));
    return { id: 'chosen', type: 'line', name: 'chosen', data: [], silent: true, z: 6, markLine: { symbol: 'none', silent: true, animation: false, data: lines,
      lineStyle: { color: token('text'), type: 'solid', width: 1.5 }, label: { show: lines.length === 1, position: 'insideEndTop', color: token('text'), fontSize: 11, formatter: '{b}' } } };
  }

  private series(): Option[] {
    const { replay, timeline, peak } = this;
    const x = (event: number): number => replay.place[event]!;
    const marks = this.phaseMarks();
    const areas = replay.roles.map((role, i): Option => ({
      id: `role-${i}`, type: 'line', name: role, stack: 'live', step: 'end', symbol: 'none', lineStyle: { width: 0 }, areaStyle: { color: this.colour(role), opacity: 0.85 },
      itemStyle: { color: this.colour(role) }, data: [...timeline.events].map((event, place) => [x(event), timeline.amounts[i]![place]!]),
      emphasis: { disabled: true } }));
    const total: Option = {
      id: 'alive', type: 'line', name: 'alive', step: 'end', symbol: 'none', lineStyle: { width: 1, color: token('text') }, z: 4, emphasis: { disabled: true },
      data: [...timeline.events].map((event) => [x(event), replay.total[event]]),
      markPoint: { symbol: 'circle', symbolSize: 8, silent: true, itemStyle: { color: token('bad') },
        data: [{ coord: [x(peak), replay.total[peak]], value: replay.total[peak] }],
        label: { show: true, position: x(peak) > 0.85 * (replay.place[replay.eventCount - 1] ?? 0) ? 'left' : 'top', distance: 8, color: token('text'), fontSize: 11, formatter: `peak ${bytes(replay.total[peak])}` } },
      markLine: { symbol: 'none', silent: true, lineStyle: { color: token('line-strong'), type: 'dashed', width: 1 }, data: marks,
        label: { show: true, position: 'end', align: 'left', distance: 4, color: token('muted'), fontSize: 10, formatter: '{b}' } },
    };
    return [...areas, total, this.chosenSeries()];
  }

  private option(): Option {
    const { place, eventCount, firstEvent, isByEvent } = this.replay;
    const name = isByEvent ? 'event' : 'op';
    return {
      grid: { left: 74, right: 64, top: 26, bottom: 84 },
      tooltip: tooltip({ trigger: 'axis', axisPointer: { type: 'line', lineStyle: { color: token('muted') } },
        formatter: (items: { dataIndex: number }[]) => (items[0] ? this.hover(items[0].dataIndex) : '') }),
      xAxis: axis({ type: 'value', name, min: place[firstEvent], max: place[eventCount - 1], splitLine: { show: false },
        axisLabel: { color: token('muted'), fontSize: 11, showMaxLabel: false, formatter: (value: number) => count(value) } }),
      yAxis: axis({ type: 'value', max: (range: { max: number }) => range.max * 1.16,
        axisLabel: { color: token('muted'), fontSize: 11, showMaxLabel: false, formatter: (value: number) => bytes(value) } }),
      dataZoom: [{ type: 'slider', height: 22, bottom: 8, borderColor: token('line'), textStyle: { color: token('muted') }, fillerColor: token('selected'),
        labelFormatter: (value: number) => `${name} ${count(Math.round(value))}`, showDataShadow: false, filterMode: 'none' }],
      series: this.series(),
    };
  }
}

/** A row that is clicked chooses the op that made the tensor; tensors that chosen ops made are marked. */
function holdersTable(replay: MemoryReplay, { run, selection }: Context): Child {
  const held = replay.memory.peak_holders;
  const holders = numbers(held, 'tensor');
  const text = (part: { codes: Uint32Array; names: string[] }): string[] => Array.from(holders, (tensor) => part.names[part.codes[tensor]!] ?? '');
  const numbersOf = (get: (tensor: number) => number): Float64Array => Float64Array.from(holders, get);
  const rowOfOp = new Map(Array.from(opsOf(run).index, (number, row) => [number, row] as const));
  const makers = Array.from(holders, (tensor) => rowOfOp.get(replay.firstOp[tensor]!) ?? -1);
  const inStep = (op: number): number => (op >= 0 ? op : NaN);
  const table = new Table({
    label: 'Tensors alive at the peak', length: holders.length, visibleRows: 8, order: { column: 3, descending: true },
    columns: [
      textColumn('name', 'tensor', text(replay.tensorName)),
      textColumn('role', 'role', text(replay.tensorRole), { filter: true }),
      textColumn('scope', 'scope', text(replay.tensorScope)),
      numberColumn('bytes', 'size', 'byte', numbers(held, 'bytes')),
      numberColumn('share', 'share of peak', 'share', numbers(held, 'share')),
      numberColumn('first', 'first op', '', numbersOf((tensor) => inStep(replay.firstOp[tensor]!)), 'None: persists between steps'),
      numberColumn('last', 'last op', '', numbersOf((tensor) => inStep(replay.lastOp[tensor]!))),
    ],
    open: (place) => {
      const row = makers[place]!;
      selection.choose(row < 0 ? [] : [row], row < 0 ? '' : opTitle(opsOf(run), row), table);
    },
  });
  selection.onChange((chosen, by) => table.mark(new Set([...holders.keys()].filter((place) => chosen?.ops.has(makers[place]!))), by !== table));
  return h('div', { class: 'panel' }, h('h3', {}, 'Tensors alive at the peak'), table.element);
}

function persistentLine(replay: MemoryReplay): HTMLElement {
  const list = (parts: readonly { role: string; bytes: number }[]): string => parts.map((part) => `${part.role} ${bytes(part.bytes)}`).join(', ');
  const { persistent, persistent_share, peak_bytes, peak_roles } = replay.memory;
  return h('p', { class: 'note' }, persistent.length > 0 ? `Persistent between steps: ${list(persistent)}. ` : 'What persists between steps is not recorded. ',
           peak_bytes !== null && `Peak ${bytes(peak_bytes)}, ${percent(persistent_share)} of it persistent${peak_roles.length > 0 ? `: ${list(peak_roles)}` : ''}. `);
}

export const memory: Section = {
  id: 'memory',
  title: 'Memory',
  lead: 'Live bytes by role over the ops of one step. Hover over the chart to see which tensors hold them; click to choose an op; drag the ends of the bar below to zoom.',
  build: (context) => {
    const { run } = context;
    if (!run.memory) return [absent('Memory of this run was not recorded.')];
    const replay = new MemoryReplay(run.memory);
    if (replay.eventCount === 0) return [absent('This run has no memory events.'), persistentLine(replay)];
    const view = new MemoryChart(context, replay);
    return [h('div', { class: 'panel' }, persistentLine(replay), view.chart.element, view.key), holdersTable(replay, context)];
  },
};
