// The events of a timeline as a table: the same facts for those who do not see the picture, and to sort by.
import { numberColumn, type TextColumn } from '../columns';
import { Table } from '../table';
import type { TimelineModel } from './model';

const kNano = 1e-9;

export function eventTable(model: TimelineModel, open: (event: number) => void): Table {
  const { data, ops, count } = model;
  const text = (key: string, title: string, codes: ArrayLike<number>, names: readonly string[], filter = false): TextColumn => ({ kind: 'text', key, title, codes, names, filter });
  /** A text of the op; the last name is that of events without one. */
  const ofOp = (key: 'scope' | 'phase', filter = false): TextColumn => {
    const names = [...ops[key].names, ''];
    return text(key, key, Uint32Array.from(model.op, (op) => (op < 0 ? names.length - 1 : ops[key].codes[op]!)), names, filter);
  };
  const steps = Float64Array.from(model.start, (start) => data.steps[model.stepAt(start)]?.step ?? NaN);
  return new Table({
    label: 'Events', length: count, visibleRows: 14, open,
    columns: [
      numberColumn('start', 'start', 's', Float64Array.from(model.start, (start) => kNano * (start - model.from)), 'Since the first event'),
      numberColumn('duration', 'duration', 's', Float64Array.from(model.end, (end, i) => kNano * (end - model.start[i]!))),
      text('lane', 'lane', model.lane, data.lanes.map((_, lane) => model.laneTitle(lane)), true),
      text('name', 'name', model.name, data.names.map((name) => name.text)),
      text('class', 'class', model.cls, data.classes, true),
      numberColumn('op', 'op', '', Float64Array.from(model.op, (op) => (op < 0 ? NaN : ops.index[op]!))),
      ofOp('scope'), ofOp('phase', true), numberColumn('step', 'step', '', steps),
    ],
  });
}
