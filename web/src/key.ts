// Which colour is what, beside a chart: names wrap instead of being cut, and may be switched off.
import { colourVariable } from './colours';
import { h } from './dom';

const swatch = (colour: string): HTMLElement => h('i', { class: 'swatch', style: `background:${colour}` });

export const keyOf = (names: readonly string[], colour: (name: string) => string = colourVariable): HTMLElement => h('ul', { class: 'key', 'aria-label': 'Key of colours' }, ...names.map((name) =>
  h('li', {}, swatch(colour(name)), name || '(none)')));

/** A key whose entries take their part of the chart away and bring it back; `hidden` is changed, then `change` called. */
export function switchKey(names: readonly string[], colour: (name: string) => string, hidden: Set<string>, change: () => void): HTMLElement {
  return h('ul', { class: 'key', 'aria-label': 'Key of colours: press to hide or show' }, ...names.map((name) => {
    const button = h('button', { type: 'button', 'aria-pressed': String(!hidden.has(name)), onclick: () => {
      if (hidden.has(name)) hidden.delete(name);
      else hidden.add(name);
      button.setAttribute('aria-pressed', String(!hidden.has(name)));
      change();
    } }, swatch(colour(name)), name || '(none)');
    return h('li', {}, button);
  }));
}
