// The colours of bars: full, thinned out where a pixel is not filled, and dimmed where a search did not find them.
import { colourOf } from '../colours';
import { token } from '../theme';

/** Shades of one colour: full, three for pixels that are filled less and less, and dimmed. */
export const kShades = [1, 0.7, 0.45, 0.25, 0.12] as const;
export const kDimmed = kShades.length - 1;

type Rgb = [number, number, number];

function rgb(colour: string): Rgb {
  const digits = colour.replace('#', '');
  return [0, 2, 4].map((at) => Number.parseInt(digits.slice(at, at + 2), 16) || 0) as Rgb;
}

const mixed = (colour: Rgb, ground: Rgb, share: number): string => `rgb(${colour.map((part, i) => Math.round(part * share + ground[i]! * (1 - share))).join(' ')})`;

/** Relative luminance, as WCAG has it. */
function luminance(colour: Rgb): number {
  const [r, g, b] = colour.map((part) => ((part / 255) <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4)) as Rgb;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export interface Palette {
  /** fills[kShades.length * code + shade] */
  fills: string[];
  /** The shade behind names of ranges, by code. */
  soft: string[];
  /** What is written on a full bar, by code. */
  letters: string[];
}

export function paletteOf(names: readonly string[]): Palette {
  const ground = rgb(token('panel'));
  const colours = names.map((name) => rgb(colourOf(name)));
  const kSoft = 0.4;
  return {
    fills: colours.flatMap((colour) => kShades.map((share) => mixed(colour, ground, share))),
    soft: colours.map((colour) => mixed(colour, ground, kSoft)),
    letters: colours.map((colour) => ((luminance(colour) + 0.05) / 0.05 >= 1.05 / (luminance(colour) + 0.05) ? '#111418' : '#ffffff')),
  };
}
