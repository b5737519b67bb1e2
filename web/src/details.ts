// The panel at the side with all numbers of one op, block or phase.
import { rowElement, type DetailRow } from './detail_rows';
import { append, h } from './dom';

export interface Details {
  title: string;
  subtitle: string;
  rows: readonly DetailRow[];
  /** Parts of the page that show the same: where, and what is said. */
  links?: readonly (readonly [string, string])[];
}

let panel: HTMLElement | null = null;
let opener: HTMLElement | null = null;

export function closeDetails(): boolean {
  if (!panel) return false;
  panel.remove();
  panel = null;
  opener?.focus();
  opener = null;
  return true;
}

export function showDetails(details: Details): void {
  const before = document.activeElement;
  if (!panel && before instanceof HTMLElement) opener = before;
  panel?.remove();
  panel = h('div', { class: 'details', role: 'dialog', 'aria-label': `Details of ${details.title}`, tabindex: -1 },
            h('div', { class: 'heading' }, h('div', {}, h('h3', {}, details.title), h('p', {}, details.subtitle)),
              h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close details', title: 'Close (Esc)', onclick: () => closeDetails() }, 'Close')));
  const table = h('table', {}, h('tbody', {}));
  append(table.tBodies[0]!, details.rows.map((row) => rowElement(row)));
  panel.append(table);
  if (details.links) panel.append(h('p', { class: 'links' }, ...details.links.map(([href, text]) => h('a', { href, onclick: () => { closeDetails(); } }, text))));
  document.body.append(panel);
  panel.focus({ preventScroll: true });
}
