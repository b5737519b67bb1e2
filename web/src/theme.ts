// Light and dark: follows the system until the reader chooses; the choice is remembered where the browser allows.

export type ThemeChoice = 'system' | 'light' | 'dark';
const kKey = 'rooflm-theme';
const listeners = new Map<() => void, Element>();
const system = window.matchMedia('(prefers-color-scheme: dark)');

function remembered(): ThemeChoice {
  try {
    const value = localStorage.getItem(kKey);
    return value === 'light' || value === 'dark' ? value : 'system';
  } catch {
    return 'system'; // a browser may refuse storage to pages from disk
  }
}

let chosen: ThemeChoice = remembered();
let printing = false;

function apply(): void {
  const dark = !printing && (chosen === 'dark' || (chosen === 'system' && system.matches));
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  for (const listener of [...listeners.keys()]) listener();
}

export const themeChoice = (): ThemeChoice => chosen;

export function chooseTheme(value: ThemeChoice): void {
  chosen = value;
  try {
    if (value === 'system') localStorage.removeItem(kKey);
    else localStorage.setItem(kKey, value);
  } catch {
    // The choice then lasts as long as the page.
  }
  apply();
}

/** Paper is light, whatever the screen is. */
export function setPrinting(value: boolean): void {
  printing = value;
  apply();
}

/** Calls `listener` whenever the theme changes, until what is returned is called or what `element` stands in is disposed. */
export function onTheme(element: Element, listener: () => void): () => void {
  listeners.set(listener, element);
  return () => listeners.delete(listener);
}

/** Forgets who listens below `root`, which is about to be replaced: a listener holds all of its run. */
export function disposeListeners(root: Element): void {
  for (const [listener, element] of [...listeners]) if (root.contains(element)) listeners.delete(listener);
}

/** The value of a colour variable of the style sheet in the theme that is shown. */
export const token = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

system.addEventListener('change', apply);
apply();
