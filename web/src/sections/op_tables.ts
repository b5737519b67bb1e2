// The tables of ops, blocks, kernels (with the columns of nsys' summary) and ceilings.
import { type Column, numberColumn, numbersFrom, textColumn, type TextColumn } from '../columns';
import { showDetails } from '../details';
import { blockRows, opRows } from '../detail_rows';
import type { Kernel } from '../document';
import { absent, h } from '../dom';
import { type Ops, opsOf, opTitle, type Texts } from '../ops';
import type { Selection } from '../selection';
import { Table } from '../table';
import type { Section } from './section';

/** Marks the rows of a table whose ops are among the chosen ones. */
function markChosen(table: Table, selection: Selection, opsOfRow: readonly (readonly number[])[]): void {
  const rowOf = new Map(opsOfRow.flatMap((ops, row) => ops.map((op) => [op, row] as const)));
  selection.onChange((chosen, by) => {
    const rows = new Set<number>();
    for (const op of chosen?.ops ?? []) rows.add(rowOf.get(op) ?? -1);
    table.mark(rows, by !== table);
  });
}

const text = (key: string, title: string, column: Texts, filter = false): TextColumn => ({ kind: 'text', key, title, codes: column.codes, names: column.names, filter });

function opColumns(ops: Ops): Column[] {
  const columns: (Column | null)[] = [
    { ...numberColumn('op', 'op', '', ops.index, 'Place in the program'), isName: true },
    text('scope', 'scope', ops.scope),
    text('kind', 'kind', ops.kind, ops.kind.names.length <= 40),
    text('phase', 'phase', ops.phase, true),
    text('class', 'class', ops.cls, true),
    numberColumn('device', 'device time', 's', ops.device, 'Median per step'),
    numberColumn('wall', 'wall time', 's', ops.wall, 'Median per step, seen from the host'),
    numberColumn('share', 'of step', 'share', ops.stepShare, 'Share of the median step'),
    numberColumn('roof', 'at the roof', 's', ops.roof, 'Least time that the ceilings allow'),
    numberColumn('of_roof', 'of roof', 'share', ops.roofShare, 'Time at the roof / time measured'),
    text('bound', 'bound', ops.bound, true),
    numberColumn('rate', 'rate', 'flop/s', ops.rate),
    numberColumn('bandwidth', 'bandwidth', 'byte/s', ops.bandwidth),
    numberColumn('matmul', 'matmul', 'flop', ops.matmul, 'Matmul FLOP'),
    numberColumn('elementwise', 'elementwise', 'flop', ops.elementwise),
    numberColumn('bytes', 'bytes', 'byte', ops.bytes, 'Least bytes read and written'),
    numberColumn('std', 'std', 's', ops.std),
    numberColumn('launches', 'launches', '', ops.launches),
    ops.recomputed.some((value) => value === 1) ? textColumn('recomputed', 'recomputed', Array.from(ops.recomputed, (value) => (value === 1 ? 'yes' : '')), { filter: true }) : null,
    text('kernel', 'kernel', ops.kernel),
    text('dtype', 'dtype', ops.dtype),
    text('shapes', 'shapes', ops.shapes),
  ];
  // A column that says nothing about any op only takes room.
  return columns.filter((column): column is Column => column !== null
    && (column.kind === 'text' ? column.names.some((name) => name !== '') : Array.prototype.some.call(column.values, (value: number) => !Number.isNaN(value))));
}

export const opTable: Section = {
  id: 'ops',
  title: 'Ops',
  lead: 'Every op of a step. Sort by a heading; Enter or a click shows all numbers of an op.',
  build: ({ run, selection }) => {
    if (run.ops.length === 0) return [absent('This run has no ops: no step of it was observed.')];
    const ops = opsOf(run);
    const columns = opColumns(ops);
    const order = { column: columns.findIndex((column) => column.key === 'device' || column.key === 'wall'), descending: true };
    const table = new Table({ label: 'Ops', columns, length: ops.length, order, visibleRows: 18,
      open: (i) => {
        selection.choose([i], opTitle(ops, i), table);
        showDetails({ title: opTitle(ops, i), subtitle: `op of the ${run.label} run`, rows: opRows(ops, i) });
      } });
    selection.onChange((chosen, by) => table.mark(chosen?.ops ?? new Set(), by !== table));
    return [table.element];
  },
};

export const blockTable: Section = {
  id: 'blocks',
  title: 'Blocks',
  lead: 'Blocks per phase, summed over layers, against their roof.',
  build: ({ run, selection }) => {
    const { blocks } = run;
    if (blocks.length === 0) return [absent('This run has no blocks: no step of it was observed.')];
    const opsOfBlock = blocks.map((block) => selection.opsOfBlock(block));
    const n = (get: (block: (typeof blocks)[number]) => number | null): Float64Array => numbersFrom(blocks, get);
    const table = new Table({
      label: 'Blocks', length: blocks.length, visibleRows: 16, order: { column: 2, descending: true },
      columns: [
        textColumn('block', 'block', blocks.map((block) => block.block)),
        textColumn('phase', 'phase', blocks.map((block) => block.phase), { filter: true }),
        numberColumn('measured', 'measured', 's', n((block) => block.measured_s)), numberColumn('wall', 'wall time', 's', n((block) => block.wall_s)),
        numberColumn('share', 'of kernels', 'share', n((block) => block.time_share), 'Share of the time in kernels of the step'), numberColumn('roof', 'at the roof', 's', n((block) => block.roof_s)),
        numberColumn('of_roof', 'of roof', 'share', n((block) => block.share)),
        numberColumn('gain', 'possible gain', 's', n((block) => block.gain_s)),
        textColumn('bound', 'bound', blocks.map((block) => block.bound ?? ''), { filter: true }),
        numberColumn('matmul', 'matmul', 'flop', n((block) => block.matmul_flop)), numberColumn('elementwise', 'elementwise', 'flop', n((block) => block.elementwise_flop)),
        numberColumn('bytes', 'bytes', 'byte', n((block) => block.bytes)), numberColumn('intensity', 'intensity', 'FLOP/B', n((block) => block.intensity)),
        numberColumn('launches', 'launches', '', n((block) => block.launches)), numberColumn('ops', 'ops', '', n((block) => block.ops)),
        numberColumn('gap', 'gap per launch', 's', n((block) => block.gap_s), '(wall time - device time) / launches; absent if wall times were not measured'),
      ],
      open: (i) => {
        const title = `${blocks[i]!.block}, ${blocks[i]!.phase}`;
        selection.choose(opsOfBlock[i]!, title, table);
        showDetails({ title, subtitle: `block of the ${run.label} run`, rows: blockRows(blocks[i]!) });
      },
    });
    markChosen(table, selection, opsOfBlock);
    return [table.element];
  },
};

export const kernelTable: Section = {
  id: 'kernels',
  title: 'Kernels',
  lead: 'One row per kernel and phase, over all observed steps, with the columns of the nsys kernel summary. Times are per execution of an op. A click shows all columns of a row and marks its ops in the other sections.',
  build: ({ run, selection }) => {
    const rows = run.kernels;
    if (rows.length === 0) return [absent(run.ops.length === 0 ? 'This run has no ops, so no kernels are known.' : 'No step of this run was observed, so its kernels have no times.')];
    const opsOfKernel = rows.map((row) => selection.opsOfKernel(row));
    const n = (get: (row: Kernel) => number | null): Float64Array => numbersFrom(rows, get);
    const t = (key: string, title: string, get: (row: Kernel) => string): Column[] => (rows.some((row) => get(row) !== '') ? [textColumn(key, title, rows.map(get))] : []);
    const table = new Table({
      label: 'Kernels', length: rows.length, visibleRows: 12, order: { column: 0, descending: true },
      columns: [
        numberColumn('share', 'Time', 'share', n((row) => row.time_share), 'Share of the time of all kernels'), numberColumn('total', 'Total time', 's', n((row) => row.total_s), 'Of all executions'),
        numberColumn('instances', 'Instances', '', n((row) => row.instances), 'Executions of its ops'), numberColumn('avg', 'Avg', 's', n((row) => row.avg_s)),
        numberColumn('med', 'Med', 's', n((row) => row.med_s)), numberColumn('min', 'Min', 's', n((row) => row.min_s)), numberColumn('max', 'Max', 's', n((row) => row.max_s)),
        numberColumn('std', 'StdDev', 's', n((row) => row.std_s), 'Over the executions'), textColumn('name', 'Name', rows.map((row) => row.name)),
        textColumn('phase', 'Phase', rows.map((row) => row.phase), { filter: true }),
        numberColumn('launches', 'Launches', '', n((row) => row.launches), 'Kernels that these executions launch, by the program'),
        ...t('library', 'Library', (row) => row.library), ...t('variant', 'Variant', (row) => row.variant),
      ],
      open: (i) => {
        selection.choose(opsOfKernel[i]!, `${rows[i]!.name}, ${rows[i]!.phase}`, table);
        showDetails({ title: rows[i]!.name, subtitle: `kernel of the ${run.label} run`, rows: table.details(i) });
      },
    });
    markChosen(table, selection, opsOfKernel);
    return [table.element];
  },
};

export const ceilingTable: Section = {
  id: 'ceilings',
  title: 'Ceilings',
  lead: 'The highest rates measured on this machine. Matmul rates and bandwidths are the lines of the roofline. No kernel can exceed the instruction peak, which uses registers only. Each record has its own ceilings, unless they are the same.',
  build: ({ document }) => {
    const rows = document.ceilings;
    if (rows.length === 0) return [absent('This report has no ceilings, so shares of the roof cannot be checked here.')];
    const t = (key: string, title: string, get: (row: (typeof rows)[number]) => string, filter = false): TextColumn => textColumn(key, title, rows.map(get), { filter });
    // Rates and bandwidths stand in columns of their own: one column would sort unlike things.
    const only = (pattern: RegExp, get: (row: (typeof rows)[number]) => number | null): Float64Array => numbersFrom(rows, (row) => (pattern.test(row.unit) ? get(row) : null));
    const table = new Table({
      label: 'Ceilings', length: rows.length, visibleRows: 12, search: rows.length > 12,
      columns: [
        t('device', 'device', (row) => row.device), t('what', 'what', (row) => row.what, true), t('level', 'level', (row) => row.level, true), t('dtype', 'dtype', (row) => row.dtype, true),
        numberColumn('threads', 'threads', '', numbersFrom(rows, (row) => row.threads)),
        numberColumn('rate', 'rate', 'flop/s', only(/flop/i, (row) => row.value)), numberColumn('bandwidth', 'bandwidth', 'byte/s', only(/^b/i, (row) => row.value)),
        numberColumn('spread', 'interval', 'share', numbersFrom(rows, (row) => row.spread), 'Width of the confidence interval as a share of the value'),
        ...(document.files.length > 1 ? [t('file', 'record', (row) => row.file, true)] : []), t('source', 'source', (row) => row.source), t('measured', 'measured (UTC)', (row) => row.measured_utc),
      ],
    });
    return [h('div', {}, table.element)];
  },
};
