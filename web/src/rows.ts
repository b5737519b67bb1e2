// Which rows of a table are shown and in which order: search, filters and sorting over columns, without the DOM.
import type { Column, NumberColumn, TextColumn } from './columns';

export interface Order {
  column: number;
  descending: boolean;
}

/** Rank of each name in the order of the alphabet, numbers in it by value: h.2 stands before h.10. */
function ranks(names: readonly string[]): Uint32Array {
  const collator = new Intl.Collator('en', { numeric: true });
  const sorted = names.map((_, i) => i).sort((a, b) => collator.compare(names[a]!, names[b]!));
  const rank = new Uint32Array(names.length);
  sorted.forEach((name, place) => { rank[name] = place; });
  return rank;
}

export class Rows {
  private readonly lowered = new Map<TextColumn, string[]>();
  private readonly rankOf = new Map<TextColumn, Uint32Array>();

  constructor(readonly columns: readonly Column[], readonly length: number) {}

  /** The rows that hold every word of `search` in some text column, or are called by it as a number, and the chosen name in each filtered column. */
  select(search: string, filters: ReadonlyMap<number, string>): Uint32Array {
    const words = search.toLowerCase().split(/\s+/).filter((word) => word !== '');
    const tests = [...words.map((word) => this.wordTest(word)), ...[...filters].map(([column, name]) => this.nameTest(column, name))];
    const kept = new Uint32Array(this.length);
    let count = 0;
    for (let row = 0; row < this.length; ++row) if (tests.every((test) => test(row))) kept[count++] = row;
    return kept.slice(0, count);
  }

  sort(rows: Uint32Array, order: Order | null): Uint32Array {
    const column = order ? this.columns[order.column] : undefined;
    if (!order || !column) return rows;
    const sign = order.descending ? -1 : 1;
    if (column.kind === 'text') {
      const rank = this.rankOf.get(column) ?? ranks(column.names);
      this.rankOf.set(column, rank);
      return rows.sort((a, b) => sign * (rank[column.codes[a]!]! - rank[column.codes[b]!]!) || a - b);
    }
    const { values } = column;
    // Rows without a number come last in both directions.
    return rows.sort((a, b) => {
      const [x, y] = [values[a]!, values[b]!];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y)) || a - b;
      return sign * (x - y) || a - b;
    });
  }

  private wordTest(word: string): (row: number) => boolean {
    const hits = this.columns.filter((column): column is TextColumn => column.kind === 'text').map((column) => {
      const lowered = this.lowered.get(column) ?? column.names.map((name) => name.toLowerCase());
      this.lowered.set(column, lowered);
      return { codes: column.codes, hit: Uint8Array.from(lowered, (name) => Number(name.includes(word))) };
    });
    const number = /^#?\d+$/.test(word) ? Number(word.replace('#', '')) : NaN;
    const numbers = this.columns.filter((column): column is NumberColumn => column.kind === 'number' && column.isName === true);
    return (row) => hits.some(({ codes, hit }) => hit[codes[row]!] === 1) || numbers.some(({ values }) => values[row] === number);
  }

  private nameTest(index: number, name: string): (row: number) => boolean {
    const column = this.columns[index];
    if (column?.kind !== 'text') return () => true;
    const code = column.names.indexOf(name);
    return (row) => column.codes[row] === code;
  }
}
