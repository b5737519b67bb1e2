// What of the page stands in its address, so that a link shows what its sender saw: #timeline?run=2&from=1000&to=2000
// (run: its place in the list of runs; from, to: nanoseconds of the timeline).

export interface Place {
  /** The id of a section, or nothing. */
  section: string;
  /** A place in the list of runs; null for the one that the page shows first. */
  run: number | null;
  /** What of the timeline is in view; null for the step that it shows first. */
  span: readonly [number, number] | null;
}

const kWriteMs = 250; // browsers allow a few addresses a second

function read(): Place {
  const [section = '', query = ''] = window.location.hash.slice(1).split('?');
  const values = new URLSearchParams(query);
  const number = (key: string): number | null => (/^\d+$/.test(values.get(key) ?? '') ? Number(values.get(key)) : null);
  const [from, to] = [number('from'), number('to')];
  return { section, run: number('run'), span: from !== null && to !== null && from < to ? [from, to] : null };
}

let current = read();
let waiting = 0;

function write(): void {
  waiting = 0;
  const { section, run, span } = current;
  const query = [...(run !== null ? [`run=${run}`] : []), ...(span ? [`from=${span[0].toFixed(0)}`, `to=${span[1].toFixed(0)}`] : [])].join('&');
  window.history.replaceState(null, '', `#${section}${query !== '' ? `?${query}` : ''}`);
}

export const place = (): Place => current;

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
