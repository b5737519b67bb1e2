// The timeline: what ran when, on which lane, and what was in use meanwhile; linked with the other parts by the chosen ops.
import { place, setPlace } from '../address';
import { colourVariable } from '../colours';
import { showDetails } from '../details';
import { rowElement } from '../detail_rows';
import { absent, append, type Child, choice, h, picker, quietButton } from '../dom';
import { count, plural } from '../format';
import { opTitle } from '../ops';
import { tip } from '../chart';
import { saveButtons } from '../save';
import { eventTable } from '../timeline/event_table';
import { detailRows, duration, eventLine, eventRows, sumTables } from '../timeline/facts';
import { TimelineModel } from '../timeline/model';
import { sumsIn } from '../timeline/sums';
import { TimelineView } from '../timeline/view';
import type { Context, Section } from './section';

const kZoom = 0.5;
/** Sections that show an op, too; the page of a plan has none of them. */
const kOfOps = ['ops', 'roofline', 'memory', 'kernels'];
type Colours = 'class' | 'phase' | 'block';

class TimelinePart {
  private readonly view: TimelineView;
  private readonly status = h('p', { class: 'status', 'aria-live': 'polite' });
  private readonly event = h('div', { class: 'panel event' });
  private readonly sums = h('div', { class: 'panel scrolling' });
  private readonly key = h('ul', { class: 'key', 'aria-label': 'Key of colours' });
  private readonly matches = h('span', { class: 'status', 'aria-live': 'polite' });
  private readonly searchBox: HTMLInputElement;
  private found: Uint32Array | null = null;
  private typing = 0;
  /** What is summed up where no span is chosen: a step, -1 for all. */
  private step: number;
  private stepPicker: HTMLElement | null = null;

  constructor(private readonly context: Context, private readonly model: TimelineModel) {
    this.step = model.data.steps.length > 0 ? model.data.shown : -1;
    this.view = new TimelineView(model, model.colouring('class'), {
      onCurrent: (event) => this.look(event), onSpan: (span) => this.spanned(span), onOpen: (event) => this.open(event), onMatch: (step) => this.match(step),
      onEscape: () => this.clearSearch(), onStep: (step) => this.toStep(step), tipOf: (event) => this.tipOf(event), onHint: (text) => { this.status.textContent = text; },
      onWindow: (span) => setPlace({ span }) });
    const { span } = place();
    if (span) this.view.show(...span);
    this.searchBox = h('input', { type: 'search', placeholder: 'Search', 'aria-label': 'Search the timeline', spellcheck: 'false',
      oninput: () => { clearTimeout(this.typing); this.typing = window.setTimeout(() => this.search(), 120); },
      onkeydown: (event) => this.searchKey(event as KeyboardEvent) });
    context.selection.onChange((chosen, by) => {
      const events = [...(chosen?.ops ?? [])].flatMap((op) => [...model.eventsOf(op)]).sort((a, b) => a - b);
      this.view.scene.marked = Uint32Array.from(events);
      if (by !== this) this.show(events, chosen?.title ?? '');
      this.view.request();
    });
    this.recolour('class');
    this.sumUp();
    this.look(-1);
  }

  /** Chosen elsewhere: the first of the events in the step that is in view, or the first of all. */
  private show(events: readonly number[], title: string): void {
    const [from, to] = this.view.stepRange(this.view.currentStep);
    const first = events.find((event) => this.model.start[event]! >= from && this.model.start[event]! <= to) ?? events[0];
    this.view.scene.current = first ?? -1;
    if (first !== undefined) this.view.reveal(first);
    this.describe(first ?? -1);
    if (title !== '') this.status.textContent = `${title}: ${plural(events.length, 'event')} marked.`;
  }

  private look(event: number): void {
    this.describe(event);
    this.status.textContent = event >= 0 ? eventLine(this.model, event) : '';
    const op = event >= 0 ? this.model.op[event]! : -1;
    if (op >= 0) this.context.selection.choose([op], opTitle(this.model.ops, op), this);
    else if (this.context.selection.current) this.context.selection.choose([], '', this);
  }

  private describe(event: number): void {
    this.event.classList.toggle('none-yet', event < 0);
    if (event < 0) {
      this.event.replaceChildren(h('h3', {}, 'Event'), h('p', { class: 'note' }, 'Click an event, or move to one with the arrow keys, to see its op, its kernel and its line of the program.'));
      return;
    }
    const table = h('table', { class: 'plain' }, h('tbody', {}));
    append(table.tBodies[0]!, eventRows(this.model, event).map(rowElement));
    const op = this.model.op[event]!;
    this.event.replaceChildren(h('h3', {}, this.model.title(event)), table, h('p', { class: 'links' },
      quietButton('All numbers', 'All numbers of this event', () => this.open(event)),
      ...(op < 0 ? [] : kOfOps.filter((id) => document.getElementById(id)).map((id) => h('a', { href: `#${id}` }, `in ${id}`)))));
  }

  private open(event: number): void {
    showDetails({ title: this.model.title(event), subtitle: `event of the ${this.context.run.label} run`, rows: detailRows(this.model, event) });
  }

  private tipOf(event: number): HTMLElement {
    const { model } = this;
    const op = model.op[event]!;
    return tip(model.title(event), [['duration', duration(model.end[event]! - model.start[event]!)], ['class', model.className(event), colourVariable(model.className(event))],
                                   ...(op >= 0 ? [['op', opTitle(model.ops, op)] as [string, string]] : [])]);
  }

  /** What the span holds; without one, the step that was chosen, or everything. */
  private sumUp(): void {
    const { span } = this.view.scene;
    const step = this.model.data.steps[this.step];
    const [from, to] = span ?? this.view.stepRange(this.step);
    const title = span ? `The selected ${duration(to - from)}` : step ? `Step ${step.step}` : this.model.data.steps.length > 0 ? 'All steps' : 'Whole timeline';
    this.sums.replaceChildren(h('h3', {}, title), ...sumTables(this.model, from, to));
  }

  private spanned(span: readonly [number, number] | null): void {
    this.sumUp();
    if (!span) return;
    const [first] = sumsIn(this.model, ...span);
    this.status.textContent = `${duration(span[1] - span[0])} selected${first ? `: busy ${duration(first.busy)}, idle ${duration(first.idle)}` : ''}.`;
  }

  /** Goes to a step, -1 for all of them. */
  private toStep(step: number): void {
    this.step = step;
    this.stepPicker?.querySelectorAll('option').forEach((option) => { option.selected = option.value === String(step); });
    if (step < 0) this.view.show(this.model.from, this.model.to, true);
    else this.view.showStep(step);
    this.view.span(null);
  }

  private search(): void {
    this.found = this.model.search(this.searchBox.value);
    let flags: Uint8Array | null = null;
    if (this.found) {
      flags = new Uint8Array(this.model.count);
      for (const event of this.found) flags[event] = 1;
    }
    this.view.scene.found = flags;
    this.sayMatch();
    this.view.request();
  }

  private sayMatch(): void {
    const { found } = this;
    const place = found ? found.indexOf(this.view.scene.current) : -1;
    this.matches.textContent = !found ? '' : found.length === 0 ? 'no match' : place < 0 ? plural(found.length, 'match', 'matches') : `${count(place + 1)} of ${count(found.length)}`;
  }

  /** The match after or before the event that is looked at; from nothing, the first in view. */
  private match(step: number): void {
    const { found, view } = this;
    if (!found || found.length === 0) return;
    const at = view.scene.current >= 0 ? view.scene.current : found.find((event) => this.model.start[event]! >= view.window[0]) ?? found[0]!;
    const exact = found.indexOf(at);
    let place = found.findIndex((event) => event >= at);
    if (place < 0) place = found.length;
    if (exact >= 0 && view.scene.current >= 0) place += step;
    else if (step < 0) place -= 1;
    view.pick(found[(place + found.length) % found.length]!);
    this.sayMatch();
  }

  private clearSearch(): boolean {
    if (this.searchBox.value === '') return false;
    this.searchBox.value = '';
    this.search();
    return true;
  }

  private searchKey(event: KeyboardEvent): void {
    if (event.key === 'Enter') {
      clearTimeout(this.typing);
      this.search();
      this.match(event.shiftKey ? -1 : 1);
    } else if (event.key === 'Escape' && this.clearSearch()) {
      event.stopPropagation();
    } else if (event.key === 'ArrowDown') {
      event.preventDefault();
      this.view.canvas.focus();
    }
  }

  private recolour(by: Colours): void {
    const colouring = this.model.colouring(by);
    this.view.colourBy(colouring);
    const used = new Set<number>();
    colouring.codes.forEach((code, event) => { if (this.model.data.lanes[this.model.lane[event]!]?.kind !== 'range') used.add(code); });
    this.key.replaceChildren(...[...used].map((code) => colouring.names[code]!).map((name) =>
      h('li', {}, h('i', { class: 'swatch', style: `background:${colourVariable(name)}` }), name || '(none)')));
  }

  private controls(): HTMLElement {
    const { steps, shown } = this.model.data;
    const stepName = (step: (typeof steps)[number], i: number): string =>
      `${step.step}: ${duration(step.end_ns - step.start_ns)}${step.kind === 'in_order' ? ', kernels one by one' : step.kind === 'allocations' ? ', memory traced' : ''}${i === shown ? ', median' : ''}`;
    const { view } = this;
    this.stepPicker = steps.length < 2 ? null : picker('Step', [...steps.map((step, i) => [String(i), stepName(step, i)] as const), ['-1', 'all, including the time between them'] as const],
                                                       String(shown), (value) => this.toStep(Number(value)));
    const { ranks } = this.model;
    const rankPicker = ranks.length < 2 ? null : picker('Ranks', [['all', 'all lanes'], ['devices', 'devices and exposed communication'], ...ranks.map((rank) => [String(rank), `rank ${rank}`] as const)],
                                                        String(view.ranks), (value) => { view.ranks = value === 'all' || value === 'devices' ? value : Number(value); });
    return h('div', { class: 'controls' }, this.searchBox,
      h('span', { class: 'buttons' }, quietButton('‹', 'Previous match', () => this.match(-1)), quietButton('›', 'Next match', () => this.match(1))), this.matches,
      this.stepPicker, rankPicker,
      h('span', { class: 'buttons' }, quietButton('−', 'Zoom out', () => view.zoom(1 / kZoom, undefined, true)), quietButton('+', 'Zoom in', () => view.zoom(kZoom, undefined, true)),
        quietButton('Whole step', 'Show the whole step', () => this.toStep(this.model.data.steps.length > 0 ? view.currentStep : -1))),
      choice('Dragging', [['move', 'Drag moves'], ['span', 'Drag selects a span']] as const, 'move', (value) => { view.spanning = value === 'span'; }),
      choice('Colours', [['class', 'Class'], ['phase', 'Phase'], ['block', 'Block']] as const, 'class', (value) => this.recolour(value)));
  }

  /** Made when it is opened: most readers look at the picture. */
  private table(): HTMLElement {
    const all: HTMLDetailsElement = h('details', { class: 'events' }, h('summary', {}, `${plural(this.model.count, 'event')} as a table`));
    const make = (): void => {
      if (!all.open || all.children.length > 1) return;
      all.append(eventTable(this.model, (event) => { this.view.pick(event); this.view.reveal(event); }).element);
    };
    all.addEventListener('toggle', make);
    return all;
  }

  parts(): Child[] {
    return [this.controls(), h('div', { class: 'panel timeline' }, this.view.element, this.status, this.key,
              saveButtons('Timeline', { png: () => this.view.png, svg: () => this.view.svg, sheet: () => eventTable(this.model, () => undefined).sheet() })),
            ...this.model.data.notes.map((note) => h('p', { class: 'note' }, note)), h('div', { class: 'columns even' }, this.event, this.sums), this.table()];
  }
}

export const timeline: Section = {
  id: 'timeline',
  title: 'Timeline',
  lead: 'What ran when. Drag to move; after a click, the wheel zooms (with Ctrl always), arrow keys move from event to event. Drag on the ruler to sum up a time span.',
  build: (context): Child[] => {
    const { timeline: data } = context.run;
    if (!data || data.events.count === 0) return [absent('This run has no timeline: no activities and no executions of ops were recorded.')];
    let model: TimelineModel;
    try {
      model = new TimelineModel(data, context.run);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      return [h('p', { class: 'absent', role: 'alert' }, `The timeline of this run cannot be read: ${error.message}.`)];
    }
    return new TimelinePart(context, model).parts();
  },
};
