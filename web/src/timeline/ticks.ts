// Round places on the axis of time and their names.

export interface Tick {
  /** Nanoseconds since the origin of the timeline. */
  time: number;
  label: string;
}

const kUnits: readonly (readonly [number, string])[] = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];

/** Ticks at least `apart` nanoseconds from each other, named by their distance from `zero`. */
export function ticksOf(from: number, to: number, zero: number, apart: number): Tick[] {
  const power = 10 ** Math.floor(Math.log10(Math.max(apart, 1)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= apart) ?? 10 * power;
  const size = Math.max(Math.abs(from - zero), Math.abs(to - zero));
  const [unit, name] = kUnits.find(([factor]) => size >= factor) ?? kUnits[kUnits.length - 1]!;
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  const ticks: Tick[] = [];
  for (let place = Math.ceil((from - zero) / step); zero + place * step <= to; ++place) {
    ticks.push({ time: zero + place * step, label: `${((place * step) / unit).toFixed(decimals)} ${name}` });
  }
  return ticks;
}
