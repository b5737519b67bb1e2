// What can be saved from the page: tables as CSV; charts as PNG, as SVG, and the numbers that they draw as CSV.
import { h, quietButton } from './dom';

type Cell = string | number | null | undefined;

/** A table to be saved: numbers in SI base units, nothing where there is none. */
export interface Sheet {
  headings: readonly string[];
  rows: readonly (readonly Cell[])[];
}

/** A picture in its three forms, made when asked for. */
export interface Picture {
  /** As a data address. */
  png: () => string;
  /** As text. */
  svg: () => string;
  sheet: () => Sheet;
}

const quoted = (text: string): string => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const cellText = (cell: Cell): string => (cell === null || cell === undefined || Number.isNaN(cell) ? '' : quoted(String(cell)));

const csvOf = ({ headings, rows }: Sheet): string => [headings.map(quoted).join(','), ...rows.map((row) => row.map(cellText).join(',')), ''].join('\n');

/** "time (s)", or the name alone. */
export const heading = (title: string, unit: string): string => (unit !== '' ? `${title} (${unit})` : title);

const kKeepMs = 60_000; // the browser reads it after the click, when it comes to it

/** As a blob: browsers save no data address of more than two megabytes. */
function download(label: string, suffix: string, part: BlobPart, type: string): void {
  const address = URL.createObjectURL(new Blob([part], { type }));
  h('a', { href: address, download: `${label.replaceAll(/\W+/g, '_').replaceAll(/^_|_$/g, '')}.${suffix}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), kKeepMs);
}

const bytesOf = (address: string): Uint8Array<ArrayBuffer> => Uint8Array.from(atob(address.slice(address.indexOf(',') + 1)), (letter) => letter.charCodeAt(0));

export const saveSheet = (label: string, sheet: Sheet): void => download(label, 'csv', csvOf(sheet), 'text/csv');

/** The buttons that save a picture. */
export function saveButtons(label: string, picture: Picture): HTMLElement {
  const button = (name: string, save: () => void): HTMLElement => quietButton(name, `Save "${label}" as ${name}`, save);
  return h('span', { class: 'saving' }, button('PNG', () => download(label, 'png', bytesOf(picture.png()), 'image/png')),
           button('SVG', () => download(label, 'svg', picture.svg(), 'image/svg+xml')),
           button('CSV', () => saveSheet(label, picture.sheet())));
}
