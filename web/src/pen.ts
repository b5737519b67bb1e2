// What pictures on a canvas are drawn with, and the same strokes written down as SVG.

/** The part of a canvas's context that the page's pictures use. */
export type Pen = Pick<CanvasRenderingContext2D, 'fillStyle' | 'strokeStyle' | 'lineWidth' | 'font' | 'textAlign' | 'textBaseline' | 'globalAlpha' | 'fillRect' | 'strokeRect' |
  'fillText' | 'measureText' | 'beginPath' | 'moveTo' | 'lineTo' | 'rect' | 'closePath' | 'fill' | 'stroke' | 'clip' | 'save' | 'restore' | 'setLineDash'>;

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
const short = (...values: readonly number[]): string => values.map((value) => Number(value.toFixed(2))).join(' ');

let lastClip = 0;

/** Writes down what is drawn. Strokes of what a clip leaves out are there, and cut off by it. */
export class SvgPen implements Pen {
  fillStyle: Pen['fillStyle'] = '#000';
  strokeStyle: Pen['strokeStyle'] = '#000';
  lineWidth = 1;
  font = '10px sans-serif';
  textAlign: CanvasTextAlign = 'start';
  textBaseline: CanvasTextBaseline = 'alphabetic';
  globalAlpha = 1;
  private readonly parts: string[] = [];
  private readonly ruler = document.createElement('canvas').getContext('2d')!;
  private path = '';
  private dash = '';
  /** Clips since each save, which its restore ends. */
  private readonly clips: number[] = [];

  /** The elements that were drawn, `down` pixels lower. */
  drawn(down = 0): string { return `<g transform="translate(0 ${down})">${this.parts.join('\n')}</g>`; }

  fillRect(x: number, y: number, width: number, height: number): void { this.box(x, y, width, height, this.filled()); }
  strokeRect(x: number, y: number, width: number, height: number): void { this.box(x, y, width, height, this.stroked()); }

  fillText(text: string, x: number, y: number): void {
    const anchor = this.textAlign === 'right' || this.textAlign === 'end' ? 'end' : this.textAlign === 'center' ? 'middle' : 'start';
    const baseline = this.textBaseline === 'middle' ? 'central' : 'alphabetic';
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" text-anchor="${anchor}" dominant-baseline="${baseline}" style="font:${escaped(this.font)}"${this.filled()}>${escaped(text)}</text>`);
  }

  measureText(text: string): TextMetrics {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  beginPath(): void { this.path = ''; }
  moveTo(x: number, y: number): void { this.path += `M${short(x, y)}`; }
  lineTo(x: number, y: number): void { this.path += `L${short(x, y)}`; }
  rect(x: number, y: number, width: number, height: number): void { this.path += `M${short(x, y)}h${short(width)}v${short(height)}h${short(-width)}z`; }
  closePath(): void { this.path += 'z'; }
  fill(): void { this.parts.push(`<path d="${this.path}"${this.filled()}/>`); }
  stroke(): void { this.parts.push(`<path d="${this.path}"${this.stroked()}/>`); }

  clip(): void {
    const name = `clip-${++lastClip}`;
    this.parts.push(`<clipPath id="${name}"><path d="${this.path}"/></clipPath><g clip-path="url(#${name})">`);
    if (this.clips.length > 0) this.clips[this.clips.length - 1]! += 1;
  }

  save(): void { this.clips.push(0); }
  restore(): void { this.parts.push('</g>'.repeat(this.clips.pop() ?? 0)); }
  setLineDash(lengths: readonly number[]): void { this.dash = lengths.join(' '); }

  private box(x: number, y: number, width: number, height: number, look: string): void {
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"${look}/>`);
  }

  private filled(): string { return ` fill="${escaped(String(this.fillStyle))}"${this.alpha()}`; }

  private stroked(): string {
    return ` fill="none" stroke="${escaped(String(this.strokeStyle))}" stroke-width="${short(this.lineWidth)}"${this.dash !== '' ? ` stroke-dasharray="${this.dash}"` : ''}${this.alpha()}`;
  }

  private alpha(): string { return this.globalAlpha === 1 ? '' : ` opacity="${short(this.globalAlpha)}"`; }
}

/** An SVG with these elements. */
export function svgOf(width: number, height: number, ...parts: readonly string[]): string {
  const size = `width="${short(width)}" height="${short(height)}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${parts.join('')}</svg>`;
}

/** The data address of a PNG with these canvases below one another. */
export function pngAddress(...canvases: readonly HTMLCanvasElement[]): string {
  const whole = document.createElement('canvas');
  whole.width = Math.max(...canvases.map((canvas) => canvas.width));
  whole.height = canvases.reduce((sum, canvas) => sum + canvas.height, 0);
  const pen = whole.getContext('2d')!;
  let y = 0;
  for (const canvas of canvases) {
    pen.drawImage(canvas, 0, y);
    y += canvas.height;
  }
  return whole.toDataURL('image/png');
}
