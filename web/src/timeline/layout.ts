// Where lanes and series stand in the picture: from top to bottom, with their names beside them or, on narrow screens, above.
import { quantity } from '../format';
import type { Row, Series, TimelineModel } from './model';

export interface Line {
  row: Row;
  /** Place among the rows of the model. */
  place: number;
  y: number;
  height: number;
}

export interface Track {
  y: number;
  height: number;
  label: string;
  /** "range", "idle", "exposed", "device", "link", "host" or "series". */
  kind: string;
  lines: Line[];
  series: Series | null;
}

export interface Layout {
  tracks: Track[];
  /** Pixels left of time, for the names. */
  gutter: number;
  /** Height of a name that stands above its lane; 0 when it stands beside it. */
  header: number;
  height: number;
}

/** Whose lanes are drawn: of all ranks, of all ranks only what devices did and what communication was exposed, or of one rank. */
export type ShownRanks = 'all' | 'devices' | number;

const kGutter = 150;
const kRankGutter = 200;
const kHeader = 16;
const kNarrow = 640;
const kGap = 7;
const kRowHeights: Record<string, number> = { range: 17, idle: 13, exposed: 13, device: 20, link: 20, host: 15 };
const kSeriesHeight = 44;

const kTitles: Record<string, string> = {
  memory: 'memory in use', power_w: 'power', sm_clock_hz: 'SM clock', memory_clock_hz: 'memory clock', temperature_c: 'temperature',
  gpu_utilization: 'GPU utilisation', throttle: 'throttle reasons' };
export const seriesTitle = (series: Series): string => `${kTitles[series.name] ?? series.name.replaceAll('_', ' ')}${series.device === '' ? '' : `, ${series.device}`}`;

const isShown = (kind: string, rank: number | null, shown: ShownRanks): boolean =>
  rank === null || shown === 'all' || shown === rank || (shown === 'devices' && (kind === 'device' || kind === 'exposed'));

export function layOut(model: TimelineModel, width: number, shown: ShownRanks = 'all'): Layout {
  const narrow = width < kNarrow;
  const header = narrow ? kHeader : 0;
  const tracks: Track[] = [];
  let y = 2;
  const add = (track: Omit<Track, 'y'>): void => {
    tracks.push({ ...track, y });
    y += track.height + kGap;
  };
  model.tracks.forEach(({ label, kind, rank }, index) => {
    if (!isShown(kind, rank, shown)) return;
    const rows = model.rows.map((row, place) => ({ row, place })).filter(({ row }) => row.track === index);
    const height = kRowHeights[kind] ?? kRowHeights.host!;
    const lines = rows.map(({ row, place }, depth) => ({ row, place, y: y + header + depth * height, height: height - 1 }));
    if (rows.length > 0) add({ height: header + rows.length * height, label, kind, lines, series: null });
  });
  for (const series of model.series) add({ height: header + kSeriesHeight, label: seriesTitle(series), kind: 'series', lines: [], series });
  return { tracks, gutter: narrow ? 0 : model.ranks.length > 0 ? kRankGutter : kGutter, header, height: y };
}

/** What nvmlClocksEventReasons means, by bit. */
const kReasons = ['idle', 'clocks set by an application', 'power cap', 'hardware slowdown', 'sync boost', 'heat', 'heat (hardware)', 'power brake', 'display clocks'];

/** A value of a series with its unit; bits of throttling as their reasons. */
export function seriesValue(series: Series, value: number): string {
  if (series.unit !== 'bits') return series.unit === 'C' ? `${quantity(value, '')} °C` : quantity(value, series.unit);
  const set = kReasons.filter((_, bit) => Math.floor(value / 2 ** bit) % 2 === 1);
  return set.join(', ') || 'none';
}

export function seriesRange(series: Series): string {
  if (series.unit === 'bits') return seriesValue(series, series.value.reduce((all, value) => all | value, 0));
  const [least, most] = [seriesValue(series, series.least), seriesValue(series, series.most)];
  return least === most ? most : `${least} to ${most}`;
}

export const seriesAt = (layout: Layout, y: number): Series | null =>
  layout.tracks.find((track) => track.series && y >= track.y && y < track.y + track.height)?.series ?? null;

/** The line at a height, and the nearest one where there is none; null without lines. */
export function lineAt(layout: Layout, y: number, slack = 0): Line | null {
  for (const track of layout.tracks) for (const line of track.lines) {
    if (y >= line.y - slack && y < line.y + line.height + 1 + slack) return line;
  }
  return null;
}
