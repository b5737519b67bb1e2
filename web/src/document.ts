// The document that rooflm writes: each part once, as how its members are read; the types follow.
import { anything, columnar, dictionary, each, flag, isObject, list, number, numberOr, object, objects, optional, sentences, text, textOr, texts } from './read';
import type { Json, Of, Place, Reader } from './read';

export type { Columnar } from './read';

const kSchema = 1;

/** What is wrong with the data as a whole; the message is for the reader of the page. */
export class DataError extends Error {}

const kSummary = each(number, 'median_s', 'mean_s', 'std_s', 'mad_s', 'ci_low_s', 'ci_high_s', 'min_s', 'max_s', 'samples', 'outliers');
export type Summary = Of<typeof kSummary>;
const summary: Reader<Summary | null> = (value, place) => (isObject(value) && number(value.median_s) !== null ? object(kSummary)(value, place) : null);

/**
 * Work, its least time by the ceilings (`roof_s`) and the time that was measured. flop: both kinds together; share: time at the
 * roof / time measured; step_share: of the median step; gain_s: what could be won at most, time measured - time at the roof.
 */
const kRoof = {
  ...each(number, 'matmul_flop', 'elementwise_flop', 'flop', 'bytes', 'intensity', 'roof_s', 'measured_s', 'share', 'flop_per_s',
          'byte_per_s', 'step_share', 'gain_s'),
  bound: textOr(null),
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

/** gap_s: (wall time - device time) / launches, null without wall times; time_share: of the time in kernels of the step. */
const kBlock = {
  ...each(text, 'block', 'phase'), ...each(number, 'device_s', 'wall_s', 'launches', 'ops', 'gap_s', 'time_share'), ...kRoof,
};
export type Block = Of<typeof kBlock>;

/** Executions of the ops of one phase that run the same kernel, over all observed steps. */
const kKernel = {
  name: textOr('(unnamed)'), ...each(text, 'phase', 'library', 'variant'),
  ...each(number, 'time_share', 'total_s', 'instances', 'launches', 'avg_s', 'med_s', 'min_s', 'max_s', 'std_s'),
};
export type Kernel = Of<typeof kKernel>;

/**
 * What is quoted of a run, made by rooflm; null where the record lacks what it is made of. peak: which peak peak_flop_per_s is;
 * traced_step_s: the median of steps while a profiler watched, where no others were timed.
 */
const kFigures = {
  peak: text,
  ...each(number, 'tokens', 'tokens_per_s', 'model_flop_per_s', 'peak_flop_per_s', 'mfu', 'datasheet_flop_per_s', 'datasheet_mfu',
          'matmul_flop_per_s', 'matmul_share', 'roof_s', 'roof_share', 'peak_bytes', 'traced_step_s', 'traced_steps'),
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
  tensors: columnar('tensors', 'name', 'role', 'first_op', 'last_op'),
};
export type Memory = Of<typeof kMemory>;

const count = (value: unknown): number => Math.max(0, number(value) ?? 0);
/** short: without types, namespaces and parameters; work: such an event keeps a device busy. */
const kEventName = { ...each(text, 'kind', 'text', 'short'), work: flag };
/** Events on lanes. Columns are packed integers (timeline/packed.ts), checked where they are unpacked; times are nanoseconds. */
const kTimeline = {
  /** "activities", or "ops" where the record has none. */
  source: text,
  notes: sentences,
  steps: list(object({ step: numberOr(0), kind: text, start_ns: numberOr(0), end_ns: numberOr(0) })),
  /** Of `steps`: the one nearest to the median. */
  shown: numberOr(0),
  /** kind: "range", "idle" (why no kernel ran), "device", "link", "host", "exposed" (communication alone); rank: where several are here. */
  lanes: list(object({ ...each(text, 'name', 'kind', 'device'), rank: number })),
  names: (value: unknown, place: Place, key: string): Of<typeof kEventName>[] =>
    list(object(kEventName))(value, place, key).map((name) => ({ ...name, short: name.short || name.text })),
  classes: texts,
  /** Grid, block, registers, ... of kernels, each once. */
  launches: objects<Json>(anything),
  events: (value: unknown): { count: number; columns: Record<string, string> } => ({
    count: count(anything(value).count),
    columns: Object.fromEntries(Object.entries(anything(value)).filter((entry): entry is [string, string] => typeof entry[1] === 'string')) }),
  /** What was in use meanwhile: a value is a whole number of steps and holds until the next. */
  series: list(object({ ...each(text, 'name', 'device', 'unit', 'time_ns', 'value'), step: numberOr(1), count })),
};
export type Timeline = Of<typeof kTimeline>;

/** The time of the ops of a phase and part by cause. */
const kWhy = {
  ...each(text, 'phase', 'part', 'bound', 'stall'),
  ...each(number, 'time_s', 'occupancy', 'waves'),
  /** By hardware counters, otherwise by shapes. */
  counted: flag,
  causes: list(object({ ...each(text, 'cause', 'mend'), seconds: number }), 'why'),
};
export type Why = Of<typeof kWhy>;

/**
 * A stretch in which a device ran no kernel, and what the host did; the longest first. start_ns and end_ns are on the timeline,
 * null where it shows no step that has it; at_s: since the step began. cause: most of it, "host", "stall", "sync", ...; next: the
 * kernel that ended it; host, within, line: the call or range that the host was in, what was around it, and the line of the
 * program, '' where nobody knows.
 */
const kGap = {
  ...each(number, 'step', 'start_ns', 'end_ns', 'at_s', 'seconds'), ...each(text, 'device', 'cause', 'next', 'host', 'within', 'line'),
};
export type Gap = Of<typeof kGap>;

/** A whole with its parts, largest first; without parts, `of` says what is missing. */
const kGlanceList = { of: text, parts: list(object({ ...each(text, 'name', 'phase', 'note'), ...each(number, 'seconds', 'share') }), 'at a glance') };
export type GlanceList = Of<typeof kGlanceList>;
/** Where the time goes, what that is bound by, what was idle and why. */
const kGlance = each(object(kGlanceList), 'time', 'bound', 'idle');

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
  phases: list(object({ ...each(text, 'phase', 'bound'), ...each(number, 'flop', 'bytes', 'intensity', 'time_s', 'roof_s', 'share') })),
};
export type ModelNode = Of<typeof kModelNode>;

/** `to` reads what `from` wrote. `lane`: where it runs beside the blocks; null between neighbours. `back`: to the next layer. */
const kModelEdge = { ...each(numberOr(-1), 'from', 'to'), back: flag, lane: number };
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

const kScopes = each(columnar('scopes', 'parent', 'name', 'ops'), 'layers', 'merged');

const kRun = {
  id: numberOr(-1),
  label: text,
  file: numberOr(0),
  status: text,
  kind: text,
  config: anything as Reader<Record<string, string | number | boolean | null>>,
  /** The configuration for people, in the order of the fields. */
  settings: list(object(each(text, 'key', 'title', 'text'))),
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

/** spread: width of the interval / value; file: the first record that holds it. */
const kCeiling = {
  ...each(text, 'device', 'what', 'level', 'dtype', 'unit', 'source', 'measured_utc', 'file'),
  ...each(number, 'threads', 'value', 'ci_low', 'ci_high', 'spread'),
};

/** step_share: gain_s / the median step. */
const kAdvice = { ...each(number, 'run', 'gain_s', 'step_share'), ...each(text, 'subject', 'text') };
export type Advice = Of<typeof kAdvice>;

export type CellValue = string | number | boolean | null | undefined;

/** With another of its texts as title where it has none. */
const titled = <K extends string, T extends Record<K | 'title', string>>(read: Reader<T>, other: K): Reader<T> =>
  (value, place, key) => {
    const part = read(value, place, key);
    return { ...part, title: part.title || part[other] };
  };

/** view: the view that it is of. */
const kTable = {
  ...each(text, 'id', 'view', 'title', 'note'),
  columns: objects(titled(object(each(text, 'key', 'title', 'unit')), 'key')),
  rows: objects(anything as Reader<Record<string, CellValue>>),
};
export type GenericTable = Of<typeof kTable>;

const kAxis = { ...each(text, 'title', 'unit'), log: flag };
export type Axis = Of<typeof kAxis>;
const kChart = {
  ...each(text, 'id', 'view', 'title', 'note', 'kind'),
  ...each(object(kAxis), 'x', 'y'),
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

const kComparison = {
  ...each(text, 'a', 'b', 'note'),
  verdicts: sentences,
  rows: list(object({ ...each(text, 'subject', 'verdict'), ...each(number, 'a_s', 'b_s', 'ratio', 'ci_low', 'ci_high', 'p') })),
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
  environment: list(object(each(text, 'key', 'value', 'unit'))),
  ceilings: list(object(kCeiling)),
  runs: runsOf,
  advice: list(object(kAdvice)),
  method: sentences,
  tables: list(titled(object(kTable), 'id')),
  charts: list(titled(object(kChart), 'id')),
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
