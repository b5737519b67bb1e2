// Numbers as text: SI prefixes, units, shares. GB is 10^9 bytes throughout.

const kNone = '–';
const kPrefixes: readonly [number, string][] = [
  [1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n'],
];

/** So many significant digits; grouped from 10 000 on, with an exponent below 0.0001. */
export function digits(value: number, significant = 3): string {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e4) return Math.round(value).toLocaleString('en-US').replaceAll(',', '\u202f');
  const decimals = Math.max(0, significant - 1 - Math.floor(Math.log10(size) + 1e-12));
  return size < 1e-4 ? value.toExponential(1) : value.toFixed(decimals);
}

function scaled(value: number, unit: string, significant: number, smallest: number): string {
  const size = Math.abs(value);
  if (size === 0) return `0 ${unit}`;
  const usable = kPrefixes.filter(([factor]) => factor >= smallest);
  // 999.6 rounds to 1000: it takes the next prefix.
  const [factor, prefix] = usable.find(([f]) => size >= f * 0.9995) ?? usable[usable.length - 1]!;
  return `${digits(value / factor, significant)} ${prefix}${unit}`;
}

/** A plain number with a prefix: 268260 is "268 k". */
export const prefixed = (value: number, significant = 3): string => scaled(value, '', significant, 1).trim();

const kBaseUnits: Record<string, string> = {
  s: 's', second: 's', seconds: 's', byte: 'B', bytes: 'B', B: 'B', flop: 'FLOP', FLOP: 'FLOP', 'flop/s': 'FLOP/s', 'FLOP/s': 'FLOP/s',
  'byte/s': 'B/s', 'bytes/s': 'B/s', 'B/s': 'B/s', Hz: 'Hz', W: 'W', J: 'J',
};
const kUnitNames: Record<string, string> = { C: '°C' };
/** The unit as it is written: degrees Celsius have a sign. */
export const unitName = (unit: string): string => kUnitNames[unit] ?? unit;
const kShareUnits = new Set(['share', 'fraction', 'ratio_of_1']);

/** `value` (in SI base units) with its unit: 0.0123 s is "12.3 ms", null is a dash. */
export function quantity(value: number | null | undefined, unit: string, significant = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return kNone;
  const base = kBaseUnits[unit];
  if ((base === 'B' || base === 'FLOP') && Math.abs(value) < 1e3 && Number.isInteger(value)) return `${value} ${base}`;
  if (base === 'B' || base === 'FLOP') return scaled(value, base, significant, 1);
  if (base !== undefined) return scaled(value, base, significant, 1e-9);
  if (kShareUnits.has(unit)) return percent(value);
  if (unit === '%') return `${digits(value)} %`;
  if (unit === '' || unit === 'count') return Number.isInteger(value) ? count(value) : digits(value, 4);
  if (Math.abs(value) >= 1e6) return scaled(value, unitName(unit), significant, 1);
  return `${Number.isInteger(value) ? count(value) : digits(value, 4)} ${unitName(unit)}`;
}

export const seconds = (value: number | null | undefined, significant = 3): string => quantity(value, 's', significant);
export const bytes = (value: number | null | undefined): string => quantity(value, 'byte');
export const flop = (value: number | null | undefined): string => quantity(value, 'flop');
export const flopPerSecond = (value: number | null | undefined): string => quantity(value, 'flop/s');

/** A share of 1 as per cent. */
export function percent(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return kNone;
  const size = Math.abs(100 * value);
  return `${size === 0 || size >= 0.995 ? digits(100 * value) : size < 0.005 ? '< 0.01' : (100 * value).toFixed(2)} %`;
}

/** A whole number with thin spaces between thousands. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return kNone;
  return value.toLocaleString('en-US').replaceAll(',', '\u202f');
}

/** "12.3 ms (12.1 to 12.6 ms)"; without an interval, the value. */
export function interval(low: number | null, high: number | null): string {
  if (low === null || high === null) return 'no interval';
  return `${seconds(low)} to ${seconds(high)}`;
}

/** A plural: 1 op, 2 ops. */
export const plural = (n: number, noun: string, many = `${noun}s`): string => `${count(n)} ${n === 1 ? noun : many}`;
