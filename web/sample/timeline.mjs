// The timeline of a made-up run: kernels on two streams, the calls that launched them, copies, ranges, idle time, memory, power and clocks.

/** As rooflm packs integers: differences, zigzag coded in groups of seven bits, as base64. */
export function pack(values) {
  const bytes = [];
  let before = 0;
  for (const value of values) {
    const step = value - before;
    before = value;
    let coded = step >= 0 ? 2 * step : -2 * step - 1;
    for (; coded >= 0x80; coded = Math.floor(coded / 0x80)) bytes.push((coded % 0x80) + 0x80);
    bytes.push(coded);
  }
  return Buffer.from(bytes).toString('base64');
}

class Places {
  constructor() { this.list = []; this.found = new Map(); }
  of(key, value) {
    if (!this.found.has(key)) { this.found.set(key, this.list.length); this.list.push(value); }
    return this.found.get(key);
  }
}

const kLanes = [{ name: 'steps, phases, blocks', kind: 'range', device: '' }, { name: 'no kernel, why', kind: 'idle', device: 'cuda:0' },
                { name: 'stream 7', kind: 'device', device: 'cuda:0' }, { name: 'stream 13', kind: 'device', device: 'cuda:0' },
                { name: 'main thread', kind: 'host', device: 'cpu' }];
const [kRanges, kIdle, kCompute, kSide, kHost] = kLanes.keys();
const kClasses = { matmul: 'gemm', reduction: 'elementwise' };

/** Phase, layer and block of an op, outermost first. */
function pathOf(op) {
  const [, layer, rest] = op.scope.match(/^(h\.\d+)?\/?(.*)$/);
  const block = rest.split('/')[0];
  return [['phase', op.phase, op.phase], ...(layer ? [['layer', layer, op.phase]] : []), ['block', block, block]];
}

/** One step from `begin`: appends its events and returns its end. */
function addStep(events, ops, begin, step, setupOps, random) {
  let now = begin + 40_000, correlation = events.length;
  const open = [];
  const closeTo = (depth, end) => { while (open.length > depth) { const range = open.pop(); events.push({ ...range, end }); } };
  events.push({ lane: kHost, kind: 'api', text: 'cudaMemcpyAsync', cls: 'api', start: begin, end: begin + 6000, call: correlation });
  events.push({ lane: kSide, kind: 'copy', text: 'host to device', cls: 'copy', start: begin + 9000, end: begin + 15_000, bytes: 65536, correlation });
  ops.forEach((op, index) => {
    const path = pathOf(op);
    let shared = 0;
    while (shared < path.length && open[shared]?.text === path[shared][1] && open[shared]?.kind === path[shared][0]) ++shared;
    closeTo(shared, now);
    for (const [kind, text, cls] of path.slice(shared)) open.push({ lane: kRanges, kind, text, cls, start: now });
    for (let i = 0; i < op.launches; ++i) {
      const length = Math.max(800, Math.round((1e9 * op.device * (0.9 + 0.2 * random())) / op.launches));
      const gap = random() > 0.97 ? 12_000 : 900;
      const aside = op.cls === 'reduction';
      events.push({ lane: kIdle, kind: 'idle', text: gap > 2000 ? 'host' : 'dependency', cls: gap > 2000 ? 'idle: host' : 'idle: dependency', start: now, end: now + gap });
      now += gap;
      correlation = events.length;
      events.push({ lane: kHost, kind: 'api', text: 'cudaLaunchKernel', cls: 'api', start: now - gap - 5000 - Math.round(9000 * random()), end: now - gap - 3000, call: correlation });
      events.push({ lane: aside ? kSide : kCompute, kind: 'kernel', text: `void rooflm::${op.kind}_kernel<float, ${op.cls}>(float*, long)`, short: `${op.kind}_kernel`,
                    cls: kClasses[op.cls] ?? op.cls, start: now, end: now + length, op: index + setupOps, correlation,
                    launch: { grid: [1 + (index % 37), 8, 1], block: [256, 1, 1], registers: op.cls === 'matmul' ? 168 : 32, occupancy: 0.25, waves: 1.2 } });
      // What runs aside lets the next kernel begin before it ends.
      now += aside ? Math.round(0.3 * length) : length;
    }
  });
  const end = now + 20_000;
  closeTo(0, now);
  events.push({ lane: kRanges, kind: 'step', text: `step ${step}`, cls: 'step', start: begin, end });
  return end;
}

/** The timeline of `ops`, in as many steps as `wanted` events need (one at least). */
export function timelineOf(ops, memory, setupOps, wanted, random) {
  const events = [], steps = [];
  let now = 0;
  do {
    const step = 3 + 2 * steps.length;
    const end = addStep(events, ops, now, step, setupOps, random);
    steps.push({ step, kind: 'traced', start_ns: now, end_ns: end });
    now = end + 2_000_000;
  } while (events.length < wanted);
  for (const event of events) event.start = Math.max(0, event.start);
  events.sort((a, b) => a.start - b.start || b.end - a.end);
  const names = new Places(), classes = new Places(), launches = new Places(), calls = new Map();
  events.forEach((event, place) => { if (event.call !== undefined) calls.set(event.call, place); });
  const column = (get) => pack(events.map(get));
  const lengths = steps.map((step) => step.end_ns - step.start_ns);
  const middle = [...lengths].sort((a, b) => a - b)[lengths.length >> 1];
  const isWork = (kind) => kind === 'kernel' || kind === 'copy';
  const packed = {
    count: events.length, start_ns: column((e) => e.start), ns: column((e) => e.end - e.start), lane: column((e) => e.lane),
    name: column((e) => names.of(`${e.kind} ${e.text}`, { kind: e.kind, text: e.text, work: isWork(e.kind), ...(e.short ? { short: e.short } : {}) })),
    class: column((e) => classes.of(e.cls, e.cls)), op: column((e) => e.op ?? -1),
    launch: column((e) => (e.launch ? launches.of(JSON.stringify(e.launch), e.launch) : -1)),
    cause: column((e) => (e.correlation === undefined ? -1 : calls.get(e.correlation) ?? -1)), bytes: column((e) => e.bytes ?? 0) };
  const samples = Array.from({ length: 200 }, (_, i) => Math.round((now * i) / 200));
  const series = (name, unit, step, time, value) => ({ name, device: '', unit, step, count: time.length, time_ns: pack(time), value: pack(value) });
  const live = memory.events.live_bytes.slice(0, 400);
  const inStep = (event) => steps.find((step) => event.start >= step.start_ns && event.end <= step.end_ns);
  const gaps = events.filter((event) => event.kind === 'idle').sort((a, b) => b.end - b.start - (a.end - a.start)).slice(0, 20).map((event) => ({
    step: inStep(event)?.step ?? null, start_ns: event.start, end_ns: event.end, at_s: 1e-9 * (event.start - (inStep(event)?.start_ns ?? 0)), seconds: 1e-9 * (event.end - event.start),
    device: 'cuda:0', cause: event.text, next: 'matmul_kernel', host: 'cudaLaunchKernel', within: '', line: 'step (train.py:12)' }));
  return {
    gaps, source: 'activities', notes: [], steps, shown: lengths.indexOf(middle), lanes: kLanes, names: names.list, classes: classes.list,
    launches: launches.list, events: packed,
    series: [series('memory', 'byte', 1, live.map((_, i) => Math.round((steps[0].end_ns * i) / live.length)), live),
             series('power_w', 'W', 0.001, samples, samples.map(() => Math.round(1000 * (420 + 60 * random())))),
             series('sm_clock_hz', 'Hz', 1, samples, samples.map(() => 1e6 * Math.round(1755 + 200 * random())))] };
}
