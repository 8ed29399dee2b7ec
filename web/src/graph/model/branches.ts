// Decisions: which boxes hold the truth that an `if` asked for, and which edges lead into what only serves it.
import { OUTPUT, type Scene } from "./scene.ts";

export interface Decision {
  kind: string;
  /** True where the condition held, false where not, null where that cannot be told; one for every asking. */
  ways: (boolean | null)[];
}

export interface Decisions {
  byRow: Map<number, Decision>;
  /** Edges of the scene that lead into a branch: where what is computed for the decision alone begins. */
  starts: Set<number>;
}

export function decisions(scene: Scene): Decisions {
  const byRow = new Map<number, Decision>();
  for (const [row, kind, way] of scene.branches ?? []) {
    if (kind === "read") continue;
    const known = byRow.get(row);
    if (known) known.ways.push(way);
    else byRow.set(row, { kind, ways: [way] });
  }
  const starts = new Set<number>();
  if (byRow.size) {
    const { src, dst } = scene.edges;
    const involved = before(scene, [...byRow.keys()]);
    const leads = before(scene, scene.ops.kind.flatMap((kind, row) => (kind === OUTPUT ? [row] : [])));
    for (let edge = 0; edge < src.length; edge++) {
      if (involved[dst[edge]] && !leads[dst[edge]] && leads[src[edge]]) starts.add(edge);
    }
  }
  return { byRow, starts };
}

/** The rows given and all that they were computed from. */
function before(scene: Scene, rows: number[]): Uint8Array {
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

/** "if ✓", "while ✓✓✗": what was decided and which way it went. */
export function decided({ kind, ways }: Decision): string {
  const marks = ways.slice(0, 4).map((way) => WORDS[String(way) as keyof typeof WORDS]);
  return `${kind} ${marks.join("")}${ways.length > 4 ? "…" : ""}`;
}
