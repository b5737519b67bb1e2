// What the hardware of a made-up run counted, and why its ops take longer than they need.

const kMends = { 'tensor pipe': 'nothing: it runs at the rate of products', 'DRAM bandwidth': 'fuse it with its neighbours', latency: 'more warps, or more work per thread' };

/** Counters by op: caches of 50 MB and 256 kB keep a part of the bytes. */
export function countedOf(ops, setupOps, random) {
  const names = ['', 'long_scoreboard', 'math_pipe_throttle'];
  const rows = ops.map((op) => {
    const flop = op.matmul + op.elementwise;
    const [dram, l2, l1] = [op.bytes * (0.8 + 0.3 * random()), op.bytes * (1.2 + random()), op.bytes * (2 + 2 * random())];
    return { flop, flop_per_s: flop / op.device, dram_bytes: dram, l2_bytes: l2, l1_bytes: l1, dram_intensity: flop / dram, l2_intensity: flop / l2, l1_intensity: flop / l1,
             tensor_active: op.matmul > 0 ? 0.6 + 0.3 * random() : 0, l1_hit_share: 0.3 * random(), l2_hit_share: 0.4 + 0.4 * random(),
             stall: op.matmul > 0 ? 2 : 1, stall_share: 0.3 + 0.4 * random() };
  });
  const columns = Object.fromEntries(Object.keys(rows[0]).map((key) => [key, rows.map((row) => Number(row[key].toPrecision(6)))]));
  return { op: ops.map((_, i) => i + setupOps), ...columns, names };
}

/** The time of each phase and part by cause. */
export function whyOf(ops) {
  const parts = new Map();
  for (const op of ops) {
    const part = op.scope.replace(/^h\.\d+\//, '');
    const key = `${op.phase} ${part}`;
    if (!parts.has(key)) parts.set(key, { phase: op.phase, part, ops: 0, time_s: 0, needed: 0, tensor: 0 });
    const sum = parts.get(key);
    sum.ops += 1;
    sum.time_s += op.device;
    sum.needed += op.roof;
    if (op.bound === 'compute') sum.tensor += op.roof;
  }
  return [...parts.values()].map(({ phase, part, ops: count, time_s, needed, tensor }) => {
    const causes = [['tensor pipe', tensor], ['DRAM bandwidth', needed - tensor], ['latency', time_s - needed]].filter(([, seconds]) => seconds > 0)
      .map(([cause, seconds]) => ({ cause, seconds, mend: kMends[cause] }));
    return { phase, part, ops: count, time_s, bound: causes.reduce((most, cause) => (cause.seconds > most.seconds ? cause : most)).cause, counted: true,
             occupancy: 0.25, waves: 1.2, stall: 'long scoreboard 45 %', causes };
  });
}

/** Where the time goes, by block and by cause, and what was idle. */
export function glanceOf(ops) {
  const listOf = (of, sums) => {
    const all = [...sums.values()].reduce((total, { seconds }) => total + seconds, 0);
    return { of, parts: [...sums.values()].sort((a, b) => b.seconds - a.seconds).slice(0, 7).map((part) => ({ note: '', phase: '', ...part, share: part.seconds / all })) };
  };
  const [blocks, causes] = [new Map(), new Map()];
  const add = (sums, name, seconds, more) => sums.set(name, { ...more, name, seconds: (sums.get(name)?.seconds ?? 0) + seconds });
  for (const op of ops) add(blocks, `${op.phase} ${op.scope.replace(/^h\.\d+\//, '').split('/')[0]}`, op.device, { phase: op.phase });
  for (const { causes: of } of whyOf(ops)) for (const { cause, seconds, mend } of of) add(causes, cause, seconds, { note: mend });
  const device = ops.reduce((sum, op) => sum + op.device, 0), wall = ops.reduce((sum, op) => sum + op.wall, 0);
  return { time: listOf('time of ops in 60 observed steps', blocks), bound: listOf('the same time by cause, from hardware counters', causes),
           idle: listOf('60 observed steps, observing included', new Map([['in', { name: 'in kernels', seconds: device }], ['between', { name: 'between kernels', seconds: wall - device }]])) };
}
