// Which ops the reader looks at: chosen in one part of the page, marked in all of them.
import type { Kernel, Run } from './document';
import { opsOf } from './ops';
import { blockOf } from './timeline/model';

export interface Chosen {
  /** Rows of opsOf(run). */
  ops: ReadonlySet<number>;
  title: string;
}

type Listener = (chosen: Chosen | null, by: unknown) => void;

/** The choice of one run. */
export class Selection {
  private readonly listeners: Listener[] = [];
  current: Chosen | null = null;

  constructor(private readonly run: Run) {}

  /** `by` is who chose, so that it need not answer itself. */
  choose(ops: Iterable<number>, title: string, by: unknown): void {
    const chosen = new Set(ops);
    this.current = chosen.size > 0 ? { ops: chosen, title } : null;
    for (const listener of this.listeners) listener(this.current, by);
  }

  onChange(listener: Listener): void { this.listeners.push(listener); }

  private rowsWhere(holds: (row: number) => boolean): number[] {
    return Array.from({ length: opsOf(this.run).length }, (_, row) => row).filter(holds);
  }

  /** Ops of the phase that run that kernel; an op without the name of a kernel goes by its kind. */
  opsOfKernel({ phase, name }: Kernel): number[] {
    const ops = opsOf(this.run);
    const [phases, kernels, kinds] = [ops.phase, ops.kernel, ops.kind].map((part) => (row: number) => part.names[part.codes[row]!]!);
    return this.rowsWhere((row) => phases!(row) === phase && (kernels!(row) || kinds!(row)) === name);
  }

  opsOfBlock({ phase, block }: { phase: string; block: string }): number[] {
    const { phase: phases, scope } = opsOf(this.run);
    return this.rowsWhere((row) => phases.names[phases.codes[row]!] === phase && blockOf(scope.names[scope.codes[row]!]!) === block);
  }
}
