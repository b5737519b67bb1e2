// Draws the timeline: ruler, lanes, series, and over them what is chosen, found and spanned.
import type { Pen } from '../pen';
import { token } from '../theme';
import { Bars } from './bars';
import { type Layout, type Line, seriesRange, type Track } from './layout';
import { after, type Colouring, type Series, type TimelineModel } from './model';
import { kShades, type Palette, paletteOf } from './palette';
import { ticksOf } from './ticks';

/** What a picture shows besides the events. */
export interface Scene {
  from: number;
  to: number;
  /** The event that is looked at, -1 for none. */
  current: number;
  hover: number;
  /** Events of the chosen ops, in order. */
  marked: Uint32Array;
  /** found[event] is 1 for what a search found; null without a search. */
  found: Uint8Array | null;
  /** A span of time that is summed up. */
  span: readonly [number, number] | null;
}

interface View {
  from: number;
  to: number;
  scale: number;
  x: number;
  right: number;
}

export const kRulerHeight = 26;
const kLabelFrom = 28; // pixels; narrower bars carry no name
const kTickRoom = 92;
const kLetter = 6; // pixels of a letter at least, to cut names before they are measured

export class Painter {
  private bars: Bars;
  private palette: Palette;
  private colours: { [name: string]: string } = {};
  private readonly widths = new Map<string, number>();

  constructor(private readonly model: TimelineModel, private readonly pen: Pen, private readonly rulerPen: Pen,
              private colouring: Colouring) {
    this.bars = new Bars(colouring.codes, colouring.names.length);
    this.palette = paletteOf(colouring.names);
    this.restyle();
  }

  /** After a change of theme. */
  restyle(): void {
    this.palette = paletteOf(this.colouring.names);
    this.colours = Object.fromEntries(['panel', 'text', 'muted', 'line', 'line-strong', 'sunken', 'accent', 'selected', 'sans'].map((name) => [name, token(name)]));
  }

  colourBy(colouring: Colouring): void {
    this.colouring = colouring;
    this.bars = new Bars(colouring.codes, colouring.names.length);
    this.restyle();
  }

  view(layout: Layout, width: number, scene: Scene): View {
    return { from: scene.from, to: scene.to, scale: (width - layout.gutter) / (scene.to - scene.from), x: layout.gutter, right: width };
  }

  paint(layout: Layout, width: number, scene: Scene): void {
    const { pen, colours } = this;
    const view = this.view(layout, width, scene);
    pen.fillStyle = colours.panel!;
    pen.fillRect(0, 0, width, layout.height);
    this.ground(layout, view);
    this.rows(layout, view, scene);
    for (const track of layout.tracks) if (track.series) this.series(track, track.series, layout, view);
    this.marks(layout, view, scene);
    this.spanOver(pen, view, scene, layout.height);
    this.labels(layout, width);
    this.ruler(layout, width, view, scene);
  }

  private xOf(view: View, time: number): number { return view.x + (time - view.from) * view.scale; }

  /** What lies outside of steps was not watched; lines of the axis run down the lanes. */
  private ground(layout: Layout, view: View): void {
    const { pen, colours } = this;
    const { steps } = this.model.data;
    if (steps.length > 0) {
      pen.fillStyle = colours.sunken!;
      let before = -Infinity;
      for (const step of [...steps, { start_ns: Infinity, end_ns: Infinity }]) {
        const left = Math.max(view.x, this.xOf(view, before));
        const right = Math.min(view.right, this.xOf(view, step.start_ns));
        if (right > left) pen.fillRect(left, 0, right - left, layout.height);
        before = step.end_ns;
      }
    }
    pen.fillStyle = colours.line!;
    for (const tick of this.ticks(view)) pen.fillRect(Math.round(this.xOf(view, tick.time)), 0, 1, layout.height);
    for (const track of layout.tracks) pen.fillRect(0, track.y + track.height + 3, view.right, 1);
  }

  /** Times are named from the start of the step that is in view, or from the first event. */
  private zero(view: View): number { return this.model.data.steps[this.model.stepIn(view.from, view.to)]?.start_ns ?? this.model.from; }

  private ticks(view: View): { time: number; label: string }[] {
    return ticksOf(view.from, view.to, this.zero(view), kTickRoom / view.scale);
  }

  private rows(layout: Layout, view: View, scene: Scene): void {
    const { pen, bars, palette } = this;
    for (const kind of ['range', 'other']) {
      bars.clear();
      for (const track of layout.tracks) {
        if ((track.kind === 'range') !== (kind === 'range')) continue;
        for (const line of track.lines) bars.add(this.model, line.row, view, line.y, line.height, scene.found, kLabelFrom);
      }
      bars.rects.forEach((list, index) => {
        if (list.length === 0) return;
        pen.fillStyle = kind === 'range' && index % kShades.length === 0 ? palette.soft[index / kShades.length]! : palette.fills[index]!;
        for (let at = 0; at < list.length; at += 4) pen.fillRect(list[at]!, list[at + 1]!, list[at + 2]!, list[at + 3]!);
      });
      this.names(view, kind === 'range');
    }
  }

  private names(view: View, soft: boolean): void {
    const { pen, bars, palette, colours } = this;
    pen.font = `11px ${colours.sans}`;
    pen.textBaseline = 'middle';
    pen.textAlign = 'left';
    for (const { event, x, y, width, height, code } of bars.wide) {
      const left = Math.max(x, view.x) + 4;
      const room = Math.min(x + width, view.right) - left - 3;
      const text = this.fitting(this.model.title(event), room);
      if (text === '') continue;
      pen.fillStyle = soft ? colours.text! : palette.letters[code]!;
      pen.fillText(text, left, y + height / 2 + 0.5);
    }
  }

  /** As much of `text` as `room` pixels hold; nothing when that says little. */
  private fitting(text: string, room: number): string {
    const kLeast = 3;
    if (room < kLeast * kLetter) return '';
    let width = this.widths.get(text);
    if (width === undefined) {
      width = this.pen.measureText(text).width;
      this.widths.set(text, width);
    }
    if (width <= room) return text;
    const letters = Math.floor((text.length * room) / width) - 1;
    return letters >= kLeast ? `${text.slice(0, letters)}…` : '';
  }

  /** The least and the most of the value per pixel, as an area that stands on 0, or on the least where 0 is far below. */
  private series(track: Track, series: Series, layout: Layout, view: View): void {
    const { pen, colours } = this;
    const top = track.y + layout.header + 3;
    const bottom = track.y + track.height;
    const span = series.most - series.least;
    const base = series.least > 0 && span < 0.5 * series.most && series.unit !== 'byte' ? series.least - 0.3 * (span || 0.1 * series.most) : Math.min(0, series.least);
    const yOf = (value: number): number => bottom - ((bottom - top) * (value - base)) / (series.most - base || 1);
    const first = Math.max(0, after(series.time.length, (i) => series.time[i]!, view.from) - 1);
    pen.beginPath();
    let [x, y] = [Math.max(view.x, this.xOf(view, series.time[first]!)), bottom];
    pen.moveTo(x, bottom);
    for (let i = first; i < series.time.length && series.time[i]! < view.to; ++i) {
      // Within a pixel the highest value stands for all, and the last goes on.
      const column = Math.max(view.x, this.xOf(view, series.time[i]!));
      let most = series.value[i]!;
      while (i + 1 < series.time.length && this.xOf(view, series.time[i + 1]!) < column + 1 && series.time[i + 1]! < view.to) most = Math.max(most, series.value[++i]!);
      pen.lineTo(column, y);
      pen.lineTo(column, yOf(most));
      y = yOf(series.value[i]!);
      x = column;
    }
    pen.lineTo(Math.max(x, Math.min(view.right, this.xOf(view, this.model.to))), y);
    pen.lineTo(Math.max(x, Math.min(view.right, this.xOf(view, this.model.to))), bottom);
    pen.closePath();
    pen.fillStyle = colours.selected!;
    pen.fill();
    pen.strokeStyle = colours.accent!;
    pen.lineWidth = 1;
    pen.stroke();
  }

  /** The least and the most of a series: under its name, or at the other end of the line above it. */
  private rangeLabel(track: Track, series: Series, layout: Layout, width: number): void {
    const { pen, colours } = this;
    pen.font = `10.5px ${colours.sans}`;
    pen.fillStyle = colours.muted!;
    const range = this.fitting(seriesRange(series), layout.gutter > 0 ? layout.gutter - 14 : width / 2);
    if (layout.gutter > 0) {
      pen.fillText(range, 4, track.y + 28);
    } else {
      pen.textAlign = 'right';
      pen.fillText(range, width - 2, track.y + layout.header / 2);
      pen.textAlign = 'left';
    }
  }

  private lineOf(layout: Layout, event: number): Line | null {
    const place = this.model.rowOf[event];
    for (const track of layout.tracks) for (const line of track.lines) if (line.place === place) return line;
    return null;
  }

  /** The rectangle of an event; null where its lane is not drawn. */
  boxOf(layout: Layout, view: View, event: number): { x: number; y: number; width: number; height: number } | null {
    const line = this.lineOf(layout, event);
    if (!line) return null;
    const left = this.xOf(view, this.model.start[event]!);
    const width = (this.model.end[event]! - this.model.start[event]!) * view.scale;
    return { x: left, y: line.y, width, height: line.height };
  }

  private outline(layout: Layout, view: View, event: number, colour: string, thickness: number): void {
    const box = this.boxOf(layout, view, event);
    if (!box) return;
    const kLeast = 3; // pixels
    const left = Math.max(view.x - 4, box.x - (box.width < kLeast ? 1 : 0));
    const right = Math.min(view.right + 4, Math.max(box.x + box.width, left + kLeast));
    if (right < view.x || left > view.right) return;
    this.pen.strokeStyle = colour;
    this.pen.lineWidth = thickness;
    this.pen.strokeRect(left + thickness / 2 - 1, box.y - 0.5, Math.max(right - left - thickness + 1, 1), box.height + 1);
  }

  private marks(layout: Layout, view: View, scene: Scene): void {
    const { pen, model, colours } = this;
    pen.save();
    pen.beginPath();
    pen.rect(view.x, 0, view.right - view.x, layout.height);
    pen.clip();
    let lastX = -10;
    for (const event of scene.marked) {
      if (model.end[event]! < view.from || model.start[event]! > view.to) continue;
      const x = this.xOf(view, model.start[event]!);
      if ((model.end[event]! - model.start[event]!) * view.scale < 2 && x - lastX < 2) continue;
      lastX = x;
      this.outline(layout, view, event, colours.text!, 1.5);
    }
    if (scene.hover >= 0 && scene.hover !== scene.current) this.outline(layout, view, scene.hover, colours.muted!, 1);
    if (scene.current >= 0) {
      this.outline(layout, view, scene.current, colours.text!, 2.5);
      this.causeLine(layout, view, scene.current);
    }
    pen.restore();
  }

  /** From the call to what it started. */
  private causeLine(layout: Layout, view: View, event: number): void {
    const cause = this.model.cause[event]!;
    const [from, to] = [cause >= 0 ? this.boxOf(layout, view, cause) : null, this.boxOf(layout, view, event)];
    if (!from || !to) return;
    const { pen } = this;
    const down = from.y < to.y;
    pen.strokeStyle = this.colours.text!;
    pen.lineWidth = 1;
    pen.setLineDash([3, 2]);
    pen.beginPath();
    pen.moveTo(from.x, down ? from.y + from.height : from.y);
    pen.lineTo(to.x, down ? to.y : to.y + to.height);
    pen.stroke();
    pen.setLineDash([]);
    this.outline(layout, view, cause, this.colours.muted!, 1.5);
  }

  private spanOver(pen: Pen, view: View, scene: Scene, height: number): void {
    if (!scene.span) return;
    const [left, right] = scene.span.map((time) => Math.min(view.right, Math.max(view.x, this.xOf(view, time)))) as [number, number];
    pen.fillStyle = this.colours.selected!;
    pen.fillRect(left, 0, right - left, height);
    pen.fillStyle = this.colours.accent!;
    pen.fillRect(left - 0.5, 0, 1, height);
    pen.fillRect(right - 0.5, 0, 1, height);
  }

  /** Names of lanes: beside them, or above where the screen is narrow. */
  private labels(layout: Layout, width: number): void {
    const { pen, colours } = this;
    if (layout.gutter > 0) {
      pen.fillStyle = colours.panel!;
      pen.fillRect(0, 0, layout.gutter - 1, layout.height);
      pen.fillStyle = colours['line-strong']!;
      pen.fillRect(layout.gutter - 1, 0, 1, layout.height);
    }
    pen.font = `11.5px ${colours.sans}`;
    pen.textBaseline = 'middle';
    for (const track of layout.tracks) {
      const text = this.fitting(track.label, layout.gutter > 0 ? layout.gutter - 14 : width - 8);
      pen.fillStyle = track.kind === 'series' || track.kind === 'host' || layout.header > 0 ? colours.muted! : colours.text!;
      pen.font = `11.5px ${colours.sans}`;
      pen.fillText(text, layout.gutter > 0 ? 4 : 2, layout.header > 0 ? track.y + layout.header / 2 : track.y + Math.min(track.height, 22) / 2);
      if (track.series) this.rangeLabel(track, track.series, layout, width);
    }
  }

  private ruler(layout: Layout, width: number, view: View, scene: Scene): void {
    const { rulerPen: pen, colours } = this;
    pen.fillStyle = colours.panel!;
    pen.fillRect(0, 0, width, kRulerHeight);
    this.spanOver(pen, view, scene, kRulerHeight);
    pen.font = `11px ${colours.sans}`;
    pen.textBaseline = 'middle';
    pen.textAlign = 'left';
    for (const tick of this.ticks(view)) {
      const x = Math.round(this.xOf(view, tick.time));
      pen.fillStyle = colours['line-strong']!;
      pen.fillRect(x, kRulerHeight - 7, 1, 7);
      pen.fillStyle = colours.muted!;
      if (x + 4 + pen.measureText(tick.label).width < width) pen.fillText(tick.label, x + 4, kRulerHeight / 2 - 1);
    }
    pen.fillStyle = colours['line-strong']!;
    pen.fillRect(0, kRulerHeight - 1, width, 1);
    if (layout.gutter === 0) return;
    const step = this.model.stepIn(view.from, view.to);
    pen.fillStyle = colours.panel!;
    pen.fillRect(0, 0, layout.gutter - 1, kRulerHeight - 1);
    pen.fillStyle = colours.muted!;
    pen.fillText(step < 0 ? 'time' : `time in step ${this.model.data.steps[step]!.step}`, 4, kRulerHeight / 2 - 1);
  }
}
