// A plan in numbers: each with its interval and what it comes from.
import type { CellValue, GenericTable, ReportDocument } from '../document';
import { absent, type Child, h } from '../dom';
import { prefixed, quantity } from '../format';
import { valueParts } from './overview';
import type { Section } from './section';

/** The table that the tiles are made of. */
export const kNumbers = 'plan.numbers';
const numbersOf = (document: ReportDocument): GenericTable | undefined => document.tables.find(({ id }) => id === kNumbers);

/** Whether the page is of a plan, or of one beside a measurement. */
export const isPlan = (document: ReportDocument): boolean => document.tables.some(({ view }) => view === 'plan' || view === 'plan_against');

const numberOf = (value: CellValue): number | null => (typeof value === 'number' ? value : null);

function tile(row: Record<string, CellValue>): HTMLElement {
  const unit = String(row.unit ?? '');
  const [value, low, high] = [numberOf(row.value), numberOf(row.low), numberOf(row.high)];
  // Tokens, hours and kWh are long numbers: three digits say as much as the interval allows.
  const text = (number: number | null): string => (unit === '' && number !== null && Math.abs(number) >= 1e5 ? prefixed(number) : quantity(number, unit));
  const kind = String(row.kind ?? '');
  return h('div', { class: 'tile' }, h('h3', {}, String(row.what ?? '')), h('p', { class: 'value' }, ...valueParts(text(value))),
           h('p', { class: 'note' }, low === null || high === null ? '' : `${text(low)} to ${text(high)}, `, h('span', { class: `kind ${kind}` }, kind)));
}

export const plan: Section = {
  id: 'plan',
  title: 'The plan',
  lead: 'Nothing was run. Intervals of the step assume that all ops err in the same direction. Calibrated: from tables measured op by op on such a device; assumed: from datasheets, or guessed.',
  build: ({ document }): Child[] => {
    const rows = numbersOf(document)?.rows ?? [];
    return rows.length === 0 ? [absent('This plan has no numbers.')] : [h('div', { class: 'tiles' }, ...rows.map(tile))];
  },
};
