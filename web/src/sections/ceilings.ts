// The ceilings that a run is held against: rates and bandwidths of its device with its number of threads.
import type { Ceiling, Run } from '../document';

export interface Roofs {
  /** Horizontal lines, flop/s: of matrix products, not the instruction peaks, which no kernel reaches. */
  rates: { name: string; value: number }[];
  /** Sloped lines, byte/s. */
  bandwidths: { name: string; value: number }[];
}

/** Of several ceilings for one thing (read, copy, triad of one level) the highest: a roof is what cannot be passed. */
function highest(ceilings: readonly Ceiling[], nameOf: (ceiling: Ceiling) => string): { name: string; value: number }[] {
  const best = new Map<string, number>();
  for (const ceiling of ceilings) {
    const name = nameOf(ceiling);
    if (ceiling.value !== null && ceiling.value > (best.get(name) ?? 0)) best.set(name, ceiling.value);
  }
  return [...best].map(([name, value]) => ({ name, value })).sort((a, b) => b.value - a.value);
}

export function roofsOf(run: Run, all: readonly Ceiling[]): Roofs {
  const device = String(run.config.device ?? '');
  const sameDevice = all.filter((ceiling) => ceiling.device === device);
  const onDevice = sameDevice.length > 0 ? sameDevice : all.filter((ceiling) => device.startsWith(ceiling.device));
  const threads = onDevice.filter((ceiling) => ceiling.threads === run.config.threads);
  const most = Math.max(0, ...onDevice.map((ceiling) => ceiling.threads ?? 0));
  const chosen = threads.length > 0 ? threads : onDevice.filter((ceiling) => (ceiling.threads ?? 0) === most || ceiling.threads === null);
  return {
    rates: highest(chosen.filter((ceiling) => /flop\/s/i.test(ceiling.unit) && !ceiling.what.startsWith('instruction')), (ceiling) => ceiling.dtype || ceiling.what),
    bandwidths: highest(chosen.filter((ceiling) => /^(byte|B)s?\/s$/i.test(ceiling.unit)), (ceiling) => ceiling.level || ceiling.what),
  };
}
