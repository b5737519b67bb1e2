// The tree of scopes of a run as the document has it, and its boxes in a picture.
import { numbers, textAt, texts } from '../columns';
import type { Columnar } from '../document';

export type Amount = 'device' | 'wall' | 'bytes' | 'flop';

export interface ScopeNode {
  name: string;
  parent: ScopeNode | null;
  children: ScopeNode[];
  depth: number;
  ops: number;
  amounts: Record<Amount, number>;
}

const kAmounts: Record<Amount, string> = { device: 'device_s', wall: 'wall_s', bytes: 'bytes', flop: 'flop' };

/** The nodes of `part` with their parents and children; nothing when there are none. */
export function scopeTree(part: Columnar): ScopeNode | null {
  const [parents, ops, names] = [numbers(part, 'parent'), numbers(part, 'ops'), texts(part, 'name')];
  const columns = Object.entries(kAmounts).map(([amount, key]) => [amount as Amount, numbers(part, key)] as const);
  const nodes: ScopeNode[] = [];
  for (let i = 0; i < part.length; ++i) {
    const parent = nodes[parents[i]!] ?? null;
    const amounts = Object.fromEntries(columns.map(([amount, values]) => [amount, values[i]! || 0])) as Record<Amount, number>;
    const node: ScopeNode = { name: textAt(names, i), parent, children: [], depth: parent ? parent.depth + 1 : 0, ops: ops[i]!, amounts };
    parent?.children.push(node);
    nodes.push(node);
  }
  return nodes[0] ?? null;
}

export interface Box {
  node: ScopeNode;
  x: number;
  width: number;
  row: number;
}

const kLeastWidth = 0.8; // pixels; what is narrower is not drawn, nor anything below it

/** Boxes of `focus`, all above it and all below it, for a picture `width` pixels wide. */
export function layOut(focus: ScopeNode, amount: Amount, width: number): Box[] {
  const boxes: Box[] = [];
  for (let node = focus.parent; node; node = node.parent) boxes.push({ node, x: 0, width, row: node.depth });
  const place = (node: ScopeNode, x: number, room: number): void => {
    boxes.push({ node, x, width: room, row: node.depth });
    const total = node.amounts[amount];
    if (total <= 0) return;
    let at = x;
    for (const child of node.children) {
      const part = (room * child.amounts[amount]) / total;
      if (part >= kLeastWidth) place(child, at, part);
      at += part;
    }
  };
  place(focus, 0, width);
  return boxes;
}

export function depthOf(node: ScopeNode): number {
  return node.children.reduce((depth, child) => Math.max(depth, depthOf(child)), node.depth);
}

export const pathOf = (node: ScopeNode): string => (node.parent ? `${node.parent.parent ? `${pathOf(node.parent)} / ` : ''}${node.name}` : node.name);
