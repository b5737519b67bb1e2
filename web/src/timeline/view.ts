// The picture of a timeline and the hands on it: zoom and pan by wheel, drag, keys and touch; picking and spanning.
import { tip } from '../chart';
import { h } from '../dom';
import { pngAddress, SvgPen, svgOf } from '../pen';
import { onTheme } from '../theme';
import { Gestures } from './gestures';
import { keyActions } from './keys';
import { layOut, type Layout, type Line, lineAt, seriesAt, seriesRange, seriesTitle, seriesValue, type ShownRanks } from './layout';
import { after, type Colouring, type Series, type TimelineModel } from './model';
import { kRulerHeight, Painter, type Scene } from './paint';

const kLeastSpan = 100; // nanoseconds
const kAir = 0.015; // beside the first and the last event, as a share
const kGlideMs = 140;
const kManyRanks = 4; // of more the lanes of hosts and ranges are folded away at first
const kSlack = 5; // pixels beside an event that still hit it
const kLabel = 'Timeline. Arrows left and right move along a lane, up and down change it; plus and minus zoom, A and D move; 0 shows the step, '
  + 'brackets go to other steps; N and shift N go through matches; M sums up the event, F fits it; Enter shows all its numbers; Escape clears.';

export interface Watcher {
  /** The event that is looked at has changed; -1 for none. `far` when it came from another part of the page. */
  onCurrent: (event: number) => void;
  onSpan: (span: readonly [number, number] | null) => void;
  onOpen: (event: number) => void;
  onMatch: (step: number) => void;
  /** Another step is wanted, by its place. */
  onStep: (step: number) => void;
  /** Nothing was left to clear in the picture. */
  onEscape: () => boolean;
  tipOf: (event: number) => HTMLElement;
  /** What the wheel did not do, and how it would. */
  onHint: (text: string) => void;
  /** Another span of time is in view, or is going to be. */
  onWindow: (window: readonly [number, number]) => void;
}

export class TimelineView {
  readonly element: HTMLElement;
  readonly canvas = h('canvas', { class: 'lanes', tabindex: 0, role: 'application', 'aria-label': kLabel });
  private readonly ruler = h('canvas', { class: 'ruler', 'aria-hidden': 'true' });
  private readonly tip = h('div', { class: 'tip floating', hidden: true });
  private readonly painter: Painter;
  private colouring: Colouring;
  private layout: Layout;
  private width = 0;
  private frame = 0;
  private glide: { from: number; to: number; start: number; until: [number, number] } | null = null;
  private readonly still = window.matchMedia('(prefers-reduced-motion: reduce)');
  readonly scene: Scene;
  private shownRanks: ShownRanks;
  /** Dragging in the lanes spans time instead of moving it. */
  spanning = false;

  constructor(readonly model: TimelineModel, colouring: Colouring, private readonly watcher: Watcher) {
    this.shownRanks = model.ranks.length > kManyRanks ? 'devices' : 'all';
    this.layout = layOut(model, 0, this.shownRanks);
    this.colouring = colouring;
    this.painter = new Painter(model, this.canvas.getContext('2d', { alpha: false })!, this.ruler.getContext('2d', { alpha: false })!, colouring);
    this.scene = { from: model.from, to: model.to, current: -1, hover: -1, marked: new Uint32Array(0), found: null, span: null };
    [this.scene.from, this.scene.to] = this.withAir(...this.stepRange(model.data.shown));
    this.element = h('div', { class: 'picture' }, this.ruler, this.canvas, this.tip);
    const gestures = new Gestures(this);
    gestures.listen(this.canvas, false);
    gestures.listen(this.ruler, true);
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(this.element);
    onTheme(this.element, () => {
      this.painter.restyle();
      this.resize();
    });
    // Where tests point at: the middle of an event, seen from the corner of the canvas.
    (this.canvas as HTMLElement & { placeOf?: (event: number) => number[] | null }).placeOf = (event) => {
      const box = this.painter.boxOf(this.layout, this.painter.view(this.layout, this.width, this.scene), event);
      return box && [box.x + box.width / 2, box.y + box.height / 2];
    };
  }

  // ---- what is in view

  /** From the first to the last event of a step; everything for a step that is not there. */
  stepRange(step: number): [number, number] {
    const found = this.model.data.steps[step];
    return found ? [found.start_ns, found.end_ns] : [this.model.from, this.model.to];
  }

  withAir(from: number, to: number): [number, number] {
    const air = kAir * Math.max(to - from, kLeastSpan);
    return [from - air, to + air];
  }

  /** Shows [from, to], kept inside of what there is. Gliding there is for single moves: a hand that drags is followed at once. */
  show(from: number, to: number, glide = false): void {
    const [first, last] = this.withAir(this.model.from, this.model.to);
    const span = Math.min(Math.max(to - from, kLeastSpan), last - first);
    const left = Math.min(Math.max((from + to - span) / 2, first), last - span);
    const until: [number, number] = [left, left + span];
    if (glide && !this.still.matches) {
      this.glide = { from: this.scene.from, to: this.scene.to, start: performance.now(), until };
    } else {
      this.glide = null;
      [this.scene.from, this.scene.to] = until;
    }
    this.leave();
    this.request();
    this.watcher.onWindow(until);
  }

  /** Where the view is, or is going to be. */
  get window(): [number, number] { return this.glide ? this.glide.until : [this.scene.from, this.scene.to]; }

  zoom(factor: number, at?: number, glide = false): void {
    const [from, to] = this.window;
    const middle = at ?? (from + to) / 2;
    this.show(middle - (middle - from) * factor, middle + (to - middle) * factor, glide);
  }

  pan(share: number, glide = false): void {
    const [from, to] = this.window;
    this.show(from + share * (to - from), to + share * (to - from), glide);
  }

  /** Moves the view until the event is in it. */
  reveal(event: number): void {
    const [from, to] = this.window;
    const [start, end] = [this.model.start[event]!, this.model.end[event]!];
    if (end > from && start < to) return;
    const span = Math.max(to - from, end - start);
    const middle = (start + end) / 2;
    this.show(middle - span / 2, middle + span / 2, true);
  }

  timeAt(x: number): number {
    const { gutter } = this.layout;
    return this.scene.from + ((x - gutter) / (this.width - gutter)) * (this.scene.to - this.scene.from);
  }

  get scale(): number { return (this.width - this.layout.gutter) / (this.scene.to - this.scene.from); }

  // ---- what is chosen

  pick(event: number): void {
    this.scene.current = event;
    if (event >= 0) this.reveal(event);
    this.watcher.onCurrent(event);
    this.request();
  }

  span(span: readonly [number, number] | null, done = true): void {
    this.scene.span = span;
    if (done) this.watcher.onSpan(span);
    this.request();
  }

  /** The event under a place of the canvas, or next to it; -1 for none. */
  eventAt(x: number, y: number): number {
    if (x < this.layout.gutter) return -1;
    const line = lineAt(this.layout, y, 3);
    return line ? this.model.at(line.row, this.timeAt(x), kSlack / this.scale) : -1;
  }

  click(x: number, y: number): void {
    const event = this.eventAt(x, y);
    if (event < 0 && this.scene.span) this.span(null);
    this.pick(event);
  }

  hover(x: number, y: number): void {
    const event = this.eventAt(x, y);
    this.canvas.style.cursor = event >= 0 ? 'pointer' : this.spanning ? 'col-resize' : 'grab';
    if (event !== this.scene.hover) {
      this.scene.hover = event;
      if (event >= 0) this.tip.replaceChildren(this.watcher.tipOf(event));
      this.request();
    }
    const series = event < 0 && x >= this.layout.gutter ? seriesAt(this.layout, y) : null;
    if (series) this.tip.replaceChildren(this.tipOfSeries(series, this.timeAt(x)));
    this.tip.hidden = event < 0 && !series;
    if (this.tip.hidden) return;
    const kAway = 14;
    const right = x + kAway + this.tip.offsetWidth < this.width;
    this.tip.style.left = `${right ? x + kAway : Math.max(0, x - kAway - this.tip.offsetWidth)}px`;
    this.tip.style.top = `${kRulerHeight + y + kAway}px`;
  }

  private tipOfSeries(series: Series, time: number): HTMLElement {
    const place = Math.max(0, after(series.time.length, (i) => series.time[i]!, time) - 1);
    return tip(seriesTitle(series), [['here', seriesValue(series, series.value[place]!)], ['lowest and highest', seriesRange(series)]]);
  }

  leave(): void {
    this.tip.hidden = true;
    if (this.scene.hover < 0) return;
    this.scene.hover = -1;
    this.request();
  }

  hint(text: string): void { this.watcher.onHint(text); }

  /** Events of the same row before or after; from nothing, the first in view. */
  step(by: 1 | -1): void {
    const { current } = this.scene;
    if (current < 0) return this.enter();
    const row = this.model.rows[this.model.rowOf[current]!]!;
    const next = row.events[row.events.indexOf(current) + by];
    return next === undefined ? undefined : this.pick(next);
  }

  /** The event at the same time in the next row above or below that has one in view. */
  cross(by: 1 | -1): void {
    const { current } = this.scene;
    if (current < 0) return this.enter();
    const lines = this.layout.tracks.flatMap((track) => track.lines);
    const place = lines.findIndex((line) => line.place === this.model.rowOf[current]);
    const time = Math.min(Math.max((this.model.start[current]! + this.model.end[current]!) / 2, this.scene.from), this.scene.to);
    for (let i = place + by; i >= 0 && i < lines.length; i += by) {
      const event = this.model.at(lines[i]!.row, time, Infinity);
      if (event >= 0) return this.pick(event);
    }
    return undefined;
  }

  private enter(): void {
    const lines: Line[] = this.layout.tracks.flatMap((track) => track.lines);
    for (const { row } of [...lines.filter((line) => this.model.tracks[line.row.track]?.kind === 'device'), ...lines]) {
      const event = row.events[this.model.firstAfter(row, this.scene.from)];
      if (event !== undefined && this.model.start[event]! < this.scene.to) return this.pick(event);
    }
  }

  /** The first or the last event of the row. */
  toEnd(last: boolean): void {
    if (this.scene.current < 0) return this.enter();
    const { events } = this.model.rows[this.model.rowOf[this.scene.current]!]!;
    return this.pick(last ? events[events.length - 1]! : events[0]!);
  }

  showStep(step: number): void { this.show(...this.withAir(...this.stepRange(step)), true); }

  /** The step in the middle of the view, or the one to be shown first. */
  get currentStep(): number {
    const [from, to] = this.window;
    const step = this.model.stepAt((from + to) / 2);
    return step >= 0 ? step : this.model.data.shown;
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = keyActions(this, this.watcher)[event.shiftKey && event.key.length > 1 ? `Shift+${event.key}` : event.key];
    if (!action || action() === false) return;
    event.preventDefault();
    event.stopPropagation();
  }

  colourBy(colouring: Colouring): void {
    this.colouring = colouring;
    this.painter.colourBy(colouring);
    this.request();
  }

  get ranks(): ShownRanks { return this.shownRanks; }
  set ranks(shown: ShownRanks) {
    this.shownRanks = shown;
    this.resize();
  }

  // ---- saving

  get png(): string { return pngAddress(this.ruler, this.canvas); }

  get svg(): string {
    const [pen, rulerPen] = [new SvgPen(), new SvgPen()];
    new Painter(this.model, pen, rulerPen, this.colouring).paint(this.layout, this.width, this.scene);
    return svgOf(this.width, kRulerHeight + this.layout.height, rulerPen.drawn(), pen.drawn(kRulerHeight));
  }

  // ---- drawing

  request(): void { if (this.frame === 0) this.frame = requestAnimationFrame((now) => this.draw(now)); }

  resize(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    this.width = width;
    this.layout = layOut(this.model, width, this.shownRanks);
    this.draw(performance.now());
  }

  private fit(canvas: HTMLCanvasElement, height: number): void {
    const scale = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(this.width * scale), Math.round(height * scale)];
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    canvas.style.height = `${height}px`;
    canvas.getContext('2d')!.setTransform(scale, 0, 0, scale, 0, 0);
  }

  draw(now: number): void {
    this.frame = 0;
    if (this.width === 0) return;
    if (this.glide) {
      const share = Math.min(1, Math.max(0, (now - this.glide.start) / kGlideMs));
      const eased = 1 - (1 - share) ** 3;
      this.scene.from = this.glide.from + (this.glide.until[0] - this.glide.from) * eased;
      this.scene.to = this.glide.to + (this.glide.until[1] - this.glide.to) * eased;
      if (share < 1) this.request();
      else this.glide = null;
    }
    this.fit(this.canvas, this.layout.height);
    this.fit(this.ruler, kRulerHeight);
    const begin = performance.now();
    this.painter.paint(this.layout, this.width, this.scene);
    const { dataset } = this.canvas;
    dataset.ms = (performance.now() - begin).toFixed(2);
    [dataset.from, dataset.to] = this.window.map((time) => time.toFixed(0)) as [string, string];
    dataset.event = String(this.scene.current);
  }
}
