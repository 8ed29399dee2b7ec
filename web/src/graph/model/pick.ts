// The level of a fold that shows one of its members for all: what flows from member to member enters and
// leaves where the fold's own tensors do.
import type { Level, LevelEdge } from "./tree.ts";

export function pickedLevel(level: Level, member: number, firstPort: number): Level {
  const isPort = (end: number): boolean => end >= firstPort;
  const others = (port: number, end: "from" | "to"): boolean =>
    level.edges.some((edge) => edge[end === "from" ? "to" : "from"] === port && edge[end] !== member && !isPort(edge[end]));
  // Where the members' own stream comes in and goes out: the first port that serves another member.
  const into = level.ins.find((port) => others(port, "to")) ?? level.ins[0];
  const out = level.outs.find((port) => others(port, "from")) ?? level.outs[0];
  const edges: LevelEdge[] = [];
  const add = (edge: LevelEdge): void => {
    const known = edges.find(({ from, to, inPort, outPort }) => from === edge.from && to === edge.to && inPort === edge.inPort && outPort === edge.outPort);
    if (known) known.raw = [...known.raw, ...edge.raw];
    else edges.push(edge);
  };
  for (const edge of level.edges) {
    if (edge.to === member) {
      if (isPort(edge.from)) add({ ...edge });
      else if (into !== undefined) add({ ...edge, from: into, outPort: -1 });
    } else if (edge.from === member) {
      if (isPort(edge.to)) add({ ...edge });
      else if (out !== undefined) add({ ...edge, to: out, inPort: -1 });
    }
  }
  return { edges, ins: level.ins, outs: level.outs };
}
