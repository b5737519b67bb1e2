// The document that rooflm writes: each part once, as how its members are read; the types follow.
import { anything, columnar, dictionary, flag, isObject, list, number, numberOr, object, objects, optional, sentences, text, textOr, texts } from './read';
import type { Json, Of, Place, Reader } from './read';

export type { Columnar } from './read';

const kSchema = 1;

/** What is wrong with the data as a whole; the message is for the reader of the page. */
export class DataError extends Error {}

const kSummary = {
  median_s: number, mean_s: number, std_s: number, mad_s: number, ci_low_s: number, ci_high_s: number, min_s: number, max_s: number,
  samples: number, outliers: number,
};
export type Summary = Of<typeof kSummary>;
const summary: Reader<Summary | null> = (value, place) => (isObject(value) && number(value.median_s) !== null ? object(kSummary)(value, place) : null);

/** Work, its least time by the ceilings (`roof_s`) and the time that was measured. */
const kRoof = {
  matmul_flop: number,
  elementwise_flop: number,
  /** Both together. */
  flop: number,
  bytes: number,
  intensity: number,
  roof_s: number,
  bound: textOr(null),
  measured_s: number,
  /** Time at the roof / time measured. */
  share: number,
  flop_per_s: number,
  byte_per_s: number,
  /** Of the median step. */
  step_share: number,
  /** What could be won at most: measured time - time at the roof. */
  gain_s: number,
};
export type Roof = Of<typeof kRoof>;

/** A ceiling that is a line of the roofline: flop/s or byte/s. */
export interface RoofLine {
  name: string;
  value: number;
}
const roofLines: Reader<RoofLine[]> = (value, place, key) =>
  list(object({ name: text, value: number }))(value, place, key).filter((line): line is RoofLine => line.value !== null);
/** Of the run's device and threads, highest first. */
const kRoofLines = {
  /** Level lines: of matrix products, not the instruction peaks, which no kernel reaches. */
  rates: roofLines,
  /** Sloped lines. */
  bandwidths: roofLines,
};
export type RoofLines = Of<typeof kRoofLines>;

const kPhase = { phase: text, time: summary, ...kRoof };
export type Phase = Of<typeof kPhase>;

const kBlock = {
  block: text,
  phase: text,
  device_s: number,
  wall_s: number,
  launches: number,
  ops: number,
  /** (wall time - device time) / launches; null where wall times were not measured. */
  gap_s: number,
  /** Of the time in kernels of the step. */
  time_share: number,
  ...kRoof,
};
export type Block = Of<typeof kBlock>;

/** Executions of the ops of one phase that run the same kernel, over all observed steps. */
const kKernel = {
  phase: text, name: textOr('(unnamed)'), library: text, variant: text, time_share: number, total_s: number, instances: number, launches: number,
  avg_s: number, med_s: number, min_s: number, max_s: number, std_s: number,
};
export type Kernel = Of<typeof kKernel>;

/** What is quoted of a run, made by rooflm; null where the record lacks what it is made of. */
const kFigures = {
  tokens: number,
  tokens_per_s: number,
  model_flop_per_s: number,
  peak_flop_per_s: number,
  /** Which peak that is. */
  peak: text,
  mfu: number,
  datasheet_flop_per_s: number,
  datasheet_mfu: number,
  matmul_flop_per_s: number,
  matmul_share: number,
  roof_s: number,
  roof_share: number,
  peak_bytes: number,
  /** Median of steps while a profiler watched, where no others were timed. */
  traced_step_s: number,
  traced_steps: number,
};

const kRole = { role: text, bytes: numberOr(0) };
const kMemory = {
  persistent: list(object(kRole)),
  persistent_bytes: number,
  /** Of the peak. */
  persistent_share: number,
  peak_roles: list(object(kRole)),
  /** Places of tensors with their bytes and share of the peak, largest first. */
  peak_holders: columnar('tensors at the peak', 'tensor', 'bytes', 'share'),
  peak_bytes: number,
  peak_event: number,
  events: columnar('memory events', 'op', 'tensor', 'bytes', 'live_bytes'),
  tensors: columnar('tensors', 'name', 'role', 'bytes', 'first_op', 'last_op'),
};
export type Memory = Of<typeof kMemory>;

const count = (value: unknown): number => Math.max(0, number(value) ?? 0);
/** short: without types, namespaces and parameters; work: such an event keeps a device busy. */
const kEventName = { kind: text, text: text, short: text, work: flag };
/** Events on lanes. Columns are packed integers (timeline/packed.ts), checked where they are unpacked; times are nanoseconds. */
const kTimeline = {
  /** "activities", or "ops" where the record has none. */
  source: text,
  notes: sentences,
  steps: list(object({ step: numberOr(0), kind: text, start_ns: numberOr(0), end_ns: numberOr(0) })),
  /** Of `steps`: the one nearest to the median. */
  shown: numberOr(0),
  /** kind: "range", "idle" (why no kernel ran), "device", "link", "host", "exposed" (communication alone); rank: where several are here. */
  lanes: list(object({ name: text, kind: text, device: text, rank: number })),
  names: (value: unknown, place: Place, key: string): Of<typeof kEventName>[] =>
    list(object(kEventName))(value, place, key).map((name) => ({ ...name, short: name.short || name.text })),
  classes: texts,
  /** Grid, block, registers, ... of kernels, each once. */
  launches: objects<Json>(anything),
  events: (value: unknown): { count: number; columns: Record<string, string> } => ({
    count: count(anything(value).count),
    columns: Object.fromEntries(Object.entries(anything(value)).filter((entry): entry is [string, string] => typeof entry[1] === 'string')) }),
  /** What was in use meanwhile: a value is a whole number of steps and holds until the next. */
  series: list(object({ name: text, device: text, unit: text, step: numberOr(1), count, time_ns: text, value: text })),
};
export type Timeline = Of<typeof kTimeline>;

/** The time of the ops of a phase and part by cause. */
const kWhy = {
  phase: text,
  part: text,
  time_s: number,
  bound: text,
  /** By hardware counters, otherwise by shapes. */
  counted: flag,
  occupancy: number,
  waves: number,
  stall: text,
  causes: list(object({ cause: text, seconds: number, mend: text }), 'why'),
};
export type Why = Of<typeof kWhy>;

/** A stretch in which a device ran no kernel, and what the host did; the longest first. */
const kGap = {
  step: number,
  /** On the timeline; null where it shows no step that has it. */
  start_ns: number,
  end_ns: number,
  /** Since the step began. */
  at_s: number,
  seconds: number,
  device: text,
  /** Most of it: "host", "stall", "sync", ... */
  cause: text,
  /** The kernel that ended it. */
  next: text,
  /** The call or range that the host was in, what was around it, and the line of the program; '' where nobody knows. */
  host: text,
  within: text,
  line: text,
};
export type Gap = Of<typeof kGap>;

/** A whole with its parts, largest first; without parts, `of` says what is missing. */
const kGlanceList = { of: text, parts: list(object({ name: text, phase: text, seconds: number, share: number, note: text }), 'at a glance') };
export type GlanceList = Of<typeof kGlanceList>;
/** Where the time goes, what that is bound by, what was idle and why. */
const kGlance = { time: object(kGlanceList), bound: object(kGlanceList), idle: object(kGlanceList) };

const whole = (most: number) => (value: unknown): number => Math.min(most, Math.max(0, Math.floor(number(value) ?? 0)));

/** A block of the model, or a frame around several; figures are of all layers. */
const kModelNode = {
  name: textOr('(unnamed)'),
  /** "attention/qkv"; '' of the frame around a layer. */
  path: text,
  /** "src/model/forward.cpp:130"; '' where nobody says. */
  source: text,
  /** Layers, of the frame around one. */
  times: numberOr(1),
  depth: whole(8),
  /** The last node within a frame; itself otherwise. */
  last: whole(Infinity),
  frame: flag,
  /** By shapes; null where nobody counted. */
  flop: number,
  bytes: number,
  /** In kernels. */
  time_s: number,
  time_share: number,
  bound: text,
  phases: list(object({ phase: text, flop: number, bytes: number, intensity: number, time_s: number, roof_s: number, share: number, bound: text })),
};
export type ModelNode = Of<typeof kModelNode>;

/** `to` reads what `from` wrote. `lane`: where it runs beside the blocks; null between neighbours. */
const kModelEdge = {
  from: numberOr(-1),
  to: numberOr(-1),
  /** To the next layer. */
  back: flag,
  lane: number,
};
export type ModelEdge = Of<typeof kModelEdge>;

const kModelGraph = {
  nodes: list(object(kModelNode)),
  edges: list(object(kModelEdge)),
  lanes: whole(99),
  back_lanes: whole(99),
  /** What the record does not hold, in sentences. */
  lacks: sentences,
};
export type ModelGraph = Of<typeof kModelGraph>;
/** Nodes whose frames fit, and edges between nodes that are there. */
const modelGraph: Reader<ModelGraph> = (value, place) => {
  const graph = object(kModelGraph, 'model')(value, place);
  const { nodes } = graph;
  return {
    ...graph,
    nodes: nodes.map((node, i) => ({ ...node, last: Math.max(i, Math.min(nodes.length - 1, node.last)) })),
    edges: graph.edges.filter(({ from, to }) => nodes[from] !== undefined && nodes[to] !== undefined),
  };
};

const kScopes = { layers: columnar('scopes', 'parent', 'name', 'ops'), merged: columnar('scopes', 'parent', 'name', 'ops') };

const kRun = {
  id: numberOr(-1),
  label: text,
  file: numberOr(0),
  status: text,
  kind: text,
  config: anything as Reader<Record<string, string | number | boolean | null>>,
  /** The configuration for people, in the order of the fields. */
  settings: list(object({ key: text, title: text, text: text })),
  /** The run in two sentences; '' without times. */
  headline: text,
  /** How it was measured, in sentences; those of no one run are the document's. */
  method: sentences,
  figures: object(kFigures),
  glance: object(kGlance),
  kernels: list(object(kKernel)),
  facts: dictionary(object({ value: number, unit: text, text: text })),
  step: summary,
  phases: list(object(kPhase)),
  blocks: list(object(kBlock)),
  samples: columnar('samples', 'step', 'phase', 'seconds'),
  roofs: object(kRoofLines),
  ops: columnar('ops', 'op', 'kind', 'phase', 'scope'),
  /** Trees of scopes, parents before children: each layer by itself, and all layers together. */
  scopes: object(kScopes),
  memory: optional(object(kMemory)),
  timeline: optional(object(kTimeline, 'timeline')),
  /** A row per op that hardware counted; none where nothing was. */
  counted: columnar('counted ops', 'op'),
  why: list(object(kWhy)),
  gaps: list(object(kGap)),
  model: modelGraph,
};
export type Run = Of<typeof kRun>;

const kCeiling = {
  device: text,
  what: text,
  level: text,
  dtype: text,
  threads: number,
  value: number,
  unit: text,
  ci_low: number,
  ci_high: number,
  /** Width of the interval / value. */
  spread: number,
  source: text,
  measured_utc: text,
  /** The first record that holds it. */
  file: text,
};

const kAdvice = {
  run: number,
  subject: text,
  text: text,
  gain_s: number,
  /** gain_s / the median step. */
  step_share: number,
};
export type Advice = Of<typeof kAdvice>;

export type CellValue = string | number | boolean | null | undefined;

const kTable = {
  id: text,
  /** The view that it is of. */
  view: text,
  title: text,
  note: text,
  columns: objects((value, place) => {
    const column = object({ key: text, title: text, unit: text, align: text })(value, place);
    return { ...column, title: column.title || column.key };
  }),
  rows: objects(anything as Reader<Record<string, CellValue>>),
};
export type GenericTable = Of<typeof kTable>;

const kAxis = { title: text, unit: text, log: flag };
export type Axis = Of<typeof kAxis>;
const kChart = {
  id: text,
  /** The view that it is of. */
  view: text,
  title: text,
  note: text,
  kind: text,
  x: object(kAxis),
  y: object(kAxis),
  /** A value that y should not exceed. */
  limit: (value: unknown): { y: number; name: string } | null => {
    const y = number(anything(value).y);
    return y === null ? null : { y, name: text(anything(value).name) };
  },
  /** `line`: joined in a chart of points, such as a roof. A point is [x, y, low, high, what it is], as far as it has that. */
  series: objects(object({
    name: text,
    points: (value): (string | number | null)[][] => (Array.isArray(value) ? value.filter((point): point is number[] => Array.isArray(point) && point.length >= 2) : []),
    line: flag,
  })),
};
export type GenericChart = Of<typeof kChart>;

/** With its id as title where it has none. */
const titled = <T extends { id: string; title: string }>(read: Reader<T>): Reader<T> => (value, place, key) => {
  const part = read(value, place, key);
  return { ...part, title: part.title || part.id };
};

const kComparison = {
  a: text,
  b: text,
  rows: list(object({ subject: text, a_s: number, b_s: number, ratio: number, ci_low: number, ci_high: number, p: number, verdict: text })),
  note: text,
};
export type Comparison = Of<typeof kComparison>;

const kDocument = {
  title: textOr('rooflm report'),
  rooflm: text,
  command: text,
  /** What the study asks whose record this is, and its answer; '' without one. */
  question: text,
  answer: text,
  /** The views that answer it, the most telling first; none without a study. */
  answers: sentences,
  started_utc: text,
  complete: (value: unknown): boolean => value !== false,
  files: sentences,
  environment: list(object({ key: text, value: text, unit: text })),
  ceilings: list(object(kCeiling)),
  runs: runsOf,
  advice: list(object(kAdvice)),
  method: sentences,
  tables: list(titled(object(kTable))),
  charts: list(titled(object(kChart))),
  comparison: optional((value, place) => object(kComparison)(value, { ...place, where: 'comparison' })),
};
/** `problems`: what was found wrong or missing while reading, in sentences; shown on the page. */
export type ReportDocument = Of<typeof kDocument> & { problems: string[] };

/** What the page shows when a run is missing: every section then says what it lacks. */
export const kNoRun: Run = object(kRun)({ status: 'missing', label: 'no run' }, { where: '', problems: [] });

/** Each with a label, by which its problems are called. Runs of several files often share one: the second becomes "label (2)", as in
 *  rooflm's own tables. */
function runsOf(value: unknown, place: Place, key: string): Run[] {
  const seen = new Map<string, number>();
  return list<Json>(anything)(value, place, key).map((given, index) => {
    const label = text(given.label) || `run ${text(given.id) || index}`;
    const run = object(kRun)(given, { ...place, where: label });
    const times = (seen.get(label) ?? 0) + 1;
    seen.set(label, times);
    return { ...run, id: number(given.id) ?? index, label: times === 1 ? label : `${label} (${times})` };
  });
}

/** The document in `text`; throws DataError when it is no report that this page can show. */
export function readDocument(data: string): ReportDocument {
  if (data.trim() === '') throw new DataError('This page has no data. rooflm report FILE --html PAGE writes one that does.');
  let root: unknown;
  try {
    root = JSON.parse(data);
  } catch (error) {
    throw new DataError(`The data of this page is damaged or truncated: ${error instanceof Error ? error.message : String(error)}.`);
  }
  if (!isObject(root)) throw new DataError('The data of this page is not a report: an object was expected.');
  if (root.schema !== kSchema) {
    throw new DataError(`This page reads reports of schema ${kSchema}; its data says schema ${text(root.schema) || 'nothing'}. Write the report again with one version of rooflm.`);
  }
  const problems: string[] = [];
  return { ...object(kDocument)(root, { where: 'document', problems }), problems };
}
