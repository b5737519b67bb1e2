// The graph of the made-up model, as rooflm makes it of a run's ops.

const sum = (list) => list.reduce((total, value) => total + value, 0);
const kChain = ['ln1', 'attention/qkv', 'attention/qk', 'attention/softmax', 'attention/v', 'attention/flash', 'attention/proj', 'residual1', 'ln2',
                'feed_forward/fc1', 'feed_forward/act', 'feed_forward/fc2', 'residual2'];
const kLines = { embedding: 46, ln1: 66, attention: 126, 'attention/qkv': 132, 'attention/proj': 141, residual1: 120, ln2: 66, 'feed_forward/fc1': 150, 'feed_forward/act': 154,
                 'feed_forward/fc2': 157, residual2: 120, ln_f: 66, lm_head: 76, loss: 82 };

const pathOf = (scope) => scope.replace(/^h\.\d+\//, '');

function workOf(ops, all) {
  const phases = [...new Set(ops.map((op) => op.phase))].map((phase) => {
    const of = ops.filter((op) => op.phase === phase);
    const [flop, bytes, time, roof] = [sum(of.map((op) => op.matmul + op.elementwise)), sum(of.map((op) => op.bytes)), sum(of.map((op) => op.device)), sum(of.map((op) => op.roof))];
    return { phase, flop, bytes, intensity: flop / bytes, time_s: time, roof_s: roof, share: roof / time, bound: of[0].bound };
  });
  const time = sum(phases.map((phase) => phase.time_s));
  return { flop: sum(phases.map((phase) => phase.flop)), bytes: sum(phases.map((phase) => phase.bytes)), time_s: time, time_share: time / all, bound: phases[0]?.bound ?? '', phases };
}

export function modelOf(ops, layers) {
  const all = sum(ops.map((op) => op.device));
  const has = new Set(ops.map((op) => pathOf(op.scope)));
  const nodes = [];
  const add = (name, path, depth, more, of) => nodes.push({ name, path, source: '', times: 1, depth, last: nodes.length, frame: false, ...more, ...workOf(ops.filter(of), all) });
  const block = (path, name, depth) => add(name, path, depth, { source: kLines[path] ? `src/model/forward.cpp:${kLines[path]}` : '' }, (op) => pathOf(op.scope) === path);
  block('embedding', 'embedding', 0);
  const layer = add('layer', '', 0, { frame: true, times: layers }, (op) => op.scope.startsWith('h.')) - 1;
  let frame = null;
  for (const path of kChain.filter((part) => has.has(part))) {
    const [group, name] = path.includes('/') ? path.split('/') : ['', path];
    if (group !== '' && nodes[frame]?.path !== group) frame = add(group, group, 1, { frame: true }, (op) => pathOf(op.scope).startsWith(`${group}/`)) - 1;
    block(path, name, group === '' ? 1 : 2);
    if (group === '') frame = null;
    else nodes[frame].last = nodes.length - 1;
  }
  nodes[layer].last = nodes.length - 1;
  for (const path of ['ln_f', 'lm_head', 'loss', 'optimizer']) block(path, path, 0);
  const at = (path) => nodes.findIndex((node) => !node.frame && node.path === path);
  const blocks = nodes.flatMap((node, i) => (node.frame || node.path === 'optimizer' ? [] : [i]));
  const edges = blocks.slice(1).map((to, i) => ({ from: blocks[i], to, back: false, lane: null }));
  edges.push({ from: at('embedding'), to: at('residual1'), back: false, lane: 0 }, { from: at('residual1'), to: at('residual2'), back: false, lane: 1 },
             { from: at('residual2'), to: at('ln1'), back: true, lane: 1 }, { from: at('residual2'), to: at('residual1'), back: true, lane: 0 });
  return { nodes, edges, lanes: 2, back_lanes: 2, lacks: [] };
}
