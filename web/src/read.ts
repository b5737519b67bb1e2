// Readers of parts of the document: what is missing or of another type becomes empty, and is said where it leaves something out.

export type Json = Record<string, unknown>;

/** Where a part stands, in words, and what was found wrong so far. */
export interface Place {
  where: string;
  problems: string[];
}
/** Reads the member `key` of an object. */
export type Reader<T> = (value: unknown, place: Place, key: string) => T;
/** The members of an object, each with its reader. */
export type Shape = Record<string, Reader<unknown>>;
/** What an object of that shape is read as. */
export type Of<S extends Shape> = { [K in keyof S]: ReturnType<S[K]> };

export const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value);
const objectsOf = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : []);

export const text = (value: unknown): string => (typeof value === 'string' || typeof value === 'number' ? String(value) : '');
export const number = (value: unknown): number | null => (typeof value === 'number' && Number.isFinite(value) ? value : null);
export const flag = (value: unknown): boolean => value === true;
export const numberOr = (other: number) => (value: unknown): number => number(value) ?? other;
export const textOr = <T>(other: T) => (value: unknown): string | T => text(value) || other;
/** All that an array holds, as texts. */
export const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(text) : []);
/** Without empty ones. */
export const sentences = (value: unknown): string[] => texts(value).filter((one) => one !== '');
/** Values of any type by any key. */
export const anything = (value: unknown): Json => (isObject(value) ? value : {});

const within = (place: Place, where: string): Place => (where === '' ? place : { ...place, where: `${place.where}, ${where}` });

/** An object of that shape, all empty where there is none. `where`: what it is called beside what it is part of. */
export const object = <S extends Shape>(shape: S, where = '') => (value: unknown, place: Place): Of<S> => {
  const given = anything(value);
  const inside = within(place, where);
  return Object.fromEntries(Object.entries(shape).map(([key, read]) => [key, read(given[key], inside, key)])) as Of<S>;
};

/** Members that are read alike. */
export const each = <R extends Reader<unknown>, K extends string>(read: R, ...keys: K[]): Record<K, R> =>
  Object.fromEntries(keys.map((key) => [key, read])) as Record<K, R>;

/** null where there is no object. */
export const optional = <T>(read: Reader<T>) => (value: unknown, place: Place, key: string): T | null => (isObject(value) ? read(value, place, key) : null);

/** Objects by any key. */
export const dictionary = <T>(read: Reader<T>) => (value: unknown, place: Place): Record<string, T> =>
  Object.fromEntries(Object.entries(anything(value)).filter(([, one]) => isObject(one)).map(([key, one]) => [key, read(one, place, key)]));

/** A list of objects; a list that is none, and entries that are none, are said. */
export const list = <T>(read: Reader<T>, where = '') => (value: unknown, place: Place, key: string): T[] => {
  const inside = within(place, where);
  const say = (problem: string): void => void place.problems.push(`${inside.where}: ${problem}`);
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) {
    say(`"${key}" is not a list and is left out.`);
    return [];
  }
  const rows = objectsOf(value);
  if (rows.length !== value.length) say(`${value.length - rows.length} entries of "${key}" are not objects and are left out.`);
  return rows.map((row) => read(row, inside, key));
};

/** The same, silently. */
export const objects = <T>(read: Reader<T>) => (value: unknown, place: Place, key: string): T[] => objectsOf(value).map((row) => read(row, place, key));

/** Columns of equal length; those that hold text hold indices into `names`. */
export interface Columnar {
  length: number;
  names: string[];
  columns: Record<string, number[]>;
}

/** Columns of one length: when they differ, the rows that all of them have. None where one of `needed` is missing. */
export const columnar = (called: string, ...needed: readonly string[]) => (value: unknown, place: Place): Columnar => {
  const say = (problem: string): void => void place.problems.push(`${within(place, called).where}: ${problem}`);
  if (!isObject(value)) return { length: 0, names: [], columns: {} };
  const columns: Record<string, number[]> = {};
  let shortest = Infinity;
  let longest = 0;
  for (const [key, column] of Object.entries(value)) {
    if (key === 'names' || !Array.isArray(column)) continue;
    columns[key] = column as number[];
    shortest = Math.min(shortest, column.length);
    longest = Math.max(longest, column.length);
  }
  const missing = needed.filter((key) => !(key in columns));
  if (missing.length > 0) {
    say(`column ${missing.join(', ')} is missing; the part is left out.`);
    return { length: 0, names: [], columns: {} };
  }
  if (shortest < longest) say(`columns differ in length (${shortest} to ${longest}); the first ${shortest} rows are shown.`);
  return { length: Number.isFinite(shortest) ? shortest : 0, names: texts(value.names), columns };
};
