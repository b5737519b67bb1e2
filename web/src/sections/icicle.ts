// The icicle (flame) view of scopes: width is time or bytes; a click or Enter zooms in, Esc zooms out.
import { colourOf } from '../colours';
import { absent, choice, type Child, h } from '../dom';
import { count, percent, plural, quantity } from '../format';
import { type Pen, pngAddress, SvgPen, svgOf } from '../pen';
import { heading, saveButtons, type Sheet } from '../save';
import { onTheme, token } from '../theme';
import { type Amount, type Box, depthOf, layOut, pathOf, type ScopeNode, scopeTree } from './scope_tree';
import type { Section } from './section';

const kRow = 24;
const kTextRoom = 30; // pixels; narrower boxes stay without a name
const kShareRoom = 110; // wider ones say their share too
const kAmounts: readonly (readonly [Amount, string, string])[] = [
  ['device', 'Device time', 's'], ['wall', 'Wall time', 's'], ['bytes', 'Bytes', 'byte'], ['flop', 'FLOP', 'flop']];

class Icicle {
  private readonly canvas = h('canvas', { tabindex: 0, role: 'application', 'aria-label': 'Scopes of the step: arrows move, Enter zooms in, Escape zooms out' });
  private readonly line = h('p', { class: 'status', 'aria-live': 'polite' });
  private readonly path = h('nav', { class: 'path', 'aria-label': 'Scope zoomed to' });
  private root: ScopeNode;
  private focus: ScopeNode;
  private current: ScopeNode;
  private boxes: Box[] = [];
  private amount: Amount;
  readonly element: HTMLElement;

  constructor(private readonly trees: { layers: ScopeNode; merged: ScopeNode }) {
    this.root = this.focus = this.current = trees.layers;
    const amounts = kAmounts.filter(([amount]) => this.root.amounts[amount] > 0);
    this.amount = amounts[0]?.[0] ?? 'device';
    this.canvas.addEventListener('click', (event) => this.zoom(this.at(event)));
    this.canvas.addEventListener('pointermove', (event) => { const box = this.at(event); if (box) this.select(box); this.canvas.style.cursor = box ? 'pointer' : 'default'; });
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    onTheme(this.canvas, () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.element = h('div', { class: 'stack' }, h('div', { class: 'controls' },
      choice('Width', amounts.map(([value, title]) => [value, title] as const), this.amount, (value) => { this.amount = value; this.draw(); }),
      choice('Layers', [['apart', 'Each layer'], ['merged', 'Layers together']] as const, 'apart', (value) => {
        this.root = this.focus = this.current = this.trees[value === 'merged' ? 'merged' : 'layers'];
        this.draw();
      })),
    h('div', { class: 'panel' }, this.path, this.canvas, this.line,
      saveButtons('Scopes', { png: () => pngAddress(this.canvas), svg: () => this.svg(), sheet: () => this.sheet() })));
  }

  private at(event: MouseEvent): ScopeNode | null {
    const [x, row] = [event.offsetX, Math.floor(event.offsetY / kRow)];
    return this.boxes.find((box) => box.row === row && x >= box.x && x < box.x + box.width)?.node ?? null;
  }

  private say(node: ScopeNode): string {
    const unit = kAmounts.find(([amount]) => amount === this.amount)![2];
    const value = node.amounts[this.amount];
    const parent = node.parent ? `, ${percent(value / node.parent.amounts[this.amount])} of ${node.parent.name}` : '';
    return `${pathOf(node)}: ${quantity(value, unit)}, ${percent(value / this.root.amounts[this.amount])} of all${parent}, ${plural(node.ops, 'op')}`;
  }

  private select(node: ScopeNode): void {
    if (node === this.current) return;
    this.current = node;
    this.draw();
  }

  private zoom(node: ScopeNode | null): void {
    if (!node) return;
    this.focus = node;
    this.current = node;
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const node = this.current;
    const siblings = node.parent?.children ?? [node];
    const beside = (step: number): ScopeNode => siblings[(siblings.indexOf(node) + step + siblings.length) % siblings.length]!;
    const moves: Record<string, () => ScopeNode | null | undefined> = {
      ArrowUp: () => node.parent, ArrowDown: () => node.children[0], ArrowLeft: () => beside(-1), ArrowRight: () => beside(1) };
    const move = moves[event.key];
    if (move) {
      event.preventDefault();
      const next = move();
      if (next) this.select(next);
    } else if (event.key === 'Enter') {
      this.zoom(node);
    } else if (event.key === 'Escape' && this.focus.parent) {
      event.stopPropagation();
      this.zoom(this.focus.parent);
    }
  }

  private crumbs(): void {
    const nodes: ScopeNode[] = [];
    for (let node: ScopeNode | null = this.focus; node; node = node.parent) nodes.unshift(node);
    this.path.replaceChildren(...nodes.map((node) => h('button', { type: 'button', class: 'quiet', onclick: () => this.zoom(node) }, node.name)));
  }

  private draw(): void {
    const width = this.canvas.parentElement ? this.canvas.clientWidth : 0;
    if (width === 0) return;
    const rows = depthOf(this.root) + 1;
    const scale = window.devicePixelRatio || 1;
    this.canvas.style.height = `${rows * kRow}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(rows * kRow * scale);
    const pen = this.canvas.getContext('2d')!;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.boxes = layOut(this.focus, this.amount, width);
    this.paint(pen);
    this.line.textContent = this.say(this.current);
    this.crumbs();
  }

  private paint(pen: Pen): void {
    pen.font = `11.5px ${token('sans')}`;
    pen.textBaseline = 'middle';
    const colours = { text: token('text'), quiet: token('sunken') };
    for (const box of this.boxes) this.box(pen, box, colours);
  }

  private svg(): string {
    const pen = new SvgPen();
    this.paint(pen);
    return svgOf(this.canvas.clientWidth, this.canvas.clientHeight, pen.drawn());
  }

  /** Every scope below the one that is zoomed to. */
  private sheet(): Sheet {
    const below = (node: ScopeNode): ScopeNode[] => [node, ...node.children.flatMap(below)];
    return { headings: ['scope', 'ops', ...kAmounts.map(([, title, unit]) => heading(title.toLowerCase(), unit))],
             rows: below(this.focus).map((node) => [pathOf(node), node.ops, ...kAmounts.map(([amount]) => node.amounts[amount])]) };
  }

  private box(pen: Pen, { node, x, width, row }: Box, colours: { text: string; quiet: string }): void {
    const phase = this.phaseOf(node);
    const y = row * kRow;
    pen.globalAlpha = phase ? (node.depth % 2 === 0 ? 0.42 : 0.56) : 1;
    pen.fillStyle = phase ? colourOf(phase) : colours.quiet;
    pen.fillRect(x, y, Math.max(width - 1, 0.6), kRow - 1);
    pen.globalAlpha = 1;
    if (node === this.current) {
      pen.strokeStyle = colours.text;
      pen.lineWidth = 1.5;
      pen.strokeRect(x + 0.75, y + 0.75, Math.max(width - 2.5, 0.5), kRow - 2.5);
    }
    if (width < kTextRoom) return;
    pen.fillStyle = colours.text;
    const share = node.amounts[this.amount] / this.root.amounts[this.amount];
    const text = this.fitting(pen, width > kShareRoom ? `${node.name}  ${percent(share)}` : node.name, width - 9);
    pen.fillText(text, x + 5, y + kRow / 2);
  }

  /** As much of `text` as `room` pixels hold; nothing when that says little. */
  private fitting(pen: Pen, text: string, room: number): string {
    const kLeast = 4;
    const whole = pen.measureText(text).width;
    if (whole <= room) return text;
    const letters = Math.floor((text.length * room) / whole) - 1;
    return letters >= kLeast ? `${text.slice(0, letters)}…` : '';
  }

  private phaseOf(node: ScopeNode): string | null {
    let at: ScopeNode | null = node;
    while (at && at.depth > 1) at = at.parent;
    return at && at.depth === 1 ? at.name : null;
  }
}

export const icicle: Section = {
  id: 'scopes',
  title: 'Scopes',
  lead: 'Phase, scope and kind of op from top to bottom; the width is the amount. Click to zoom in, click a box above or press Esc to zoom out.',
  build: (context): Child[] => {
    if (context.run.ops.length === 0) return [absent('This run has no ops: no step of it was observed.')];
    const { scopes } = context.run;
    const [layers, merged] = [scopeTree(scopes.layers), scopeTree(scopes.merged)];
    if (!layers || !merged) return [absent('There are no sums over the scopes of this run.')];
    if (!kAmounts.some(([amount]) => layers.amounts[amount] > 0)) return [absent(`The ${count(layers.ops)} ops of this run have neither times nor bytes.`)];
    return [new Icicle({ layers, merged }).element];
  },
};
