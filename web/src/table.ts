// Tables of any length: only the rows in view exist. Sorted by their headings, searched, walked with the keyboard.
// Own code, because the columns are already columnar: a library would want an object for each of 100 000 rows.
import type { Column } from './columns';
import { type DetailRow, known, row as detailRow } from './detail_rows';
import { showDetails } from './details';
import { type Child, freshId, h, picker } from './dom';
import { count, plural, quantity } from './format';
import { type Order, Rows } from './rows';
import { heading, saveSheet, type Sheet } from './save';

const kRowHeight = Math.round((25 / 16) * parseFloat(getComputedStyle(document.documentElement).fontSize)); // grows with the letters
const kOverscan = 8;
const kPrintedRows = 50;
const kLongText = 30; // letters that a cell may not show in full
const kMostPixels = 1e7; // browsers lay out no element much higher than this; longer tables scroll proportionally

export interface TableOptions {
  label: string;
  columns: readonly Column[];
  length: number;
  order?: Order;
  visibleRows?: number;
  search?: boolean;
  /** Called with a row that was clicked or entered; without it all columns of the row are shown at the side. */
  open?: (row: number) => void;
  tools?: readonly Child[];
}

/** A row element and what it shows. */
interface Slot {
  element: HTMLElement;
  cells: HTMLElement[];
  place: number;
  row: number;
  active: boolean | null;
  marked: boolean | null;
  top: number;
}

const tables = new Map<Element, Table>();

function cellText(column: Column, row: number): string {
  return column.kind === 'text' ? column.names[column.codes[row]!] ?? '' : quantity(column.values[row], column.unit);
}

/** Width of a column from its heading and some of its cells, in ch. */
function widthOf(column: Column, length: number): number {
  const air = column.kind === 'text' ? 4 : 2; // letters of words are wider than digits, which a ch is
  let longest = column.title.length + 3;
  // Of texts each is looked at once, of many numbers some.
  const count = column.kind === 'text' ? column.names.length : length;
  const stride = Math.max(1, Math.floor(count / (column.kind === 'text' ? 2000 : 60)));
  for (let i = 0; i < count; i += stride) longest = Math.max(longest, (column.kind === 'text' ? column.names[i]! : cellText(column, i)).length + air);
  return Math.min(Math.max(longest, 6), 44);
}

export class Table {
  readonly element: HTMLElement;
  readonly searchBox: HTMLInputElement | null;
  private readonly scroller: HTMLElement;
  private readonly head: HTMLElement;
  private readonly body: HTMLElement;
  private readonly status = h('span', { class: 'status', 'aria-live': 'polite' });
  private readonly rows: Rows;
  private readonly filters = new Map<number, string>();
  private readonly id = freshId('table');
  private shown: Uint32Array;
  private order: Order | null;
  private readonly noRow = h('div', { class: 'none', role: 'row' }, h('span', { role: 'gridcell' }, 'No row matches.'));
  private readonly slots: Slot[] = [];
  private active = -1;
  private marked: ReadonlySet<number> = new Set();
  private printing = false;

  constructor(private readonly options: TableOptions) {
    const { columns, length } = options;
    this.rows = new Rows(columns, length);
    this.order = options.order ?? null;
    this.shown = new Uint32Array(0);
    this.searchBox = options.search === false ? null : h('input', {
      type: 'search', placeholder: 'Search', 'aria-label': `Search ${options.label}`, spellcheck: 'false', oninput: () => this.refresh(),
      onkeydown: (event) => this.searchKey(event as KeyboardEvent) });
    this.head = h('div', { class: 'head', role: 'row', 'aria-rowindex': 1 }, ...columns.map((column, i) => this.heading(column, i)));
    this.body = h('div', { class: 'body', role: 'rowgroup' }, this.noRow);
    const widths = columns.map((column) => widthOf(column, length));
    // Each row is a grid of its own: widths may depend on nothing that differs from row to row.
    const layout = `--row:${kRowHeight}px;--columns:${widths.map((width) => `minmax(var(--least, ${width}ch), ${width}fr)`).join(' ')};--width:${widths.reduce((sum, width) => sum + width, 0)}ch`;
    this.scroller = h('div', {
      class: 'grid', role: 'grid', tabindex: 0, 'aria-label': options.label, 'aria-colcount': columns.length, style: layout,
      onscroll: () => this.draw(), onkeydown: (event) => this.key(event as KeyboardEvent), onclick: (event) => this.click(event) },
    h('div', { role: 'rowgroup', class: 'headgroup' }, this.head), this.body);
    this.element = h('div', { class: 'table' }, this.tools(), this.scroller);
    tables.set(this.element, this);
    this.refresh();
  }

  private tools(): HTMLElement {
    const filters = this.options.columns.map((column, i) => {
      if (column.kind !== 'text' || !column.filter || column.names.length < 2) return null;
      const names = [...column.names].sort();
      return picker(column.title, [['', 'all'], ...names.map((name) => [`=${name}`, name || '(none)'] as const)], '', (value) => {
        if (value === '') this.filters.delete(i);
        else this.filters.set(i, value.slice(1));
        this.refresh();
      });
    });
    return h('div', { class: 'tools' }, this.searchBox, ...filters, ...(this.options.tools ?? []), this.status,
             h('button', { type: 'button', class: 'quiet', title: 'Save the rows that are shown, in SI base units', onclick: () => saveSheet(this.options.label, this.sheet()) }, 'CSV'));
  }

  private heading(column: Column, index: number): HTMLElement {
    return h('div', { role: 'columnheader', class: column.kind, 'aria-colindex': index + 1 },
             h('button', { type: 'button', tabindex: index === 0 ? 0 : -1, onkeydown: (event) => this.headingKey(event as KeyboardEvent, index), title: column.hint ?? `Sort by ${column.title}`, onclick: () => this.sortBy(index) }, column.title));
  }

  /** The headings are one stop of the Tab key; arrows walk along them. */
  private headingKey(event: KeyboardEvent, index: number): void {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    const buttons = this.head.querySelectorAll('button');
    const next = buttons[index + step];
    if (step === 0 || !next) return;
    event.preventDefault();
    for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }

  /** Sorts by a column: numbers from the largest at first, texts from A; again turns it round. */
  sortBy(index: number): void {
    const first = this.options.columns[index]!.kind === 'number';
    this.order = { column: index, descending: this.order?.column === index ? !this.order.descending : first };
    this.refresh();
  }

  private refresh(): void {
    this.shown = this.rows.sort(this.rows.select(this.searchBox?.value ?? '', this.filters), this.order);
    [...this.head.children].forEach((cell, i) => {
      const here = this.order?.column === i;
      cell.setAttribute('aria-sort', !here ? 'none' : this.order!.descending ? 'descending' : 'ascending');
    });
    this.active = -1;
    const { length } = this.options;
    this.status.textContent = this.shown.length === length ? plural(length, 'row') : `${count(this.shown.length)} of ${plural(length, 'row')}`;
    this.scroller.setAttribute('aria-rowcount', String(this.shown.length + 1));
    const visible = Math.min(this.options.visibleRows ?? 14, Math.max(1, this.shown.length));
    this.scroller.style.setProperty('--height', `${(visible + 1) * kRowHeight + (this.shown.length > visible ? kRowHeight / 2 : 16)}px`);
    this.body.style.height = `${Math.min(this.shown.length * kRowHeight, kMostPixels)}px`;
    this.scroller.scrollTop = 0;
    this.draw();
  }

  /** Pixels of scrolling per pixel of rows: 1 unless the table is higher than a browser can lay out. */
  private stretch(): number {
    const height = this.shown.length * kRowHeight;
    const view = this.scroller.clientHeight || kRowHeight;
    return height <= kMostPixels ? 1 : (height - view) / (kMostPixels - view);
  }

  private draw(): void {
    const { scrollTop, clientHeight } = this.scroller;
    const top = scrollTop * this.stretch();
    const view = clientHeight || kRowHeight * (this.options.visibleRows ?? 14);
    const first = this.printing ? 0 : Math.max(0, Math.floor(top / kRowHeight) - kOverscan);
    const last = Math.min(this.shown.length, this.printing ? kPrintedRows : Math.ceil((top + view) / kRowHeight) + kOverscan);
    this.takeSlots(first, Math.max(0, last - first));
    this.slots.forEach((slot, i) => this.show(slot, first + i, (first + i) * kRowHeight - top + scrollTop));
    this.noRow.hidden = this.shown.length > 0;
    if (this.active >= 0) this.scroller.setAttribute('aria-activedescendant', `${this.id}-${this.active}`);
    else this.scroller.removeAttribute('aria-activedescendant');
  }

  /** As many row elements as are in view, in their order; those that scroll out at one end come back at the other. */
  private takeSlots(first: number, wanted: number): void {
    const moved = first - (this.slots[0]?.place ?? first);
    if (Math.abs(moved) < this.slots.length) {
      for (let i = 0; i < moved; ++i) {
        const slot = this.slots.shift()!;
        this.slots.push(slot);
        this.body.append(slot.element);
      }
      for (let i = 0; i > moved; --i) {
        const slot = this.slots.pop()!;
        this.slots.unshift(slot);
        this.body.prepend(slot.element);
      }
    }
    while (this.slots.length > wanted) this.slots.pop()!.element.remove();
    while (this.slots.length < wanted) {
      const cells = this.options.columns.map((column, i) => h('div', { role: 'gridcell', class: column.kind, 'aria-colindex': i + 1 }));
      const element = h('div', { role: 'row' }, ...cells);
      this.slots.push({ element, cells, place: -1, row: -1, active: null, marked: null, top: NaN });
      this.body.append(element);
    }
  }

  /** Writes what changed since the slot was shown last. */
  private show(slot: Slot, place: number, top: number): void {
    const { element, cells } = slot;
    const row = this.shown[place]!;
    const active = place === this.active;
    const marked = this.marked.has(row);
    if (slot.top !== top) element.style.top = `${top}px`;
    if (slot.active !== active || slot.marked !== marked) {
      element.className = ['row', active && 'active', marked && 'marked'].filter(Boolean).join(' ');
      element.setAttribute('aria-selected', String(active || marked));
    }
    if (slot.place !== place) {
      element.id = `${this.id}-${place}`;
      element.dataset.place = String(place);
      element.setAttribute('aria-rowindex', String(place + 2));
    }
    if (slot.row !== row) {
      element.dataset.row = String(row);
      this.options.columns.forEach((column, i) => {
        const text = cellText(column, row);
        cells[i]!.textContent = text;
        cells[i]!.title = text.length > kLongText ? text : '';
      });
    }
    Object.assign(slot, { place, row, active, marked, top });
  }

  private click(event: Event): void {
    const row = (event.target as Element).closest<HTMLElement>('.row');
    if (!row) return;
    this.activate(Number(row.dataset.place));
    if (this.options.open || window.getSelection()?.type !== 'Range') this.open(Number(row.dataset.row)); // who marks text wants to copy it
  }

  private open(row: number): void {
    const { open, columns, label } = this.options;
    if (open) open(row);
    else showDetails({ title: cellText(columns[0]!, row), subtitle: label, rows: this.details(row) });
  }

  /** All that a row says: its cells may be cut. */
  details(row: number): DetailRow[] { return known(this.options.columns.map((column) => detailRow(column.title, cellText(column, row)))); }

  private activate(place: number): void {
    if (this.shown.length === 0) return;
    this.active = Math.min(Math.max(place, 0), this.shown.length - 1);
    this.scrollTo(this.active);
    this.draw();
  }

  /** Marks rows that were chosen elsewhere; `reveal` scrolls the table, not the page, to the first of them. */
  mark(rows: ReadonlySet<number>, reveal: boolean): void {
    this.marked = rows;
    const first = reveal && rows.size > 0 ? this.shown.findIndex((row) => rows.has(row)) : -1;
    if (first >= 0) this.scrollTo(first);
    this.draw();
  }

  private scrollTo(place: number): void {
    const [top, stretch] = [place * kRowHeight, this.stretch()];
    const view = this.scroller.clientHeight - 2 * kRowHeight;
    const now = this.scroller.scrollTop * stretch;
    if (top < now) this.scroller.scrollTop = top / stretch;
    else if (top > now + view) this.scroller.scrollTop = (top - view) / stretch;
  }

  private key(event: KeyboardEvent): void {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / kRowHeight) - 2);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.shown.length, End: this.shown.length };
    const step = steps[event.key];
    if (event.target !== this.scroller && event.key !== 'ArrowDown') return; // a heading has the focus
    if (step !== undefined) {
      this.scroller.focus();
      event.preventDefault();
      this.activate(this.active < 0 && step > 0 && event.key !== 'End' ? 0 : this.active + step);
    } else if (event.key === 'Enter' && this.active >= 0) {
      event.preventDefault();
      this.open(this.shown[this.active]!);
    }
  }

  private searchKey(event: KeyboardEvent): void {
    if (event.key === 'ArrowDown') {
      event.preventDefault();
      this.scroller.focus();
      this.activate(0);
    } else if (event.key === 'Escape' && this.searchBox!.value !== '') {
      event.stopPropagation();
      this.searchBox!.value = '';
      this.refresh();
    }
  }

  /** The rows that are shown, in their order. */
  sheet(): Sheet {
    const { columns } = this.options;
    const headings = columns.map((column) => (column.kind === 'number' ? heading(column.title, column.unit) : column.title));
    return { headings, rows: [...this.shown].map((row) => columns.map((column) => (column.kind === 'text' ? cellText(column, row) : column.values[row]!))) };
  }

  /** On paper: the first rows, and how many there are. */
  print(on: boolean): void {
    this.printing = on;
    this.element.dataset.printed = this.shown.length > kPrintedRows ? `The first ${kPrintedRows} of ${plural(this.shown.length, 'row')}.` : '';
    this.draw();
  }
}

export function printTables(on: boolean): void {
  for (const table of tables.values()) table.print(on);
}

/** Ends every table below `root`, which is about to be replaced. */
export function disposeTables(root: Element): void {
  for (const element of [...tables.keys()]) if (root.contains(element)) tables.delete(element);
}
