// Light and dark: follows the system until the reader chooses; the choice is remembered where the browser allows.

export type ThemeChoice = 'system' | 'light' | 'dark';
const kKey = 'rooflm-theme';
const listeners = new Set<() => void>();
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
  for (const listener of listeners) listener();
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

export function onTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The value of a colour variable of the style sheet in the theme that is shown. */
export const token = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

system.addEventListener('change', apply);
apply();
