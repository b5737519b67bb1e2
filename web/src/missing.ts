// Which sections a report lacks, and why: one list after the others, instead of a section each that says only that.
import { type Child, h } from './dom';
import type { Section } from './sections/section';

/** Why a section is not there, when that is all that its build said; null when it has something to show. */
export function reasonOf(children: readonly Child[]): string | null {
  const shown = children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false);
  const isAbsent = (child: Node | string): boolean => child instanceof HTMLElement && child.className === 'absent' && !child.hasAttribute('role');
  return shown.length > 0 && shown.every(isAbsent) ? shown.map((child) => (child as HTMLElement).textContent).join(' ') : null;
}

/** Links to a section lead to its name in the list. */
export class Missing {
  private readonly list = h('ul', {});
  readonly element = h('div', { class: 'missing note', hidden: true }, h('p', {}, 'Not in this report:'), this.list);
  private readonly items = new Map<string, HTMLElement>();

  add({ id, title }: Section, reason: string): void {
    const name = h('strong', { id }, title);
    const before = this.items.get(reason);
    if (before) before.append(', ', name);
    else this.items.set(reason, h('span', {}, name));
    if (!before) this.list.append(h('li', {}, this.items.get(reason)!, `: ${reason}`));
    this.element.hidden = false;
  }
}
