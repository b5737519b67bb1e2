// A made-up training step of a GPT-2 shaped model: its ops and tensors with counted costs and plausible times.

// Counter-free small generator (mulberry32), so that a sample is the same on every machine.
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const kBytes = 4;

/** One op: costs from shapes. `work` is {m,n,k,batch} for a product, {elements,flop_per,operands} otherwise. */
function costOf(work) {
  if (work.k !== undefined) {
    const { m, n, k, batch = 1 } = work;
    return { matmul: 2 * m * n * k * batch, elementwise: 0, bytes: kBytes * batch * (m * k + k * n + m * n),
             shapes: `${batch > 1 ? `${batch}x` : ''}[${m}, ${k}] x [${k}, ${n}]` };
  }
  const { elements, flopPer = 1, operands = 2, matmul = 0 } = work;
  return { matmul, elementwise: flopPer * elements, bytes: kBytes * operands * elements, shapes: `[${elements}]` };
}

/** Appends the ops and tensors of a layer; forward and backward differ by factors only. */
class StepBuilder {
  constructor(shape) {
    this.shape = shape;
    this.ops = [];
    this.tensors = [];
    this.accumulated = new Set();
    this.latest = new Map(); // by name
  }
  op(kind, cls, phase, scope, work, outputs = [], extra = {}) {
    const index = this.ops.length;
    this.ops.push({ kind, cls, phase, scope, ...costOf(work), launches: extra.launches ?? 1, recomputed: extra.recomputed ?? 0 });
    for (const out of outputs) {
      // Gradients of weights are added up over micro-batches in one tensor.
      if (out.role === 'gradient' && out.name.endsWith('.weight') && this.accumulated.has(out.name)) continue;
      this.accumulated.add(out.name);
      const tensor = { ...out, scope, first: index, last: index };
      this.latest.set(out.name, tensor);
      this.tensors.push(tensor);
    }
    return index;
  }
  /** The tensor made last under this name now lives to this op. */
  keep(name, op) {
    const tensor = this.latest.get(name);
    if (tensor) tensor.last = Math.max(tensor.last, op);
  }
  activation(name, elements) { return { name, role: 'activation', bytes: kBytes * elements }; }
  gradient(name, elements) { return { name, role: 'gradient', bytes: kBytes * elements }; }
}

function attentionForward(b, h, tag) {
  const { batch, seq, d, heads, attention } = b.shape;
  const rows = batch * seq, size = d / heads;
  const product = { m: seq, n: seq, k: size };
  if (attention === 'flash') {
    const flop = 4 * batch * heads * seq * seq * size;
    b.op('flash_attention', 'attention', 'forward', `${h}/attention/flash`, { elements: rows * d, flopPer: 5, operands: 4, matmul: flop },
         [b.activation(`${tag}.o`, rows * d), b.activation(`${tag}.stats`, batch * heads * seq)]);
    return;
  }
  const count = attention === 'looped' ? batch * heads : 1;
  const per = attention === 'looped' ? 1 : batch * heads;
  for (let i = 0; i < count; ++i) {
    b.op('matmul', 'matmul', 'forward', `${h}/attention/qk`, { ...product, batch: per }, [b.activation(`${tag}.scores`, per * seq * seq)]);
    b.op('softmax', 'softmax', 'forward', `${h}/attention/softmax`, { elements: per * seq * seq, flopPer: 5 });
    b.op('matmul', 'matmul', 'forward', `${h}/attention/v`, { m: seq, n: size, k: seq, batch: per }, [b.activation(`${tag}.o`, per * seq * size)]);
  }
}

function layerForward(b, layer, tag) {
  const { batch, seq, d, ff } = b.shape;
  const rows = batch * seq, h = `h.${layer}`;
  b.op('layernorm', 'norm', 'forward', `${h}/ln1`, { elements: rows * d, flopPer: 8 }, [b.activation(`${tag}.ln1`, rows * d)]);
  b.op('matmul', 'matmul', 'forward', `${h}/attention/qkv`, { m: rows, n: 3 * d, k: d }, [b.activation(`${tag}.qkv`, rows * 3 * d)]);
  attentionForward(b, h, tag);
  b.op('matmul', 'matmul', 'forward', `${h}/attention/proj`, { m: rows, n: d, k: d }, [b.activation(`${tag}.proj`, rows * d)]);
  b.op('add', 'elementwise', 'forward', `${h}/residual1`, { elements: rows * d, operands: 3 }, [b.activation(`${tag}.r1`, rows * d)]);
  b.op('layernorm', 'norm', 'forward', `${h}/ln2`, { elements: rows * d, flopPer: 8 }, [b.activation(`${tag}.ln2`, rows * d)]);
  b.op('matmul', 'matmul', 'forward', `${h}/feed_forward/fc1`, { m: rows, n: ff, k: d }, [b.activation(`${tag}.fc1`, rows * ff)]);
  b.op('gelu', 'elementwise', 'forward', `${h}/feed_forward/act`, { elements: rows * ff, flopPer: 9 }, [b.activation(`${tag}.act`, rows * ff)]);
  b.op('matmul', 'matmul', 'forward', `${h}/feed_forward/fc2`, { m: rows, n: d, k: ff }, [b.activation(`${tag}.fc2`, rows * d)]);
  b.op('add', 'elementwise', 'forward', `${h}/residual2`, { elements: rows * d, operands: 3 }, [b.activation(`${tag}.r2`, rows * d)]);
}

function linearBackward(b, scope, tag, name, m, n, k) {
  const dx = b.op('matmul', 'matmul', 'backward', scope, { m, n: k, k: n }, [b.gradient(`d_${tag}.${name}`, m * k)]);
  b.op('matmul', 'matmul', 'backward', scope, { m: n, n: k, k: m }, [b.gradient(`d_${tag}.${name}.weight`, n * k)]);
  b.op('bias_backward', 'reduction', 'backward', scope, { elements: m * n, operands: 1 });
  return dx;
}

function attentionBackward(b, h, tag) {
  const { batch, seq, d, heads, attention } = b.shape;
  const rows = batch * seq, size = d / heads;
  if (attention === 'flash') {
    const flop = 10 * batch * heads * seq * seq * size;
    return b.op('flash_attention_backward', 'attention', 'backward', `${h}/attention/flash`,
                { elements: rows * d, flopPer: 12, operands: 8, matmul: flop }, [b.gradient(`d_${tag}.qkv_in`, 3 * rows * d)]);
  }
  const count = attention === 'looped' ? batch * heads : 1;
  const per = attention === 'looped' ? 1 : batch * heads;
  let last = 0;
  for (let i = 0; i < count; ++i) {
    b.op('matmul', 'matmul', 'backward', `${h}/attention/v`, { m: seq, n: seq, k: size, batch: per });
    b.op('matmul', 'matmul', 'backward', `${h}/attention/v`, { m: seq, n: size, k: seq, batch: per });
    b.op('softmax_backward', 'softmax', 'backward', `${h}/attention/softmax`, { elements: per * seq * seq, flopPer: 4, operands: 3 });
    b.op('matmul', 'matmul', 'backward', `${h}/attention/qk`, { m: seq, n: size, k: seq, batch: per });
    last = b.op('matmul', 'matmul', 'backward', `${h}/attention/qk`, { m: seq, n: size, k: seq, batch: per });
  }
  return last;
}

function layerBackward(b, layer, tag) {
  const { batch, seq, d, ff } = b.shape;
  const rows = batch * seq, h = `h.${layer}`;
  linearBackward(b, `${h}/feed_forward/fc2`, h, 'fc2', rows, d, ff);
  b.keep(`${tag}.act`, b.op('gelu_backward', 'elementwise', 'backward', `${h}/feed_forward/act`, { elements: rows * ff, flopPer: 14, operands: 3 }));
  const fc1 = linearBackward(b, `${h}/feed_forward/fc1`, h, 'fc1', rows, ff, d);
  for (const name of ['fc1', 'ln2']) b.keep(`${tag}.${name}`, fc1 + 1);
  b.op('layernorm_backward', 'norm', 'backward', `${h}/ln2`, { elements: rows * d, flopPer: 11, operands: 4 });
  linearBackward(b, `${h}/attention/proj`, h, 'proj', rows, d, d);
  const attention = attentionBackward(b, h, tag);
  for (const name of ['o', 'scores', 'stats', 'qkv']) b.keep(`${tag}.${name}`, attention);
  const qkv = linearBackward(b, `${h}/attention/qkv`, h, 'qkv', rows, 3 * d, d);
  b.keep(`${tag}.ln1`, qkv + 1);
  const norm = b.op('layernorm_backward', 'norm', 'backward', `${h}/ln1`, { elements: rows * d, flopPer: 11, operands: 4 });
  for (const name of ['r1', 'r2']) b.keep(`${tag}.${name}`, norm);
}

/** All ops and tensors of a step of `shape` = {batch, seq, vocab, layers, d, ff, heads, attention, gradAccum}. */
export function makeStep(shape) {
  const b = new StepBuilder(shape);
  const { batch, seq, vocab, layers, d, gradAccum } = shape;
  const rows = batch * seq;
  for (let micro = 0; micro < gradAccum; ++micro) {
    const tag = (layer) => `h.${layer}${gradAccum > 1 ? `#${micro}` : ''}`;
    b.op('embedding_positions', 'embedding', 'forward', 'embedding', { elements: rows * d, operands: 3 }, [b.activation('x', rows * d)]);
    for (let layer = 0; layer < layers; ++layer) layerForward(b, layer, tag(layer));
    b.op('layernorm', 'norm', 'forward', 'ln_f', { elements: rows * d, flopPer: 8 }, [b.activation('ln_f', rows * d)]);
    b.op('matmul', 'matmul', 'forward', 'lm_head', { m: rows, n: vocab, k: d }, [b.activation('logits', rows * vocab)]);
    b.op('cross_entropy', 'loss', 'forward', 'loss', { elements: rows * vocab, flopPer: 5, operands: 1 });
    b.keep('logits', b.op('cross_entropy_backward', 'loss', 'backward', 'loss', { elements: rows * vocab, flopPer: 3 }));
    b.keep('ln_f', linearBackward(b, 'lm_head', 'top', 'lm_head', rows, vocab, d) + 1);
    b.op('layernorm_backward', 'norm', 'backward', 'ln_f', { elements: rows * d, flopPer: 11, operands: 4 });
    for (let layer = layers - 1; layer >= 0; --layer) layerBackward(b, layer, tag(layer));
    b.keep('x', b.op('embedding_backward', 'embedding', 'backward', 'embedding', { elements: rows * d, operands: 3 }));
  }
  const params = vocab * d + 1024 * d + layers * (12 * d * d + 13 * d) + 2 * d;
  b.op('global_norm', 'optimizer', 'optimizer', 'optimizer', { elements: params, flopPer: 2, operands: 1 });
  const update = b.op('adamw', 'optimizer', 'optimizer', 'optimizer', { elements: params, flopPer: 12, operands: 7 }, [], { launches: 98 });
  for (const t of b.tensors) if (t.name.endsWith('.weight')) t.last = update;
  return { ops: b.ops, tensors: b.tensors, params };
}
