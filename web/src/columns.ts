// Columns for tables and charts, made from the document's columnar parts or from lists of rows.
import type { Columnar } from './document';

interface Heading {
  key: string;
  title: string;
  /** Said when the pointer rests on the heading. */
  hint?: string;
  /** Offer a drop-down list of the values (few are different). */
  filter?: boolean;
}
export interface TextColumn extends Heading {
  kind: 'text';
  codes: ArrayLike<number>;
  names: readonly string[];
}
export interface NumberColumn extends Heading {
  kind: 'number';
  /** In SI base units; NaN where there is none. */
  values: ArrayLike<number>;
  unit: string;
  /** Numbers by which rows are called: search finds them. */
  isName?: boolean;
}
export type Column = TextColumn | NumberColumn;

export const numberColumn = (key: string, title: string, unit: string, values: ArrayLike<number>, hint?: string): NumberColumn =>
  ({ kind: 'number', key, title, unit, values, hint });

/** A column of strings; equal ones are stored once. */
export function textColumn(key: string, title: string, texts: readonly string[], more: Partial<Heading> = {}): TextColumn {
  const places = new Map<string, number>();
  const names: string[] = [];
  const codes = Uint32Array.from(texts, (text) => {
    let place = places.get(text);
    if (place === undefined) {
      place = names.length;
      places.set(text, place);
      names.push(text);
    }
    return place;
  });
  return { kind: 'text', key, title, codes, names, ...more };
}

const nan = (value: number | null | undefined): number => (typeof value === 'number' ? value : NaN);

export const numbersFrom = <T>(rows: readonly T[], get: (row: T) => number | null): Float64Array => Float64Array.from(rows, (row) => nan(get(row)));

/** Column `key` as numbers, NaN where it has none; all NaN when there is no such column. */
export function numbers(part: Columnar, key: string): Float64Array {
  const column = part.columns[key];
  const values = new Float64Array(part.length).fill(NaN);
  if (column) for (let i = 0; i < part.length; ++i) values[i] = nan(column[i]);
  return values;
}

/** Column `key` as codes into `names`; a missing or wrong index reads as the empty text. */
export function texts(part: Columnar, key: string): { codes: Uint32Array; names: string[] } {
  const column = part.columns[key];
  const used = new Map<number, number>();
  const names: string[] = [];
  const codes = new Uint32Array(part.length);
  for (let i = 0; i < part.length; ++i) {
    const index = column ? column[i]! : -1;
    let code = used.get(index);
    if (code === undefined) {
      code = names.length;
      used.set(index, code);
      names.push(part.names[index] ?? '');
    }
    codes[i] = code;
  }
  return { codes, names };
}

export const textAt = (column: { codes: ArrayLike<number>; names: readonly string[] }, row: number): string => column.names[column.codes[row]!] ?? '';
