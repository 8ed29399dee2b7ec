// The edges of every container: a tensor's way is cut at each border it crosses, and a port joins the parts.
// A level needs nothing but itself to be laid out, and does not change when boxes open or close.
import type { Scene } from "./scene.ts";
import type { Level, LevelEdge, Tree } from "./tree.ts";

/** The level of every container: edges between its children, and ports for what crosses its border. Each is made when
 * it is first asked for, after those around it, which note what goes on inside it. */
export class Levels {
  private readonly known = new Map<number, Level>();
  private readonly pending = new Map<number, Map<number, LevelEdge>>();
  /** By container and side, 0 in and 1 out: the port of a set of tensors. */
  private readonly ports = new Map<number, Map<string, number>>();
  private readonly places: number[] = [];
  private started = false;

  constructor(private readonly tree: () => Tree) {}

  get(container: number): Level {
    const { known } = this;
    if (!this.started) this.startAtCommonContainers();
    const missing: number[] = []; // a list, for a stack of calls may be too small for modules in modules
    for (let n = container; n >= 0 && !known.has(n); n = this.tree().nodes[n].parent) missing.push(n);
    for (const n of missing.reverse()) known.set(n, this.finish(n));
    return known.get(container)!;
  }

  /** The place of a port on its container's border: among the ins, or after them among the outs. */
  placeOf(port: number): number {
    const { holders, firstPort } = this.tree();
    this.get(holders[port - firstPort]);
    return this.places[port - firstPort];
  }

  /** Note every edge in the smallest container that holds both its ends. */
  private startAtCommonContainers(): void {
    this.started = true;
    const { scene, nodes, boxOf } = this.tree();
    const { src, dst } = scene.edges;
    for (let raw = 0; raw < src.length; raw++) {
      let a = boxOf[src[raw]];
      let b = boxOf[dst[raw]];
      if (a < 0 || b < 0) continue;
      if (a === b) {
        if (this.tree().scene.edges.out) this.add(nodes[a].parent, a, a, raw); // a pass feeds the next of its layer
        continue;
      }
      while (nodes[a].depth > nodes[b].depth) a = nodes[a].parent;
      while (nodes[b].depth > nodes[a].depth) b = nodes[b].parent;
      while (nodes[a].parent !== nodes[b].parent) {
        a = nodes[a].parent;
        b = nodes[b].parent;
      }
      this.add(nodes[a].parent, a, b, raw);
    }
  }

  /** The level of a container; notes in the containers among its children what goes on inside them. */
  private finish(container: number): Level {
    const edges = [...(this.pending.get(container)?.values() ?? [])];
    this.pending.delete(container);
    for (const edge of edges) {
      if (this.isContainer(edge.to)) this.enter(edge);
      if (this.isContainer(edge.from)) this.leave(edge);
    }
    const known = (side: number): number[] => [...(this.ports.get(container * 2 + side)?.values() ?? [])];
    const [ins, outs] = [known(0), known(1)];
    [...ins, ...outs].forEach((port, place) => (this.places[port - this.tree().firstPort] = place));
    return { edges, ins, outs };
  }

  private enter(edge: LevelEdge): void {
    const { dst } = this.tree().scene.edges;
    edge.inPort = this.port(edge.to, 0, edge);
    for (const raw of edge.raw) this.add(edge.to, edge.inPort, this.childTowards(edge.to, dst[raw]), raw);
  }

  private leave(edge: LevelEdge): void {
    const { src } = this.tree().scene.edges;
    edge.outPort = this.port(edge.from, 1, edge);
    const seen = new Set<number>(); // a tensor that leaves for two places leaves once
    for (const raw of edge.raw) {
      if (!seen.has(src[raw])) this.add(edge.from, this.childTowards(edge.from, src[raw]), edge.outPort, raw);
      seen.add(src[raw]);
    }
  }

  private isContainer(end: number): boolean {
    return end < this.tree().firstPort && this.tree().nodes[end].children.length > 0;
  }

  private childTowards(container: number, row: number): number {
    let n = this.tree().boxOf[row];
    while (this.tree().nodes[n].parent !== container) n = this.tree().nodes[n].parent;
    return n;
  }

  private add(container: number, from: number, to: number, raw: number): void {
    let edges = this.pending.get(container);
    if (!edges) this.pending.set(container, (edges = new Map()));
    const key = from * 2 ** 26 + to;
    const edge = edges.get(key);
    if (edge) edge.raw.push(raw);
    else edges.set(key, { from, to, raw: [raw], inPort: -1, outPort: -1 });
  }

  private port(container: number, side: 0 | 1, edge: LevelEdge): number {
    const slot = container * 2 + side;
    let known = this.ports.get(slot);
    if (!known) this.ports.set(slot, (known = new Map()));
    const key = tensorsOf(this.tree().scene, edge).join();
    let port = known.get(key);
    if (port === undefined) known.set(key, (port = this.tree().firstPort + this.tree().holders.push(container) - 1));
    return port;
  }
}

/** Rows whose tensors run along an edge, each once. */
export function tensorsOf(scene: Scene, edge: LevelEdge): number[] {
  if (edge.raw.length === 1) return [scene.edges.src[edge.raw[0]]];
  return [...new Set(edge.raw.map((raw) => scene.edges.src[raw]))].sort((a, b) => a - b);
}
