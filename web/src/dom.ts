// Elements made in one expression, so that text from the data is always text and never markup.

export type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | EventListener | undefined>;

/** An element with attributes (functions become listeners: { onclick }) and children. True is an empty attribute, but of ARIA's the word. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true && !key.startsWith('aria-') ? '' : String(value));
  }
  append(element, children);
  return element;
}

export function append(parent: Element, children: readonly Child[]): void {
  for (const child of children) if (child !== null && child !== undefined && child !== false) parent.append(child);
}

let lastId = 0;
/** A fresh id, to tie labels to what they name. */
export const freshId = (stem: string): string => `${stem}-${++lastId}`;

/** A sentence that stands where a part of the report would, and says why it is not there. */
export const absent = (text: string): HTMLElement => h('p', { class: 'absent' }, text);

/** A group of buttons of which one is pressed; calls `choose` with the value of the one that is clicked. */
export function choice<T extends string>(label: string, options: readonly (readonly [T, string])[], first: T, choose: (value: T) => void): HTMLElement {
  const buttons = options.map(([value, text]) =>
    h('button', { type: 'button', 'data-value': value, 'aria-pressed': value === first ? 'true' : 'false', onclick: () => {
      for (const button of buttons) button.setAttribute('aria-pressed', String(button.dataset.value === value));
      choose(value);
    } }, text));
  return h('div', { class: 'choice', role: 'group', 'aria-label': label }, ...buttons);
}

/** A button that stays in the background. */
export const quietButton = (label: string, title: string, onclick: () => void): HTMLButtonElement =>
  h('button', { type: 'button', class: 'quiet', title, 'aria-label': title, onclick }, label);

/** A labelled drop-down list. */
export function picker(label: string, options: readonly (readonly [string, string])[], first: string, choose: (value: string) => void): HTMLElement {
  const id = freshId('picker');
  const select = h('select', { id, onchange: () => choose(select.value) }, ...options.map(([value, text]) => h('option', { value }, text)));
  select.value = first;
  return h('span', { class: 'picker' }, h('label', { for: id }, label), select);
}

/** A check box for each name, all ticked; calls `change` with the names that are. */
export function ticks(label: string, names: readonly string[], colour: (name: string) => string | undefined, change: (chosen: Set<string>) => void): HTMLElement {
  const chosen = new Set(names);
  return h('fieldset', { class: 'ticks' }, h('legend', {}, label), ...names.map((name) => {
    const box = h('input', { type: 'checkbox', checked: true, onchange: () => {
      if (box.checked) chosen.add(name);
      else chosen.delete(name);
      change(chosen);
    } });
    const swatch = colour(name);
    return h('label', {}, box, swatch ? h('i', { class: 'swatch', style: `background:${swatch}` }) : null, name || '(none)');
  }));
}
