// The document that the report shows: its types, which mirror what rooflm writes.

export type Columns = Record<string, number[]>;

export interface Summary {
  median_s: number | null;
  mean_s: number | null;
  std_s: number | null;
  mad_s: number | null;
  ci_low_s: number | null;
  ci_high_s: number | null;
  min_s: number | null;
  max_s: number | null;
  samples: number | null;
  outliers: number | null;
}

/** Work, its least time by the ceilings (`roof_s`) and the time that was measured. */
export interface Roof {
  matmul_flop: number | null;
  elementwise_flop: number | null;
  /** Both together. */
  flop: number | null;
  bytes: number | null;
  intensity: number | null;
  roof_s: number | null;
  bound: string | null;
  measured_s: number | null;
  /** Time at the roof / time measured. */
  share: number | null;
  flop_per_s: number | null;
  byte_per_s: number | null;
  /** Of the median step. */
  step_share: number | null;
  /** What could be won at most: measured time - time at the roof. */
  gain_s: number | null;
}

/** A ceiling that is a line of the roofline: flop/s or byte/s. */
export interface RoofLine {
  name: string;
  value: number;
}
/** Of the run's device and threads, highest first. */
export interface RoofLines {
  /** Level lines: of matrix products, not the instruction peaks, which no kernel reaches. */
  rates: RoofLine[];
  /** Sloped lines. */
  bandwidths: RoofLine[];
}

export interface Phase extends Roof {
  phase: string;
  time: Summary | null;
}

export interface Block extends Roof {
  block: string;
  phase: string;
  device_s: number | null;
  wall_s: number | null;
  launches: number | null;
  ops: number | null;
  /** (wall time - device time) / launches; null where wall times were not measured. */
  gap_s: number | null;
  /** Of the time in kernels of the step. */
  time_share: number | null;
}

/** Executions of the ops of one phase that run the same kernel, over all observed steps. */
export interface Kernel {
  phase: string;
  name: string;
  library: string;
  variant: string;
  time_share: number | null;
  total_s: number | null;
  instances: number | null;
  launches: number | null;
  avg_s: number | null;
  med_s: number | null;
  min_s: number | null;
  max_s: number | null;
  std_s: number | null;
}

/** What is quoted of a run, made by rooflm; null where the record lacks what it is made of. */
export interface Figures {
  tokens: number | null;
  tokens_per_s: number | null;
  model_flop_per_s: number | null;
  peak_flop_per_s: number | null;
  /** Which peak that is. */
  peak: string;
  mfu: number | null;
  datasheet_flop_per_s: number | null;
  datasheet_mfu: number | null;
  matmul_flop_per_s: number | null;
  matmul_share: number | null;
  roof_s: number | null;
  roof_share: number | null;
  peak_bytes: number | null;
  /** Median of steps while a profiler watched, where no others were timed. */
  traced_step_s: number | null;
  traced_steps: number | null;
}

export interface Fact {
  value: number | null;
  unit: string;
  text: string;
}

/** Columns of equal length; those that hold text hold indices into `names`. */
export interface Columnar {
  length: number;
  names: string[];
  columns: Columns;
}

export interface Memory {
  persistent: { role: string; bytes: number }[];
  persistent_bytes: number | null;
  /** Of the peak. */
  persistent_share: number | null;
  peak_roles: { role: string; bytes: number }[];
  /** Places of tensors with their bytes and share of the peak, largest first. */
  peak_holders: Columnar;
  peak_bytes: number | null;
  peak_event: number | null;
  events: Columnar;
  tensors: Columnar;
}

/** Events on lanes. Columns are packed integers (timeline/packed.ts); times are nanoseconds. */
export interface Timeline {
  /** "activities", or "ops" where the record has none. */
  source: string;
  notes: string[];
  steps: { step: number; kind: string; start_ns: number; end_ns: number }[];
  /** Of `steps`: the one nearest to the median. */
  shown: number;
  /** kind: "range", "idle" (why no kernel ran), "device", "link", "host", "exposed" (communication alone); rank: where several are here. */
  lanes: { name: string; kind: string; device: string; rank: number | null }[];
  /** short: without types, namespaces and parameters; work: such an event keeps a device busy. */
  names: { kind: string; text: string; short: string; work: boolean }[];
  classes: string[];
  /** Grid, block, registers, ... of kernels, each once. */
  launches: Record<string, unknown>[];
  events: { count: number; columns: Record<string, string> };
  /** What was in use meanwhile: a value is a whole number of steps and holds until the next. */
  series: { name: string; device: string; unit: string; step: number; count: number; time_ns: string; value: string }[];
}

/** The time of the ops of a phase and part by cause. */
export interface Why {
  phase: string;
  part: string;
  time_s: number | null;
  bound: string;
  /** By hardware counters, otherwise by shapes. */
  counted: boolean;
  occupancy: number | null;
  waves: number | null;
  stall: string;
  causes: { cause: string; seconds: number | null; mend: string }[];
}

/** A stretch in which a device ran no kernel, and what the host did; the longest first. */
export interface Gap {
  step: number | null;
  /** On the timeline; null where it shows no step that has it. */
  start_ns: number | null;
  end_ns: number | null;
  /** Since the step began. */
  at_s: number | null;
  seconds: number | null;
  device: string;
  /** Most of it: "host", "stall", "sync", ... */
  cause: string;
  /** The kernel that ended it. */
  next: string;
  /** The call or range that the host was in, what was around it, and the line of the program; '' where nobody knows. */
  host: string;
  within: string;
  line: string;
}

/** A whole with its parts, largest first; without parts, `of` says what is missing. */
export interface GlanceList {
  of: string;
  parts: { name: string; phase: string; seconds: number | null; share: number | null; note: string }[];
}

/** Where the time goes, what that is bound by, what was idle and why. */
export interface Glance {
  time: GlanceList;
  bound: GlanceList;
  idle: GlanceList;
}

/** A block of the model, or a frame around several; figures are of all layers. */
export interface ModelNode {
  name: string;
  /** "attention/qkv"; '' of the frame around a layer. */
  path: string;
  /** "src/model/forward.cpp:130"; '' where nobody says. */
  source: string;
  /** Layers, of the frame around one. */
  times: number;
  depth: number;
  /** The last node within a frame; itself otherwise. */
  last: number;
  frame: boolean;
  /** By shapes; null where nobody counted. */
  flop: number | null;
  bytes: number | null;
  /** In kernels. */
  time_s: number | null;
  time_share: number | null;
  bound: string;
  phases: { phase: string; flop: number | null; bytes: number | null; intensity: number | null; time_s: number | null; roof_s: number | null; share: number | null; bound: string }[];
}

/** `to` reads what `from` wrote. `lane`: where it runs beside the blocks; null between neighbours. */
export interface ModelEdge {
  from: number;
  to: number;
  /** To the next layer. */
  back: boolean;
  lane: number | null;
}

export interface ModelGraph {
  nodes: ModelNode[];
  edges: ModelEdge[];
  lanes: number;
  back_lanes: number;
  /** What the record does not hold, in sentences. */
  lacks: string[];
}

export interface Run {
  id: number;
  label: string;
  file: number;
  status: string;
  kind: string;
  config: Record<string, string | number | boolean | null>;
  /** The configuration for people, in the order of the fields. */
  settings: { key: string; title: string; text: string }[];
  /** The run in two sentences; '' without times. */
  headline: string;
  /** How it was measured, in sentences; those of no one run are the document's. */
  method: string[];
  figures: Figures;
  glance: Glance;
  kernels: Kernel[];
  facts: Record<string, Fact>;
  step: Summary | null;
  phases: Phase[];
  blocks: Block[];
  samples: Columnar;
  roofs: RoofLines;
  ops: Columnar;
  /** Trees of scopes, parents before children: each layer by itself, and all layers together. */
  scopes: { layers: Columnar; merged: Columnar };
  memory: Memory | null;
  timeline: Timeline | null;
  /** A row per op that hardware counted; none where nothing was. */
  counted: Columnar;
  why: Why[];
  gaps: Gap[];
  model: ModelGraph;
}

export interface Ceiling {
  device: string;
  what: string;
  level: string;
  dtype: string;
  threads: number | null;
  value: number | null;
  unit: string;
  ci_low: number | null;
  ci_high: number | null;
  /** Width of the interval / value. */
  spread: number | null;
  source: string;
  measured_utc: string;
  /** The first record that holds it. */
  file: string;
}

export interface Advice {
  run: number | null;
  subject: string;
  text: string;
  gain_s: number | null;
  /** gain_s / the median step. */
  step_share: number | null;
}

export type CellValue = string | number | boolean | null | undefined;

export interface GenericTable {
  id: string;
  /** The view that it is of. */
  view: string;
  title: string;
  note: string;
  columns: { key: string; title: string; unit: string; align: string }[];
  rows: Record<string, CellValue>[];
}

export interface Axis {
  title: string;
  unit: string;
  log: boolean;
}

export interface GenericChart {
  id: string;
  /** The view that it is of. */
  view: string;
  title: string;
  note: string;
  kind: string;
  x: Axis;
  y: Axis;
  /** A value that y should not exceed. */
  limit: { y: number; name: string } | null;
  /** `line`: joined in a chart of points, such as a roof. A point is [x, y, low, high, what it is], as far as it has that. */
  series: { name: string; points: (string | number | null)[][]; line: boolean }[];
}

export interface ComparisonRow {
  subject: string;
  a_s: number | null;
  b_s: number | null;
  ratio: number | null;
  ci_low: number | null;
  ci_high: number | null;
  p: number | null;
  verdict: string;
}

export interface Comparison {
  a: string;
  b: string;
  rows: ComparisonRow[];
  note: string;
}

export interface ReportDocument {
  schema: number;
  title: string;
  rooflm: string;
  command: string;
  /** What the study asks whose record this is, and its answer; '' without one. */
  question: string;
  answer: string;
  /** The views that answer it, the most telling first; none without a study. */
  answers: string[];
  started_utc: string;
  complete: boolean;
  files: string[];
  environment: { key: string; value: string; unit: string }[];
  ceilings: Ceiling[];
  runs: Run[];
  advice: Advice[];
  method: string[];
  tables: GenericTable[];
  charts: GenericChart[];
  comparison: Comparison | null;
  /** What was found wrong or missing while reading, in sentences; shown on the page. */
  problems: string[];
}
