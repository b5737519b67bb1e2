// All runs of the page beside each other; one that is clicked is taken apart below.
import { numberColumn, numbersFrom, textColumn } from '../columns';
import type { Run } from '../document';
import { absent, type Child } from '../dom';
import { Table } from '../table';
import type { Section } from './section';

function runTable(runs: readonly Run[], open: (run: number) => void): HTMLElement {
  const column = (get: (run: Run) => number | null): Float64Array => numbersFrom(runs, get);
  return new Table({
    label: 'Runs', length: runs.length, visibleRows: 16, search: runs.length > 16, open,
    columns: [
      textColumn('run', 'run', runs.map((run) => run.label)), textColumn('status', 'status', runs.map((run) => run.status), { filter: true }),
      numberColumn('step', 'step', 's', column((run) => run.step?.median_s ?? run.figures.traced_step_s), 'Median; for recorded programs, including the cost of recording'),
      numberColumn('low', 'from', 's', column((run) => run.step?.ci_low_s ?? null), 'Lower end of the interval of the median'),
      numberColumn('high', 'to', 's', column((run) => run.step?.ci_high_s ?? null), 'Upper end of the interval of the median'),
      numberColumn('tokens', 'tokens/s', '', column((run) => run.figures.tokens_per_s)), numberColumn('mfu', 'MFU', 'share', column((run) => run.figures.mfu)),
      numberColumn('roof', 'share of the roof', 'share', column((run) => run.figures.roof_share)), numberColumn('memory', 'peak memory', 'byte', column((run) => run.figures.peak_bytes)),
    ],
  }).element;
}

export const runs: Section = {
  id: 'runs',
  title: 'Runs',
  lead: 'Choose one to see its details: click its row, or press Enter on it.',
  build: ({ document, choose }): Child[] => [document.runs.length > 0 ? runTable(document.runs, choose) : absent('This report has no runs.')],
};
