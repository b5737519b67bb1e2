// Bars of a row as rectangles: what is narrower than a pixel is merged, and the colour that fills most of it stands for all.
import type { Row, TimelineModel } from './model';
import { kDimmed, kShades } from './palette';

const kMerged = 1; // pixels; narrower bars are merged
const kGapFrom = 3; // wider bars leave a gap to the next one

/** What is drawn wide enough to carry a name. */
export interface Wide {
  event: number;
  x: number;
  y: number;
  width: number;
  height: number;
  code: number;
}

export class Bars {
  /** x, y, width, height of rectangles by kShades.length * code + shade. */
  readonly rects: number[][];
  readonly wide: Wide[] = [];
  private readonly share: Float64Array;
  private readonly touched: number[] = [];
  private column = -1;
  private found = false;
  private filled = 0;

  constructor(private readonly codes: Uint16Array, colours: number) {
    this.rects = Array.from({ length: colours * kShades.length }, () => []);
    this.share = new Float64Array(colours);
  }

  clear(): void {
    for (const list of this.rects) list.length = 0;
    this.wide.length = 0;
  }

  /** Adds what is in view of a row: times from `from`, `scale` pixels per nanosecond, `x` the pixel of `from`. */
  add(model: TimelineModel, row: Row, view: { from: number; to: number; scale: number; x: number; right: number }, y: number, height: number,
      found: Uint8Array | null, leastLabel: number): void {
    const { start, end } = model;
    const { events } = row;
    for (let place = model.firstAfter(row, view.from); place < events.length; ++place) {
      const event = events[place]!;
      if (start[event]! >= view.to) break;
      const left = Math.max(view.x - 1, view.x + (start[event]! - view.from) * view.scale);
      const right = Math.min(view.right + 1, view.x + (end[event]! - view.from) * view.scale);
      const width = right - left;
      const code = this.codes[event]!;
      const isFound = found === null || found[event] === 1;
      if (width < kMerged) {
        this.merge(Math.floor(left), y, height, code, Math.max(width, 0.05), isFound);
        continue;
      }
      this.flush(y, height);
      const drawn = width > kGapFrom ? width - 1 : width;
      this.rects[kShades.length * code + (isFound ? 0 : kDimmed)]!.push(left, y, drawn, height);
      if (width < leastLabel || !isFound) continue;
      // Where a lane has more at once than rows, the next bar covers this one: its name ends there.
      const next = events[place + 1];
      const free = next === undefined ? drawn : Math.min(drawn, (start[next]! - view.from) * view.scale + view.x - left);
      if (free >= leastLabel) this.wide.push({ event, x: left, y, width: free, height, code });
    }
    this.flush(y, height);
  }

  private merge(column: number, y: number, height: number, code: number, width: number, found: boolean): void {
    if (column !== this.column) {
      this.flush(y, height);
      this.column = column;
    }
    // What a search found hides what it did not.
    if (found && !this.found) {
      this.found = true;
      for (const other of this.touched) this.share[other] = 0;
    }
    this.filled += width;
    if (this.found && !found) return;
    if (this.share[code] === 0) this.touched.push(code);
    this.share[code]! += width;
  }

  /** Ends the pixel that is being filled; equal neighbours become one rectangle. */
  private flush(y: number, height: number): void {
    if (this.column < 0) return;
    let best = this.touched[0] ?? 0;
    for (const code of this.touched) {
      if (this.share[code]! > this.share[best]!) best = code;
    }
    for (const code of this.touched) this.share[code] = 0;
    const shade = !this.found ? kDimmed : this.filled > 0.66 ? 0 : this.filled > 0.33 ? 1 : this.filled > 0.08 ? 2 : 3;
    const list = this.rects[kShades.length * best + shade]!;
    const last = list.length - 4;
    if (last >= 0 && list[last + 1] === y && list[last]! + list[last + 2]! === this.column) list[last + 2]! += 1;
    else list.push(this.column, y, 1, height);
    this.touched.length = 0;
    this.filled = 0;
    this.found = false;
    this.column = -1;
  }
}
