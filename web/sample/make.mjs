// Writes a made-up document for development and tests: node sample/make.mjs OUT.json [--ops N] [--runs N] [--events N].
// The numbers are invented (by a small machine model with noise); their relations hold as in a real document.
import { writeFileSync } from 'node:fs';
import { countedOf, glanceOf, whyOf } from './counted.mjs';
import { modelOf } from './model.mjs';
import { makeStep, randomNumbers } from './step.mjs';
import { timelineOf } from './timeline.mjs';

const kMachine = { flopPerS: 118e9, bytePerS: 21.4e9, cacheBytePerS: 96e9, cacheBytes: 8e6, launchS: 1.5e-6 };
const kSetupOps = 2;
const kPhases = ['forward', 'backward', 'optimizer'];

/** The ceilings of all threads, as lines of the roofline. */
const kRoofs = { rates: [{ name: 'matmul bf16', value: 241e9 }, { name: 'matmul fp32', value: kMachine.flopPerS }],
                 bandwidths: [{ name: 'L1', value: 402e9 }, { name: 'L2', value: kMachine.cacheBytePerS }, { name: 'DRAM', value: 24.1e9 }] };

/** Strings as indices into one list of names. */
class Names {
  constructor() { this.names = []; this.indices = new Map(); }
  of(text) {
    if (!this.indices.has(text)) { this.indices.set(text, this.names.length); this.names.push(text); }
    return this.indices.get(text);
  }
}

const digits = (value) => Number(value.toPrecision(6));
const sum = (list) => list.reduce((total, value) => total + value, 0);

function timed(ops, random, engine) {
  return ops.map((op) => {
    const bandwidth = op.bytes < kMachine.cacheBytes ? kMachine.cacheBytePerS : kMachine.bytePerS;
    const compute = (op.matmul + op.elementwise / 4) / kMachine.flopPerS;
    const memory = op.bytes / bandwidth;
    const roof = Math.max((op.matmul + op.elementwise) / kMachine.flopPerS, op.bytes / kMachine.cacheBytePerS);
    const reached = (op.cls === 'matmul' ? 0.7 + 0.2 * random() : 0.45 + 0.4 * random()) * (engine === 'eager' ? 0.55 : 1);
    const device = Math.max(Math.max(compute, memory) / reached + 4e-7, roof);
    return { ...op, roof, device, wall: device + kMachine.launchS * op.launches * (0.6 + random()),
             bound: compute > memory ? 'compute' : op.bytes < kMachine.cacheBytes ? 'L2' : 'DRAM' };
  });
}

function summary(median, random, spread = 0.012, count = 60) {
  const samples = Array.from({ length: count }, () => {
    const normal = (random() + random() + random() + random() - 2) * Math.sqrt(3);
    return median * (1 + spread * normal + (random() > 0.97 ? 12 * spread : 0));
  });
  const sorted = [...samples].sort((a, b) => a - b);
  const mean = sum(samples) / count, middle = sorted[count >> 1];
  const deviations = sorted.map((s) => Math.abs(s - middle)).sort((a, b) => a - b);
  const mad = deviations[count >> 1];
  const half = Math.ceil(0.98 * Math.sqrt(count));
  const outlier = samples.map((s) => (Math.abs(s - middle) > 5 * 1.4826 * mad ? 1 : 0));
  return { samples, outlier, row: {
    median_s: middle, mean_s: mean, std_s: Math.sqrt(sum(samples.map((s) => (s - mean) ** 2)) / (count - 1)), mad_s: mad,
    ci_low_s: sorted[(count >> 1) - half], ci_high_s: sorted[(count >> 1) + half], min_s: sorted[0],
    max_s: sorted[count - 1], samples: count, outliers: sum(outlier) } };
}

function roofOf(ops, measured, step) {
  const total = (key) => sum(ops.map((op) => op[key]));
  const [matmul, elementwise, bytes, roof] = [total('matmul'), total('elementwise'), total('bytes'), total('roof')];
  const compute = sum(ops.filter((op) => op.bound === 'compute').map((op) => op.device));
  return { matmul_flop: matmul, elementwise_flop: elementwise, flop: matmul + elementwise, bytes, intensity: bytes ? (matmul + elementwise) / bytes : null,
           roof_s: digits(roof), bound: compute > total('device') / 2 ? 'compute' : 'DRAM', measured_s: digits(measured),
           share: digits(roof / measured), flop_per_s: matmul + elementwise > 0 ? (matmul + elementwise) / measured : null, byte_per_s: bytes / measured,
           step_share: measured / step, gain_s: digits(Math.max(0, measured - roof)) };
}

function opColumns(ops, random, engine, step) {
  const names = new Names();
  const text = (key) => ops.map((op) => names.of(key(op)));
  const number = (key) => ops.map((op) => digits(key(op)));
  const spread = ops.map(() => 0.01 + 0.05 * random());
  return {
    op: ops.map((_, i) => i + kSetupOps), kind: text((op) => op.kind), class: text((op) => op.cls),
    kernel: text((op) => (engine === 'eager' ? `eigen_${op.kind}` : op.cls === 'matmul' ? 'onednn_brgemm_avx512_f32' : `fast_${op.kind}`)),
    name: text((op) => `${op.kind}`), phase: text((op) => op.phase), scope: text((op) => op.scope),
    dtype: text(() => 'fp32'), shapes: text((op) => op.shapes), recomputed: ops.map((op) => op.recomputed),
    matmul_flop: ops.map((op) => op.matmul), elementwise_flop: ops.map((op) => op.elementwise), bytes: ops.map((op) => op.bytes),
    launches: ops.map((op) => op.launches), instances: ops.map(() => 60), device_s: number((op) => op.device),
    wall_s: number((op) => op.wall), min_s: ops.map((op, i) => digits(op.device * (1 - spread[i]))),
    max_s: ops.map((op, i) => digits(op.device * (1 + 3 * spread[i]))), std_s: ops.map((op, i) => digits(op.device * spread[i])),
    roof_s: number((op) => op.roof), bound: text((op) => op.bound), flop: ops.map((op) => op.matmul + op.elementwise),
    intensity: number((op) => (op.matmul + op.elementwise) / op.bytes),
    flop_per_s: ops.map((op) => (op.matmul + op.elementwise > 0 ? digits((op.matmul + op.elementwise) / op.device) : null)),
    byte_per_s: number((op) => op.bytes / op.device), step_share: number((op) => op.device / step), roof_share: number((op) => op.roof / op.device),
    gain_s: number((op) => Math.max(0, op.device - op.roof)), names: names.names };
}

/** Weights, moments and inputs as a few tensors that add up to the bytes of each role. */
function persistentTensors(persistent) {
  return persistent.flatMap(({ role, bytes }) => {
    const parts = role === 'input' ? ['tokens', 'targets'] : role === 'weight' ? ['wte', 'h'] : ['m', 'v'];
    return parts.map((name) => ({ name, role, bytes: bytes / parts.length, scope: '', first: -1, last: -1 }));
  });
}

/** The tree of scopes with its sums: phase, the steps of the scope, the kind of op. */
function scopesOf(ops, label, merged) {
  const names = new Names(), index = new Map();
  const columns = { parent: [], name: [], ops: [], flop: [], bytes: [], device_s: [], wall_s: [] };
  const nodeOf = (parent, name) => {
    const key = `${parent} ${name}`;
    if (!index.has(key)) {
      index.set(key, columns.parent.length);
      columns.parent.push(parent);
      columns.name.push(names.of(name));
      for (const amount of ['ops', 'flop', 'bytes', 'device_s', 'wall_s']) columns[amount].push(0);
    }
    return index.get(key);
  };
  for (const op of ops) {
    const scope = merged ? op.scope.replace(/^h\.\d+(?=\/|$)/, 'h.*') : op.scope;
    let node = -1;
    for (const name of [label, op.phase, ...scope.split('/').filter((part) => part !== ''), op.kind]) {
      node = nodeOf(node, name);
      columns.ops[node] += 1;
      columns.flop[node] += op.matmul + op.elementwise;
      columns.bytes[node] += op.bytes;
      columns.device_s[node] += op.device;
      columns.wall_s[node] += op.wall;
    }
  }
  return { ...columns, names: names.names };
}

/** What is alive after the event of the peak: by role, and tensor by tensor. */
function atPeak(tensors, changes, peakEvent, peak) {
  const held = new Map();
  for (const change of changes.slice(0, peakEvent + 1)) held.set(change.tensor, (held.get(change.tensor) ?? 0) + change.bytes);
  const holders = [...held].filter(([, bytes]) => bytes > 0).sort((a, b) => b[1] - a[1]);
  const roles = new Map();
  for (const [tensor, bytes] of holders) roles.set(tensors[tensor].role, (roles.get(tensors[tensor].role) ?? 0) + bytes);
  return { peak_roles: [...roles].map(([role, bytes]) => ({ role, bytes })),
           peak_holders: { tensor: holders.map(([tensor]) => tensor), bytes: holders.map(([, bytes]) => bytes), share: holders.map(([, bytes]) => bytes / peak) } };
}

function memoryOf(step, shape) {
  const weights = 4 * step.params;
  const persistent = [{ role: 'weight', bytes: weights }, { role: 'optimizer_state', bytes: 2 * weights },
                      { role: 'input', bytes: 8 * shape.batch * shape.seq }];
  // As in a record: what persists comes first, at op -1, and ops of the set-up are left out of the list of ops.
  const tensors = [...persistentTensors(persistent), ...step.tensors];
  const changes = [];
  tensors.forEach((tensor, index) => {
    if (tensor.first < 0) { changes.push({ op: -1, order: 0, tensor: index, bytes: tensor.bytes }); return; }
    changes.push({ op: tensor.first + kSetupOps, order: 0, tensor: index, bytes: tensor.bytes });
    changes.push({ op: tensor.last + kSetupOps, order: 1, tensor: index, bytes: -tensor.bytes });
  });
  changes.sort((a, b) => a.op - b.op || a.order - b.order);
  let live = 0, peak = 0, peakEvent = 0;
  const liveBytes = changes.map((change, index) => {
    live += change.bytes;
    if (live > peak) { peak = live; peakEvent = index; }
    return live;
  });
  const names = new Names();
  const column = (key) => tensors.map(key);
  const opNumber = (op) => (op < 0 ? -1 : op + kSetupOps);
  return {
    persistent, persistent_bytes: sum(persistent.map(({ bytes }) => bytes)), persistent_share: sum(persistent.map(({ bytes }) => bytes)) / peak,
    ...atPeak(tensors, changes, peakEvent, peak), peak_bytes: peak, peak_event: peakEvent,
    events: { op: changes.map((c) => c.op), tensor: changes.map((c) => c.tensor), bytes: changes.map((c) => c.bytes), live_bytes: liveBytes },
    tensors: { name: column((t) => names.of(t.name)), role: column((t) => names.of(t.role)),
               first_op: column((t) => opNumber(t.first)), last_op: column((t) => opNumber(t.last)),
               scope: column((t) => names.of(t.scope)), names: names.names } };
}

function blocksOf(ops, step) {
  const groups = new Map();
  for (const op of ops) {
    const block = op.scope.replace(/^h\.\d+\//, '');
    const key = `${op.phase} ${block}`;
    if (!groups.has(key)) groups.set(key, { block, phase: op.phase, ops: [] });
    groups.get(key).ops.push(op);
  }
  const all = sum(ops.map((op) => op.device));
  return [...groups.values()].map(({ block, phase, ops: members }) => {
    const device = sum(members.map((op) => op.device));
    const wall = sum(members.map((op) => op.wall)), launches = sum(members.map((op) => op.launches));
    return { block, phase, device_s: digits(device), wall_s: digits(wall), gap_s: digits((wall - device) / launches),
             time_share: device / all, launches, ops: members.length, ...roofOf(members, device, step) };
  });
}

/** As rooflm sums up the executions of kernels, of steps that are all alike. */
function kernelsOf(ops, engine, steps) {
  const groups = new Map();
  for (const op of ops) {
    const name = engine === 'eager' ? `eigen_${op.kind}` : op.cls === 'matmul' ? 'onednn_brgemm_avx512_f32' : `fast_${op.kind}`;
    const key = `${op.phase} ${name}`;
    if (!groups.has(key)) groups.set(key, { phase: op.phase, name, ops: [] });
    groups.get(key).ops.push(op);
  }
  const all = steps * sum(ops.map((op) => op.device));
  return [...groups.values()].map(({ phase, name, ops: members }) => {
    const times = members.map((op) => op.device).sort((a, b) => a - b);
    const total = steps * sum(times), mean = total / steps / times.length;
    return { phase, name, library: '', variant: '', time_share: total / all, total_s: digits(total), instances: steps * times.length,
             launches: steps * sum(members.map((op) => op.launches)), avg_s: digits(mean), med_s: digits(times[times.length >> 1]), min_s: digits(times[0]),
             max_s: digits(times[times.length - 1]), std_s: digits(Math.sqrt(sum(times.map((t) => (t - mean) ** 2)) / times.length)) };
  });
}

function figuresOf(step, tokens, flop, roof, peakBytes) {
  const model = 0.997 * flop;
  return { tokens, tokens_per_s: tokens / step, model_flop_per_s: model / step, peak_flop_per_s: kMachine.flopPerS, peak: 'sustained fp32 matmul, 2 threads',
           mfu: model / step / kMachine.flopPerS, datasheet_flop_per_s: null, datasheet_mfu: null, matmul_flop_per_s: flop / step,
           matmul_share: flop / step / kMachine.flopPerS, roof_s: roof, roof_share: roof / step, peak_bytes: peakBytes };
}

function makeRun(id, label, shape, more, wantedEvents = 0) {
  const random = randomNumbers(7 + id);
  const step = makeStep(shape);
  const ops = timed(step.ops, random, more.engine);
  const wall = (phase) => sum(ops.filter((op) => op.phase === phase).map((op) => op.wall));
  const names = new Names();
  const samples = { step: [], phase: [], seconds: [], kind: [], outlier: [], names: names.names };
  const summaries = new Map();
  for (const phase of [...kPhases, 'step']) {
    const made = summary(phase === 'step' ? sum(kPhases.map(wall)) : wall(phase), random);
    summaries.set(phase, made.row);
    made.samples.forEach((seconds, i) => {
      samples.step.push(i); samples.phase.push(names.of(phase)); samples.seconds.push(digits(seconds));
      samples.kind.push(names.of('plain')); samples.outlier.push(made.outlier[i]);
    });
  }
  const tokens = shape.batch * shape.seq * shape.gradAccum;
  const flop = sum(ops.map((op) => op.matmul));
  const memory = memoryOf(step, shape);
  const stepS = summaries.get('step').median_s;
  const fact = (value, unit, text = '') => ({ value, unit, text });
  const config = { model: 'gpt2', arch: 'gpt2', attention: shape.attention, device: 'cpu', dtype: 'fp32', recompute: 'none', batch: shape.batch,
              seq: shape.seq, vocab: shape.vocab, layers: shape.layers, heads: shape.heads, kv_heads: shape.heads, d_model: shape.d,
              d_ff: shape.ff, params: step.params, grad_accum: shape.gradAccum, threads: 2, ...more };
  const kSteps = 60;
  const { gaps, ...timeline } = timelineOf(ops, memory, kSetupOps, wantedEvents, random);
  return {
    id, label, headline: 'A step takes as long as these made-up numbers say.', file: 0, kind: 'step', status: 'success', config,
    settings: Object.entries(config).map(([key, value]) => ({ key, title: key, text: String(value) })),
    figures: figuresOf(summaries.get('step').median_s, tokens, flop, sum(ops.map((op) => op.roof)), memory.peak_bytes),
    kernels: kernelsOf(ops, more.engine, kSteps),
    facts: { model_flop: fact(flop * 0.997, 'flop'), matmul_flop: fact(flop, 'flop'), tokens: fact(tokens, ''),
             peak_flop_per_s: fact(kMachine.flopPerS, 'flop/s', 'measured: matmul fp32, 2 threads'),
             plan_peak_bytes: fact(memory.peak_bytes, 'byte'), observer_cost: fact(0.004, 'share', 'observed steps took 0.4 % longer'),
             stop_reason: fact(null, '', 'interval within 1 %'), drift: fact(null, '', 'no drift: second half / first half 1.001'),
             loss: fact(10.93, 'nat') },
    step: summaries.get('step'),
    phases: kPhases.map((phase) => ({ phase, time: summaries.get(phase),
                                      ...roofOf(ops.filter((op) => op.phase === phase), summaries.get(phase).median_s, stepS) })),
    blocks: blocksOf(ops, stepS), samples, roofs: kRoofs, ops: opColumns(ops, random, more.engine, stepS),
    scopes: { layers: scopesOf(ops, label, false), merged: scopesOf(ops, label, true) }, memory,
    gaps, timeline,
    counted: more.engine === 'fused' ? countedOf(ops, kSetupOps, random) : null, why: whyOf(ops), glance: glanceOf(ops), model: modelOf(ops, shape.layers) };
}

function ceilings() {
  const utc = '2026-01-15T09:12:44Z';
  const row = (what, level, dtype, threads, value, unit) => ({
    device: 'cpu', what, level, dtype, threads, value, unit, ci_low: value * 0.99, ci_high: value * 1.008, spread: 0.018, source: 'measured', measured_utc: utc });
  return [row('matmul', '', 'fp32', 2, kMachine.flopPerS, 'flop/s'), row('matmul', '', 'fp32', 1, 61e9, 'flop/s'),
          row('matmul', '', 'bf16', 2, 241e9, 'flop/s'), row('triad', 'L1', '', 2, 402e9, 'byte/s'),
          row('triad', 'L2', '', 2, kMachine.cacheBytePerS, 'byte/s'), row('triad', 'DRAM', '', 2, kMachine.bytePerS, 'byte/s'),
          row('read', 'DRAM', '', 2, 24.1e9, 'byte/s')];
}

function adviceFor(run) {
  const best = [...run.blocks].sort((a, b) => b.measured_s - b.roof_s - (a.measured_s - a.roof_s)).slice(0, 5);
  return best.map((block) => ({
    run: run.id, subject: `${block.block} ${block.phase}`, gain_s: digits(block.measured_s - block.roof_s), step_share: (block.measured_s - block.roof_s) / run.step.median_s,
    text: `Runs at ${(100 * block.share).toFixed(0)} % of its roof, bound by ${block.bound}; at the roof the step would be this much shorter.` }));
}

function extras(runs) {
  const series = [{ name: 'forward', points: [] }, { name: 'backward', points: [] }];
  for (const seq of [64, 128, 256, 512, 1024]) {
    series[0].points.push([seq, 2e-4 * seq + 3e-7 * seq ** 2, 1.9e-4 * seq + 3e-7 * seq ** 2, 2.1e-4 * seq + 3e-7 * seq ** 2]);
    series[1].points.push([seq, 4e-4 * seq + 8e-7 * seq ** 2]);
  }
  const classes = [...new Set(runs[0].ops.class.map((c) => runs[0].ops.names[c]))];
  return {
    tables: [{ id: 'instances', title: 'Instances explained', note: 'Each count is layers times the count per layer, plus the rest.',
               columns: [{ key: 'kind', title: 'op', unit: '' }, { key: 'count', title: 'count', unit: '' },
                         { key: 'per_layer', title: 'per layer', unit: '' }, { key: 'time', title: 'time', unit: 's' }],
               rows: classes.map((kind, i) => ({ kind, count: 12 * (i + 1) + 1, per_layer: i + 1, time: i === 2 ? null : 1e-3 * (i + 1) })) }],
    charts: [{ id: 'growth', title: 'Attention time against sequence length', note: 'Slope 2 at the right end: the quadratic part dominates.',
               kind: 'line', x: { title: 'sequence length', unit: '', log: true }, y: { title: 'time', unit: 's', log: true }, series },
             { id: 'share', title: 'Op classes', note: '', kind: 'stacked100', x: { title: 'phase', unit: '', log: false }, y: { title: 'time', unit: 's', log: false },
               series: classes.map((name, i) => ({ name, points: [['forward', 0.01 * (i + 1)], ['step', 0.02 * (classes.length - i)]] })) }] };
}

function comparisonOf(a, b) {
  const rows = [];
  for (const phase of ['step', ...kPhases]) {
    const time = (run) => (phase === 'step' ? run.step : run.phases.find((p) => p.phase === phase).time);
    const ratio = time(b).median_s / time(a).median_s;
    rows.push({ subject: phase, a_s: time(a).median_s, b_s: time(b).median_s, ratio, ci_low: ratio * 0.99, ci_high: ratio * 1.011,
                p: Math.abs(ratio - 1) > 0.01 ? 1e-5 : 0.4, verdict: ratio > 1.01 ? 'SLOWER' : ratio < 0.99 ? 'FASTER' : 'SAME' });
  }
  const verdicts = [`${rows[0].verdict}: a step takes ${b.step.median_s} s in B and ${a.step.median_s} s in A. Most of B - A: backward/attention +1.20 ms.`];
  return { a: a.label, b: b.label, verdicts, rows, note: 'Mann-Whitney rank test, Holm-corrected; intervals by bootstrap of the ratio of medians.' };
}

/** The document: `wantedOps` ops or a few more in the first run (by micro-batches), `wantedEvents` in its timeline, and `runCount` runs. */
function makeDocument(wantedOps, runCount, wantedEvents) {
  const gpt2 = { batch: 4, seq: 64, vocab: 50304, layers: 12, d: 768, ff: 3072, heads: 12, gradAccum: 1 };
  const kOptimizerOps = 2;
  const perMicro = makeStep({ ...gpt2, attention: 'flash' }).ops.length - kOptimizerOps;
  const gradAccum = Math.max(1, Math.ceil(wantedOps / perMicro));
  const runs = [makeRun(0, 'fused flash', { ...gpt2, attention: 'flash', gradAccum }, { engine: 'fused' }, wantedEvents)];
  if (runCount > 1) runs.push(makeRun(1, 'eager batched', { ...gpt2, attention: 'batched', gradAccum }, { engine: 'eager' }));
  if (runCount > 2) runs.push(makeRun(2, 'eager looped', { ...gpt2, batch: 1, attention: 'looped' }, { engine: 'eager' }));
  return {
    schema: 1, title: 'gpt2 B=4 T=64 fp32 (made-up numbers)', rooflm: '0.1.0', command: 'rooflm profile --model gpt2 --batch 4 --seq 64 --html report.html',
    question: 'Which of the two runs is faster?', answer: 'The first, by these made-up numbers.',
    started_utc: '2026-01-15T09:14:02Z', complete: true, files: ['sample.rooflm'],
    environment: [{ key: 'processor', value: 'made-up 2-core processor', unit: '' }, { key: 'threads', value: '2', unit: '' },
                  { key: 'memory', value: '8000000000', unit: 'byte' }, { key: 'compiler', value: 'none: this document is a sample', unit: '' }],
    ceilings: ceilings(), runs, advice: runs.flatMap(adviceFor),
    method: ['Whole steps are timed without an observer: 60 samples after 5 warm-up steps.',
             'Intervals are nonparametric 95 % confidence intervals of the median.',
             'Op times are medians over observed steps; observing cost 0.4 % of a step.'],
    ...extras(runs), comparison: runs.length > 1 ? comparisonOf(runs[0], runs[1]) : null };
}

const [out, ...options] = process.argv.slice(2);
const option = (name, otherwise) => (options.includes(name) ? Number(options[options.indexOf(name) + 1]) : otherwise);
if (!out) throw new Error('usage: node sample/make.mjs OUT.json [--ops N] [--runs N] [--events N]');
writeFileSync(out, JSON.stringify(makeDocument(option('--ops', 1000), option('--runs', 3), option('--events', 0))));
