// Opens a memory snapshot as PyTorch's viewer does: node memory_viz.mjs SNAPSHOT [MemoryViz.js]
// With the viewer's own script (torch/utils/viz of a PyTorch) its functions read the file. Without, those below do, which ask the
// file for the same fields: what of it the viewer would not find throws here, too. Prints what it would draw of each device, as JSON.
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const kMost = 15_000; // allocations that the viewer draws one by one

/** The functions of the viewer's script, without the parts that need a browser. */
function theirs(path) {
  const wanted = ['unpickle', 'annotate_snapshot', 'process_alloc_data'];
  const others = join(dirname(path), 'process_alloc_data.js');
  const script = [path, others].filter(existsSync).map((file) => readFileSync(file, 'utf8')).join('\n')
    .replace(/^import [^;]*;/gm, '').replace(/^export \{[^}]*\};?/gm, '').replace(/^export /gm, '');
  const begin = script.search(/^(const|let) head = /m); // from there on it builds its page
  const end = script.indexOf('// Pure data-processing functions');
  const functions = begin < 0 ? script : script.slice(0, begin) + (end > begin ? script.slice(end) : '');
  return new Function(`${functions}\nreturn { ${wanted.join(', ')} };`)();
}

/** A reader with the viewer's opcodes, and no others. */
function unpickle(buffer) {
  const bytes = new Uint8Array(buffer);
  const view = new DataView(buffer);
  const text = new TextDecoder('utf8', { fatal: true });
  const stack = [], marks = [], memo = [];
  let at = 0;
  const number = (size) => { at += size; return size === 1 ? bytes[at - 1] : size === 2 ? view.getUint16(at - 2, true) : view.getUint32(at - 4, true); };
  const string = (size) => { at += size; return text.decode(bytes.subarray(at - size, at)); };
  const marked = () => stack.splice(marks.pop());
  const put = (target, pairs) => { for (let i = 0; i < pairs.length; i += 2) target[pairs[i]] = pairs[i + 1]; };
  const long = (size) => {
    if (size !== 8) throw new Error(`a number of ${size} bytes`);
    at += 8;
    return Number(view.getBigInt64(at - 8, true));
  };
  const read = {
    0x80: () => { const version = number(1); if (version < 2 || version > 4) throw new Error(`Unhandled version ${version}`); },
    e: () => { const items = marked(); stack.at(-1).push(...items); },
    u: () => { const pairs = marked(); put(stack.at(-1), pairs); },
    '(': () => marks.push(stack.length), ']': () => stack.push([]), '}': () => stack.push({}),
    X: () => stack.push(string(number(4))), 0x8c: () => stack.push(string(number(1))),
    J: () => stack.push(number(4) | 0), K: () => stack.push(number(1)), M: () => stack.push(number(2)), 0x8a: () => stack.push(long(number(1))),
    r: () => { memo[number(4)] = stack.at(-1); }, j: () => stack.push(memo[number(4)]),
    0x86: () => stack.push(stack.splice(-2)), 0x88: () => stack.push(true), 0x89: () => stack.push(false), N: () => stack.push(null),
  };
  for (;;) {
    const code = number(1);
    const letter = String.fromCharCode(code);
    if (letter === '.') return stack.pop();
    const how = read[code] ?? read[letter];
    if (how === undefined) throw new Error(`UNKNOWN OPCODE: ${code}`);
    how();
  }
}

/** Fuses frees that follow what asked for them, collects categories, and counts addresses of blocks. */
function annotate_snapshot(snapshot) {
  snapshot.categories = [];
  snapshot.device_traces = snapshot.device_traces.map((trace) => {
    const kept = [];
    for (const entry of trace) {
      entry.frames ??= [];
      const before = kept.at(-1);
      if (entry.action === 'free_completed' && before?.action === 'free_requested' && before.addr === entry.addr) {
        before.action = 'free';
        continue;
      }
      if ('category' in entry && !snapshot.categories.includes(entry.category)) snapshot.categories.push(entry.category);
      kept.push(entry);
    }
    return kept;
  });
  for (const segment of snapshot.segments) {
    let address = segment.address;
    for (const block of segment.blocks) {
      block.addr = address;
      block.frames ??= [];
      address += block.size;
    }
  }
  // A slip of the viewer: the list that it adds to has another name.
  if (snapshot.categories.length > 0 && !snapshot.categories.includes('unknown')) snapshot.categores.push('unknown');
}

/** What is allocated after each event, and what each allocation says of itself. */
function process_alloc_data(snapshot, device) {
  const elements = [], live = new Map(), max_at_time = [], before = [];
  let bytes = 0;
  const describe = (entry) => entry.frames.map(({ name, filename, line }) => `${filename.includes('') && filename}:${line}:${name.includes('') && name}`).join('\n');
  const changes = [];
  for (const entry of snapshot.device_traces[device]) {
    if (entry.action === 'alloc') {
      live.set(entry.addr, entry);
      elements.push(entry);
      changes.push(entry.size);
    } else if (entry.action === 'free' || entry.action === 'free_completed') {
      if (!live.delete(entry.addr)) before.push(entry), elements.push(entry);
      changes.push(-entry.size);
    }
  }
  for (const segment of snapshot.segments) {
    if (segment.device !== device) continue;
    for (const block of segment.blocks) {
      if (block.state === 'active_allocated' && !live.has(block.addr)) before.push({ ...block, size: block.requested_size }), elements.push(block);
    }
  }
  for (const { size } of before) bytes += size;
  let max_size = bytes;
  for (const change of changes) {
    max_at_time.push((bytes += change));
    max_size = Math.max(max_size, bytes);
  }
  return { max_size, max_at_time, elements_length: elements.length, context_for_id: (id) => `Addr: ${elements[id].addr.toString(16)}\n${describe(elements[id])}` };
}

const [path, script = ''] = process.argv.slice(2);
const viewer = script === '' ? { unpickle, annotate_snapshot, process_alloc_data } : theirs(script);
const file = readFileSync(path);
const snapshot = viewer.unpickle(file.buffer.slice(file.byteOffset, file.byteOffset + file.length));
viewer.annotate_snapshot(snapshot);
const devices = snapshot.device_traces.map((trace, device) => {
  const data = viewer.process_alloc_data(snapshot, device, false, kMost);
  for (let id = 0; id < data.elements_length; ++id) data.context_for_id(id);
  return { events: trace.length, allocations: data.elements_length, peak_bytes: data.max_size, first_us: trace[0]?.time_us ?? 0 };
});
console.log(JSON.stringify({ reader: script === '' ? 'ours' : script, categories: snapshot.categories, devices }));
