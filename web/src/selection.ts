// Which ops the reader looks at: chosen in one part of the page, marked in all of them.
import type { Kernel, Run } from './document';
import { opsOf, partOf } from './ops';
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

  /** Ops of the phase that run that kernel; an op without the name of a kernel goes by its kind. */
  opsOfKernel({ phase, name }: Kernel): readonly number[] {
    const { phase: phases, kernel, kind } = opsOf(this.run);
    this.kernels ??= group(phases.codes.length, (row) => `${phases.names[phases.codes[row]!]} ${kernel.names[kernel.codes[row]!] || kind.names[kind.codes[row]!]}`);
    return this.kernels.get(`${phase} ${name}`) ?? [];
  }
  private kernels: Map<string, number[]> | null = null;

  /** Ops of all phases and layers of that part: "attention/qkv". */
  opsOfPart(part: string): readonly number[] {
    const { scope } = opsOf(this.run);
    const ofScope = scope.names.map(partOf);
    this.parts ??= group(scope.codes.length, (row) => ofScope[scope.codes[row]!]!);
    return this.parts.get(part) ?? [];
  }
  private parts: Map<string, number[]> | null = null;

  opsOfBlock({ phase, block }: { phase: string; block: string }): readonly number[] {
    const { phase: phases, scope } = opsOf(this.run);
    const ofScope = scope.names.map(blockOf);
    this.blocks ??= group(phases.codes.length, (row) => `${phases.names[phases.codes[row]!]} ${ofScope[scope.codes[row]!]}`);
    return this.blocks.get(`${phase} ${block}`) ?? [];
  }
  private blocks: Map<string, number[]> | null = null;
}

function group(length: number, key: (row: number) => string): Map<string, number[]> {
  const groups = new Map<string, number[]>();
  for (let row = 0; row < length; ++row) {
    const name = key(row);
    const rows = groups.get(name);
    if (rows) rows.push(row);
    else groups.set(name, [row]);
  }
  return groups;
}
