// Columns of integers as the document packs them: differences, zigzag coded in groups of seven bits, as base64.

/** `count` numbers; null when the text holds something else. */
export function unpack(text: string | undefined, count: number): Float64Array | null {
  if (text === undefined) return null;
  let bytes = '';
  try {
    bytes = atob(text);
  } catch {
    return null;
  }
  if (bytes.length < count) return null; // a number takes a byte at least: a wrong count allocates nothing
  const values = new Float64Array(count);
  let [at, value] = [0, 0];
  for (let i = 0; i < count; ++i) {
    let [coded, factor, byte] = [0, 1, 0x80];
    while (byte >= 0x80) {
      if (at >= bytes.length) return null;
      byte = bytes.charCodeAt(at++);
      coded += (byte & 0x7f) * factor;
      factor *= 0x80;
    }
    value += coded % 2 === 0 ? coded / 2 : -(coded + 1) / 2;
    values[i] = value;
  }
  return at === bytes.length ? values : null;
}
