// Reads the document: what is no report at all is refused with one sentence, missing parts become empty and are said.
import type {
  Advice, Axis, Block, Ceiling, Columnar, Comparison, ComparisonRow, Fact, Figures, Gap, GenericChart, GenericTable, GlanceList, Kernel, Memory, ModelEdge, ModelGraph, ModelNode, Phase,
  ReportDocument, Roof, RoofLine, RoofLines, Run, Summary, Timeline, Why,
} from './document';

const kSchema = 1;

/** What is wrong with the data as a whole; the message is for the reader of the page. */
export class DataError extends Error {}

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value);
const objectOf = (value: unknown): Json => (isObject(value) ? value : {});
const textOf = (value: unknown): string => (typeof value === 'string' || typeof value === 'number' ? String(value) : '');
const numberOf = (value: unknown): number | null => (typeof value === 'number' && Number.isFinite(value) ? value : null);
const stringsOf = (value: unknown): string[] => (Array.isArray(value) ? value.map(textOf).filter((text) => text !== '') : []);
const objectsOf = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : []);

/** All null where there are none. */
export function readFigures(value: Json): Figures {
  const n = (key: string): number | null => numberOf(value[key]);
  return {
    tokens: n('tokens'), tokens_per_s: n('tokens_per_s'), model_flop_per_s: n('model_flop_per_s'), peak_flop_per_s: n('peak_flop_per_s'),
    peak: textOf(value.peak), mfu: n('mfu'), datasheet_flop_per_s: n('datasheet_flop_per_s'), datasheet_mfu: n('datasheet_mfu'),
    matmul_flop_per_s: n('matmul_flop_per_s'), matmul_share: n('matmul_share'), roof_s: n('roof_s'), roof_share: n('roof_share'),
    peak_bytes: n('peak_bytes'), traced_step_s: n('traced_step_s'), traced_steps: n('traced_steps'),
  };
}

class Reader {
  readonly problems: string[] = [];

  private list(parent: Json, key: string, where: string): Json[] {
    const value = parent[key];
    if (value === undefined || value === null) return [];
    if (!Array.isArray(value)) {
      this.problems.push(`${where}: "${key}" is not a list and is left out.`);
      return [];
    }
    const rows = objectsOf(value);
    if (rows.length !== value.length) this.problems.push(`${where}: ${value.length - rows.length} entries of "${key}" are not objects and are left out.`);
    return rows;
  }

  /** Columns of one length: when they differ, the rows that all of them have. */
  private columnar(value: unknown, where: string, needed: readonly string[]): Columnar {
    if (!isObject(value)) return { length: 0, names: [], columns: {} };
    const columns: Record<string, number[]> = {};
    const names = Array.isArray(value.names) ? value.names.map(textOf) : [];
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
      this.problems.push(`${where}: column ${missing.join(', ')} is missing; the part is left out.`);
      return { length: 0, names: [], columns: {} };
    }
    if (shortest < longest) this.problems.push(`${where}: columns differ in length (${shortest} to ${longest}); the first ${shortest} rows are shown.`);
    return { length: Number.isFinite(shortest) ? shortest : 0, names, columns };
  }

  private summary(value: unknown): Summary | null {
    if (!isObject(value) || numberOf(value.median_s) === null) return null;
    const n = (key: string): number | null => numberOf(value[key]);
    return {
      median_s: n('median_s'), mean_s: n('mean_s'), std_s: n('std_s'), mad_s: n('mad_s'), ci_low_s: n('ci_low_s'),
      ci_high_s: n('ci_high_s'), min_s: n('min_s'), max_s: n('max_s'), samples: n('samples'), outliers: n('outliers'),
    };
  }

  private roof(value: Json): Roof {
    const n = (key: string): number | null => numberOf(value[key]);
    return {
      matmul_flop: n('matmul_flop'), elementwise_flop: n('elementwise_flop'), flop: n('flop'), bytes: n('bytes'), intensity: n('intensity'),
      roof_s: n('roof_s'), bound: textOf(value.bound) || null, measured_s: n('measured_s'), share: n('share'),
      flop_per_s: n('flop_per_s'), byte_per_s: n('byte_per_s'), step_share: n('step_share'), gain_s: n('gain_s'),
    };
  }

  private roofLines(value: Json, where: string): RoofLines {
    const lines = (key: string): RoofLine[] => this.list(value, key, where).flatMap((line) => {
      const height = numberOf(line.value);
      return height === null ? [] : [{ name: textOf(line.name), value: height }];
    });
    return { rates: lines('rates'), bandwidths: lines('bandwidths') };
  }

  private roles(value: Json, key: string, where: string): Memory['persistent'] {
    return this.list(value, key, where).map((part) => ({ role: textOf(part.role), bytes: numberOf(part.bytes) ?? 0 }));
  }

  private memory(value: unknown, where: string): Memory | null {
    if (!isObject(value)) return null;
    return {
      persistent: this.roles(value, 'persistent', where), persistent_bytes: numberOf(value.persistent_bytes),
      persistent_share: numberOf(value.persistent_share), peak_roles: this.roles(value, 'peak_roles', where),
      peak_holders: this.columnar(value.peak_holders, `${where}, tensors at the peak`, ['tensor', 'bytes', 'share']),
      peak_bytes: numberOf(value.peak_bytes),
      peak_event: numberOf(value.peak_event),
      events: this.columnar(value.events, `${where}, memory events`, ['op', 'tensor', 'bytes', 'live_bytes']),
      tensors: this.columnar(value.tensors, `${where}, tensors`, ['name', 'role', 'bytes', 'first_op', 'last_op']),
    };
  }

  /** Lists and texts of the right types; what the packed columns hold is checked where they are unpacked. */
  private timeline(value: unknown, where: string): Timeline | null {
    if (!isObject(value)) return null;
    const events = objectOf(value.events);
    const columns = Object.fromEntries(Object.entries(events).filter((entry): entry is [string, string] => typeof entry[1] === 'string'));
    const count = (row: Json): number => Math.max(0, numberOf(row.count) ?? 0);
    return {
      source: textOf(value.source), notes: Array.isArray(value.notes) ? value.notes.map(textOf).filter((note) => note !== '') : [],
      steps: this.list(value, 'steps', `${where}, timeline`).map((step) => ({
        step: numberOf(step.step) ?? 0, kind: textOf(step.kind), start_ns: numberOf(step.start_ns) ?? 0, end_ns: numberOf(step.end_ns) ?? 0 })),
      shown: numberOf(value.shown) ?? 0,
      lanes: this.list(value, 'lanes', `${where}, timeline`).map((lane) => ({ name: textOf(lane.name), kind: textOf(lane.kind), device: textOf(lane.device), rank: numberOf(lane.rank) })),
      names: this.list(value, 'names', `${where}, timeline`).map((name) => ({ kind: textOf(name.kind), text: textOf(name.text), short: textOf(name.short) || textOf(name.text), work: name.work === true })),
      classes: Array.isArray(value.classes) ? value.classes.map(textOf) : [],
      launches: objectsOf(value.launches), events: { count: count(events), columns },
      series: this.list(value, 'series', `${where}, timeline`).map((series) => ({
        name: textOf(series.name), device: textOf(series.device), unit: textOf(series.unit), step: numberOf(series.step) ?? 1, count: count(series),
        time_ns: textOf(series.time_ns), value: textOf(series.value) })),
    };
  }

  private why(value: Json, where: string): Why {
    return {
      phase: textOf(value.phase), part: textOf(value.part), time_s: numberOf(value.time_s), bound: textOf(value.bound), counted: value.counted === true,
      occupancy: numberOf(value.occupancy), waves: numberOf(value.waves), stall: textOf(value.stall),
      causes: this.list(value, 'causes', `${where}, why`).map((cause) => ({ cause: textOf(cause.cause), seconds: numberOf(cause.seconds), mend: textOf(cause.mend) })),
    };
  }

  /** Nodes whose frames fit, and edges between nodes that are there. */
  private model(value: Json, where: string): ModelGraph {
    const whole = (number: unknown, most: number): number => Math.min(most, Math.max(0, Math.floor(numberOf(number) ?? 0)));
    const given = this.list(value, 'nodes', `${where}, model`);
    const nodes = given.map((node, i): ModelNode => ({
      name: textOf(node.name) || '(unnamed)', path: textOf(node.path), source: textOf(node.source), times: numberOf(node.times) ?? 1, depth: whole(node.depth, 8),
      last: Math.max(i, whole(node.last, given.length - 1)), frame: node.frame === true, flop: numberOf(node.flop), bytes: numberOf(node.bytes),
      time_s: numberOf(node.time_s), time_share: numberOf(node.time_share), bound: textOf(node.bound),
      phases: this.list(node, 'phases', `${where}, model`).map((phase) => ({
        phase: textOf(phase.phase), flop: numberOf(phase.flop), bytes: numberOf(phase.bytes), intensity: numberOf(phase.intensity), time_s: numberOf(phase.time_s),
        roof_s: numberOf(phase.roof_s), share: numberOf(phase.share), bound: textOf(phase.bound) })),
    }));
    const edges = this.list(value, 'edges', `${where}, model`).map((edge): ModelEdge => ({ from: numberOf(edge.from) ?? -1, to: numberOf(edge.to) ?? -1, back: edge.back === true, lane: numberOf(edge.lane) }));
    return { nodes, edges: edges.filter(({ from, to }) => nodes[from] !== undefined && nodes[to] !== undefined), lanes: whole(value.lanes, 99), back_lanes: whole(value.back_lanes, 99),
             lacks: stringsOf(value.lacks) };
  }

  private glance(value: Json, key: string, where: string): GlanceList {
    const list = objectOf(value[key]);
    return { of: textOf(list.of), parts: this.list(list, 'parts', `${where}, at a glance`).map((part) => ({
      name: textOf(part.name), phase: textOf(part.phase), seconds: numberOf(part.seconds), share: numberOf(part.share), note: textOf(part.note) })) };
  }

  private scopes(value: Json, key: string, where: string): Columnar {
    return this.columnar(objectOf(value.scopes)[key], `${where}, scopes`, ['parent', 'name', 'ops']);
  }

  private kernel(value: Json): Kernel {
    const n = (key: string): number | null => numberOf(value[key]);
    const t = (key: string): string => textOf(value[key]);
    return {
      phase: t('phase'), name: t('name') || '(unnamed)', library: t('library'), variant: t('variant'), time_share: n('time_share'), total_s: n('total_s'),
      instances: n('instances'), launches: n('launches'), avg_s: n('avg_s'), med_s: n('med_s'), min_s: n('min_s'), max_s: n('max_s'), std_s: n('std_s'),
    };
  }

  private run(value: Json, index: number): Run {
    const glance = objectOf(value.glance);
    const label = textOf(value.label) || `run ${textOf(value.id) || index}`;
    const facts: Record<string, Fact> = {};
    for (const [key, fact] of Object.entries(objectOf(value.facts))) {
      if (isObject(fact)) facts[key] = { value: numberOf(fact.value), unit: textOf(fact.unit), text: textOf(fact.text) };
    }
    return {
      id: numberOf(value.id) ?? index, label, file: numberOf(value.file) ?? 0, status: textOf(value.status),
      kind: textOf(value.kind), config: objectOf(value.config) as Run['config'],
      settings: this.list(value, 'settings', label).map((s) => ({ key: textOf(s.key), title: textOf(s.title), text: textOf(s.text) })),
      figures: readFigures(objectOf(value.figures)), headline: textOf(value.headline), method: stringsOf(value.method),
      glance: { time: this.glance(glance, 'time', label), bound: this.glance(glance, 'bound', label), idle: this.glance(glance, 'idle', label) },
      kernels: this.list(value, 'kernels', label).map((k) => this.kernel(k)), facts, step: this.summary(value.step),
      phases: this.list(value, 'phases', label).map((p): Phase => ({ phase: textOf(p.phase), time: this.summary(p.time), ...this.roof(p) })),
      blocks: this.list(value, 'blocks', label).map((b): Block => ({
        block: textOf(b.block), phase: textOf(b.phase), device_s: numberOf(b.device_s), wall_s: numberOf(b.wall_s),
        launches: numberOf(b.launches), ops: numberOf(b.ops), gap_s: numberOf(b.gap_s), time_share: numberOf(b.time_share), ...this.roof(b),
      })),
      samples: this.columnar(value.samples, `${label}, samples`, ['step', 'phase', 'seconds']),
      roofs: this.roofLines(objectOf(value.roofs), label),
      ops: this.columnar(value.ops, `${label}, ops`, ['op', 'kind', 'phase', 'scope']),
      scopes: { layers: this.scopes(value, 'layers', label), merged: this.scopes(value, 'merged', label) },
      memory: this.memory(value.memory, label), timeline: this.timeline(value.timeline, label),
      counted: this.columnar(value.counted, `${label}, counted ops`, ['op']), why: this.list(value, 'why', label).map((why) => this.why(why, label)),
      gaps: this.list(value, 'gaps', label).map((gap): Gap => ({
        step: numberOf(gap.step), start_ns: numberOf(gap.start_ns), end_ns: numberOf(gap.end_ns), at_s: numberOf(gap.at_s), seconds: numberOf(gap.seconds),
        device: textOf(gap.device), cause: textOf(gap.cause), next: textOf(gap.next), host: textOf(gap.host), within: textOf(gap.within), line: textOf(gap.line) })),
      model: this.model(objectOf(value.model), label),
    };
  }

  private ceiling(value: Json): Ceiling {
    const t = (key: string): string => textOf(value[key]);
    return {
      device: t('device'), what: t('what'), level: t('level'), dtype: t('dtype'), threads: numberOf(value.threads),
      value: numberOf(value.value), unit: t('unit'), ci_low: numberOf(value.ci_low), ci_high: numberOf(value.ci_high), spread: numberOf(value.spread),
      source: t('source'), measured_utc: t('measured_utc'), file: t('file'),
    };
  }

  private table(value: Json): GenericTable {
    return {
      id: textOf(value.id), view: textOf(value.view), title: textOf(value.title) || textOf(value.id), note: textOf(value.note),
      columns: objectsOf(value.columns).map((c) => ({ key: textOf(c.key), title: textOf(c.title) || textOf(c.key), unit: textOf(c.unit), align: textOf(c.align) })),
      rows: objectsOf(value.rows) as GenericTable['rows'],
    };
  }

  private limit(value: Json): GenericChart['limit'] {
    const y = numberOf(value.y);
    return y === null ? null : { y, name: textOf(value.name) };
  }

  private chart(value: Json): GenericChart {
    const axis = (a: Json): Axis => ({ title: textOf(a.title), unit: textOf(a.unit), log: a.log === true });
    return {
      id: textOf(value.id), view: textOf(value.view), title: textOf(value.title) || textOf(value.id), note: textOf(value.note), kind: textOf(value.kind),
      x: axis(objectOf(value.x)), y: axis(objectOf(value.y)), limit: this.limit(objectOf(value.limit)),
      series: objectsOf(value.series).map((s) => ({
        name: textOf(s.name), line: s.line === true,
        points: Array.isArray(s.points) ? s.points.filter((p): p is number[] => Array.isArray(p) && p.length >= 2) : [],
      })),
    };
  }

  private comparison(value: unknown): Comparison | null {
    if (!isObject(value)) return null;
    const n = (row: Json, key: string): number | null => numberOf(row[key]);
    const rows = this.list(value, 'rows', 'comparison').map((row): ComparisonRow => ({
      subject: textOf(row.subject), a_s: n(row, 'a_s'), b_s: n(row, 'b_s'), ratio: n(row, 'ratio'), ci_low: n(row, 'ci_low'),
      ci_high: n(row, 'ci_high'), p: n(row, 'p'), verdict: textOf(row.verdict),
    }));
    return { a: textOf(value.a), b: textOf(value.b), rows, note: textOf(value.note) };
  }

  document(root: Json): ReportDocument {
    const t = (key: string): string => textOf(root[key]);
    const advice = this.list(root, 'advice', 'document').map((a): Advice => ({
      run: numberOf(a.run), subject: textOf(a.subject), text: textOf(a.text), gain_s: numberOf(a.gain_s), step_share: numberOf(a.step_share) }));
    const environment = this.list(root, 'environment', 'document').map((e) => ({ key: textOf(e.key), value: textOf(e.value), unit: textOf(e.unit) }));
    return {
      schema: kSchema, title: t('title') || 'rooflm report', rooflm: t('rooflm'), command: t('command'), question: t('question'), answer: t('answer'), answers: stringsOf(root.answers), started_utc: t('started_utc'),
      complete: root.complete !== false, files: stringsOf(root.files), environment,
      ceilings: this.list(root, 'ceilings', 'document').map((c) => this.ceiling(c)),
      runs: tellApart(this.list(root, 'runs', 'document').map((run, index) => this.run(run, index))),
      advice, method: stringsOf(root.method),
      tables: this.list(root, 'tables', 'document').map((table) => this.table(table)),
      charts: this.list(root, 'charts', 'document').map((chart) => this.chart(chart)),
      comparison: this.comparison(root.comparison), problems: this.problems,
    };
  }
}

/** Runs of several files often share a label: the second becomes "label (2)", as in rooflm's own tables. */
function tellApart(runs: Run[]): Run[] {
  const seen = new Map<string, number>();
  return runs.map((run) => {
    const times = (seen.get(run.label) ?? 0) + 1;
    seen.set(run.label, times);
    return times === 1 ? run : { ...run, label: `${run.label} (${times})` };
  });
}

/** The document in `text`; throws DataError when it is no report that this page can show. */
export function readDocument(text: string): ReportDocument {
  if (text.trim() === '') throw new DataError('This page has no data. rooflm report FILE --html PAGE writes one that does.');
  let root: unknown;
  try {
    root = JSON.parse(text);
  } catch (error) {
    throw new DataError(`The data of this page is damaged or truncated: ${error instanceof Error ? error.message : String(error)}.`);
  }
  if (!isObject(root)) throw new DataError('The data of this page is not a report: an object was expected.');
  if (root.schema !== kSchema) {
    throw new DataError(`This page reads reports of schema ${kSchema}; its data says schema ${textOf(root.schema) || 'nothing'}. Write the report again with one version of rooflm.`);
  }
  return new Reader().document(root);
}
