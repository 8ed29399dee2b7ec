// Decisions: the boxes whose value Python's control flow read, and the edges that begin the computation of a condition.
import { OUTPUT, type Scene } from "./scene.ts";

export interface Decision {
  kind: string;
  /** The outcome of each evaluation: true, false, or null if it is unknown. */
  outcomes: (boolean | null)[];
}

export interface Decisions {
  byRow: Map<number, Decision>;
  /** Edges of the scene where a computation begins that only serves a decision. */
  starts: Set<number>;
}

/** Return the decisions of a scene. */
export function decisions(scene: Scene): Decisions {
  const byRow = new Map<number, Decision>();
  for (const [row, kind, outcome] of scene.branches ?? []) {
    if (kind === "read") continue;
    const decision = byRow.get(row);
    if (decision) decision.outcomes.push(outcome);
    else byRow.set(row, { kind, outcomes: [outcome] });
  }
  const starts = new Set<number>();
  if (byRow.size) {
    const { src, dst } = scene.edges;
    const deciding = ancestors(scene, [...byRow.keys()]);
    const computing = ancestors(scene, scene.ops.kind.flatMap((kind, row) => (kind === OUTPUT ? [row] : [])));
    for (let edge = 0; edge < src.length; edge++) {
      if (deciding[dst[edge]] && !computing[dst[edge]] && computing[src[edge]]) starts.add(edge);
    }
  }
  return { byRow, starts };
}

/** Mark rows and everything that they were computed from. */
function ancestors(scene: Scene, rows: number[]): Uint8Array {
  const seen = new Uint8Array(scene.ops.kind.length);
  const parents = new Map<number, number[]>();
  scene.edges.dst.forEach((dst, edge) => parents.get(dst)?.push(scene.edges.src[edge]) ?? parents.set(dst, [scene.edges.src[edge]]));
  const waiting = rows.slice();
  while (waiting.length) {
    const row = waiting.pop()!;
    if (seen[row]) continue;
    seen[row] = 1;
    waiting.push(...(parents.get(row) ?? []));
  }
  return seen;
}

const WORDS = { true: "✓", false: "✗", null: "?" };

/** Format a decision and its outcomes: "if ✓", "while ✓✓✗". */
export function decided({ kind, outcomes }: Decision): string {
  const marks = outcomes.slice(0, 4).map((outcome) => WORDS[String(outcome) as keyof typeof WORDS]);
  return `${kind} ${marks.join("")}${outcomes.length > 4 ? "…" : ""}`;
}
