// What of the page stands in its address, so that a link shows what its sender saw: #timeline?run=2-gpt2-bf16&from=1000&to=2000
// (run: its place in the list of runs, and its name for people; from, to: nanoseconds of the timeline).

export interface Place {
  /** The id of a section, or nothing. */
  section: string;
  /** A place in the list of runs; null for the one that the page shows first. */
  run: number | null;
  /** What of the timeline is in view; null for the step that it shows first. */
  span: readonly [number, number] | null;
}

let names: readonly string[] = []; // of the runs

const kWriteMs = 250; // browsers allow a few addresses a second

function read(): Place {
  const [section = '', query = ''] = window.location.hash.slice(1).split('?');
  const values = new URLSearchParams(query);
  const number = (key: string): number | null => (/^\d+$/.test(values.get(key) ?? '') ? Number(values.get(key)) : null);
  const [from, to] = [number('from'), number('to')];
  const run = /^(\d+)(-|$)/.exec(values.get('run') ?? '');
  return { section, run: run ? Number(run[1]) : null, span: from !== null && to !== null && from < to ? [from, to] : null };
}

let current = read();
let waiting = 0;

/** "2-gpt2-bf16": the place counts, the name is for people. */
function nameOf(run: number): string {
  const name = (names[run] ?? '').replaceAll(/[^A-Za-z0-9.]+/g, '-').replaceAll(/^-+|-+$/g, '');
  return name === '' ? String(run) : `${run}-${name}`;
}

function write(): void {
  waiting = 0;
  const { section, run, span } = current;
  const query = [...(run !== null ? [`run=${nameOf(run)}`] : []), ...(span ? [`from=${span[0].toFixed(0)}`, `to=${span[1].toFixed(0)}`] : [])].join('&');
  window.history.replaceState(null, '', `#${section}${query !== '' ? `?${query}` : ''}`);
}

export const place = (): Place => current;

/** Names of the runs, which addresses carry. */
export function nameRuns(labels: readonly string[]): void { names = labels; }

/** Changes a part of the place; the address follows. */
export function setPlace(part: Partial<Place>): void {
  current = { ...current, ...part };
  if (waiting === 0) waiting = window.setTimeout(write, kWriteMs);
}

/** Calls `go` when another address is gone to. Links within the page name a section alone, and leave the rest as it is: not `isElsewhere`. */
export function onPlace(go: (isElsewhere: boolean) => void): void {
  window.addEventListener('hashchange', () => {
    const { section, run, span } = read();
    const isElsewhere = (run !== null && run !== current.run) || (span !== null && String(span) !== String(current.span?.map(Math.round)));
    setPlace(isElsewhere ? { section, run, span } : { section });
    go(isElsewhere);
  });
}
