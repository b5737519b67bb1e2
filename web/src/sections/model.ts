// The model as a drawing: blocks from top to bottom with what each costs, frames around those that belong together, arrows beside them.
import { colourVariable } from '../colours';
import { type DetailRow, heading, known, row } from '../detail_rows';
import { showDetails } from '../details';
import type { ModelEdge, ModelGraph, ModelNode } from '../document';
import { absent, h } from '../dom';
import { bytes, flop, percent, quantity, seconds } from '../format';
import { keyOf } from '../key';
import type { Context, Section } from './section';

const title = (node: ModelNode): string => `${node.name}${node.times > 1 ? ` × ${node.times}` : ''}`;

/** Whether a node stands in the drawing's frame `index`, itself included. */
const holds = (nodes: readonly ModelNode[], index: number, other: number): boolean => index <= other && other <= nodes[index]!.last;

function detailRows(graph: ModelGraph, index: number): DetailRow[] {
  const { nodes, edges } = graph;
  const node = nodes[index]!;
  const names = (of: readonly ModelEdge[], end: 'from' | 'to'): string =>
    of.map((edge) => `${nodes[edge[end]]!.path}${edge.back ? (end === 'from' ? ' of the layer before' : ' of the next layer') : ''}`).join(', ');
  return known([
    heading('What'), row('block', node.path), row('defined in', node.source), row('layers', node.times > 1 ? String(node.times) : ''),
    row('reads', names(edges.filter((edge) => edge.to === index), 'from')), row('is read by', names(edges.filter((edge) => edge.from === index), 'to')),
    row('share of the time in kernels', percent(node.time_share)),
    ...node.phases.flatMap((phase) => [
      heading(`${phase.phase}, all layers`), row('time in kernels', seconds(phase.time_s)), row('time at the roof', seconds(phase.roof_s)), row('share of the roof', percent(phase.share)),
      row('bound by', phase.bound), row('FLOP', flop(phase.flop)), row('least bytes moved', bytes(phase.bytes)), row('intensity', quantity(phase.intensity, 'FLOP/B'))]),
  ]);
}

/** Shares of the step by phase: a full bar is the whole step. */
function bar(node: ModelNode, whole: number): HTMLElement | null {
  if (node.frame || node.time_share === null || whole <= 0) return null;
  return h('span', { class: 'load', 'aria-hidden': true }, ...node.phases.map((phase) =>
    h('i', { style: `width:${(100 * (phase.time_s ?? 0)) / whole}%;background:${colourVariable(phase.phase)}` })));
}

class Drawing {
  private readonly graph: ModelGraph;
  private readonly whole: number;

  constructor(private readonly context: Context) {
    this.graph = context.run.model;
    this.whole = this.graph.nodes.filter((node) => !node.frame).reduce((sum, node) => sum + (node.time_s ?? 0), 0);
  }

  private opsIn(index: number): number[] {
    const { nodes } = this.graph;
    return nodes.flatMap((node, i) => (!node.frame && holds(nodes, index, i) ? [...this.context.selection.opsOfPart(node.path)] : []));
  }

  private open(index: number): void {
    const node = this.graph.nodes[index]!;
    const name = node.path || title(node);
    this.context.selection.choose(this.opsIn(index), name, this);
    showDetails({ title: name, subtitle: `block of the ${this.context.run.label} run`, rows: detailRows(this.graph, index),
                  links: [['#roofline', 'Its ops on the roofline'], ['#ops', 'Its rows of the table of ops']] });
  }

  private block(node: ModelNode, index: number): HTMLElement {
    const phases = node.phases.filter((phase) => phase.time_s !== null).map((phase) => `${phase.phase} ${seconds(phase.time_s)}`);
    const work = node.bytes !== null ? [flop(node.flop), bytes(node.bytes)] : [];
    return h('button', { type: 'button', class: node.frame ? 'frame-name' : 'block', 'data-path': node.path, style: this.place(node, index), onclick: () => this.open(index) },
             h('strong', {}, title(node)), !node.frame && node.source !== '' && h('code', {}, node.source),
             ...[...phases, ...work, node.frame || node.bound === '' ? '' : `bound by ${node.bound}`].filter((text) => text !== '').map((text) => h('span', {}, text)),
             !node.frame && node.time_share !== null && h('span', { class: 'part' }, percent(node.time_share)), bar(node, this.whole));
  }

  private place(node: ModelNode, index: number): string {
    return `grid-row:${index + 1};--depth:${node.depth}`;
  }

  private frame(node: ModelNode, index: number): HTMLElement {
    return h('i', { class: 'frame', style: `grid-row:${index + 1}/${node.last + 2};--depth:${node.depth}` });
  }

  /** From the line of the name of one block to that of the other, in its lane; between neighbours, a short one. */
  private arrow(edge: ModelEdge): HTMLElement {
    const { nodes } = this.graph;
    if (edge.lane === null) return h('i', { class: 'arrow short', style: `grid-row:${edge.from + 2};--depth:${nodes[edge.from + 1]?.depth ?? 0}` });
    const [low, high] = [Math.min(edge.from, edge.to), Math.max(edge.from, edge.to)];
    const depths = `--from:${nodes[edge.back ? edge.to : edge.from]!.depth};--to:${nodes[edge.back ? edge.from : edge.to]!.depth}`;
    const rows = low === high ? `grid-row:${low + 1}` : `grid-row:${low + 1}/${high + 1}`;
    return h('i', { class: `arrow${edge.back ? ' back' : ''}${low === high ? ' self' : ''}`, style: `${rows};--lane:${edge.lane};${depths}` });
  }

  element(): HTMLElement {
    const { nodes, edges, lanes, back_lanes: backLanes, lacks } = this.graph;
    const drawing = h('div', { class: 'drawing', role: 'group', 'aria-label': 'Blocks of the model', style: `--lanes:${lanes};--back-lanes:${backLanes}` },
      ...nodes.flatMap((node, i) => (node.frame ? [this.frame(node, i)] : [])), ...edges.map((edge) => this.arrow(edge)), ...nodes.map((node, i) => this.block(node, i)));
    const phases = [...new Set(nodes.flatMap((node) => node.phases.map((phase) => phase.phase)))];
    return h('div', { class: 'panel' }, drawing, this.whole > 0 && h('div', {}, keyOf(phases)), ...lacks.map((text) => h('p', { class: 'note' }, text)));
  }
}

export const model: Section = {
  id: 'model',
  title: 'Model',
  lead: 'The program as blocks, with layers folded; figures are summed over layers. Arrows show what the forward pass reads, dashed ones what the next layer reads. A click shows a block’s figures and marks its ops on the roofline and in the tables.',
  build: (context) => {
    if (context.run.model.nodes.length === 0) return [absent('This run has no ops: no step of it was observed.')];
    return [new Drawing(context).element()];
  },
};
