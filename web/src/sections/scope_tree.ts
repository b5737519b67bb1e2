// The tree of scopes of a run: phase, then the parts of the scope, then the kind of op, each with its sums.
import type { Ops } from '../ops';

export type Amount = 'device' | 'wall' | 'bytes' | 'flop';

export interface ScopeNode {
  name: string;
  parent: ScopeNode | null;
  children: ScopeNode[];
  depth: number;
  ops: number;
  amounts: Record<Amount, number>;
}

interface TreeOptions {
  /** Put all layers (h.0, h.1, ...) into one node h.*. */
  mergeLayers: boolean;
}

const newNode = (name: string, parent: ScopeNode | null): ScopeNode => ({
  name, parent, children: [], depth: parent ? parent.depth + 1 : 0, ops: 0, amounts: { device: 0, wall: 0, bytes: 0, flop: 0 } });

const orZero = (value: number): number => (Number.isNaN(value) ? 0 : value);

export function scopeTree(ops: Ops, title: string, options: TreeOptions): ScopeNode {
  const root = newNode(title, null);
  const children = new Map<ScopeNode, Map<string, ScopeNode>>();
  const childOf = (node: ScopeNode, name: string): ScopeNode => {
    const known = children.get(node) ?? new Map<string, ScopeNode>();
    children.set(node, known);
    let child = known.get(name);
    if (!child) {
      child = newNode(name, node);
      known.set(name, child);
      node.children.push(child);
    }
    return child;
  };
  const parts = ops.scope.names.map((scope) => {
    const merged = options.mergeLayers ? scope.replace(/(^|\/)h\.\d+(?=\/|$)/g, '$1h.*') : scope;
    return merged.split('/').filter((part) => part !== '');
  });
  for (let i = 0; i < ops.length; ++i) {
    const path = [ops.phase.names[ops.phase.codes[i]!]!, ...parts[ops.scope.codes[i]!]!, ops.kind.names[ops.kind.codes[i]!]!];
    const amounts = { device: orZero(ops.device[i]!), wall: orZero(ops.wall[i]!), bytes: orZero(ops.bytes[i]!), flop: orZero(ops.matmul[i]!) + orZero(ops.elementwise[i]!) };
    let node = root;
    for (let at = -1; at < path.length; ++at) {
      if (at >= 0) node = childOf(node, path[at]!);
      ++node.ops;
      node.amounts.device += amounts.device;
      node.amounts.wall += amounts.wall;
      node.amounts.bytes += amounts.bytes;
      node.amounts.flop += amounts.flop;
    }
  }
  return root;
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
