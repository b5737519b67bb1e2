// The longest stretches without a kernel; a click shows one on the timeline.
import { numberColumn, numbersFrom, textColumn } from '../columns';
import type { Gap } from '../document';
import { absent } from '../dom';
import { Table } from '../table';
import type { Section } from './section';

const text = (key: keyof Gap, title: string, gaps: readonly Gap[]) => textColumn(key, title, gaps.map((gap) => String(gap[key] ?? '')));

/** A link to what the timeline shows, with as much again around the gap. */
function linkTo({ start_ns: from, end_ns: to }: Gap, run: number): string | null {
  if (from === null || to === null) return null;
  const around = Math.max(1000, (to - from) / 2);
  return `#timeline?run=${run}&from=${Math.max(0, Math.round(from - around))}&to=${Math.round(to + around)}`;
}

export const gaps: Section = {
  id: 'gaps',
  title: 'Longest gaps',
  lead: 'The longest times without a kernel on the device: before which kernel they were, and what the host was doing. A click or Enter shows a gap on the timeline, if this page keeps its step.',
  build: ({ run, runIndex }) => {
    const { gaps: all } = run;
    if (all.length === 0) return [absent('This run has no gaps: no kernels of a device were traced.')];
    const columns = [
      numberColumn('step', 'step', '', numbersFrom(all, (gap) => gap.step)), numberColumn('at_s', 'at', 's', numbersFrom(all, (gap) => gap.at_s), 'Since the step began'),
      numberColumn('seconds', 'gap', 's', numbersFrom(all, (gap) => gap.seconds)), text('device', 'device', all), text('cause', 'mostly', all), text('next', 'before', all),
      text('host', 'the host was in', all), text('line', 'line', all), text('within', 'within', all),
      textColumn('shown', 'on the timeline', all.map((gap) => (gap.start_ns === null ? 'no' : 'yes')))]
      .filter((column) => (column.kind === 'text' ? column.names.some((name) => name !== '') : Array.prototype.some.call(column.values, (value: number) => !Number.isNaN(value))));
    const open = (row: number): void => {
      const link = linkTo(all[row]!, runIndex);
      if (link !== null) window.location.hash = link;
    };
    return [new Table({ label: 'Longest gaps', columns, length: all.length, visibleRows: 8, search: all.length > 12, open }).element];
  },
};
