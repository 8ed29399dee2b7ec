// Groups, which keep the number of boxes small: one for many inputs or outputs, and one for equal modules in a row (a fold).
import { plus } from "./lists.ts";
import { endNames } from "./naming.ts";
import { OP } from "./scene.ts";
import { type Builder, newNode } from "./tree.ts";

const GROUP_FROM = 7; // the least number of inputs or outputs for a group
const FOLD_FROM = 3; // the least number of equal modules in a row for a fold, and of elements of a sequence for a group

/** Put many inputs, or many outputs, into groups, so that 24 cached keys do not hide the model: one for the elements of each
 * sequence, such as `past_key_values`, and one for the others if they are still many. */
export function groupEnds(builder: Builder, kind: "input" | "output"): void {
  const { nodes, scene } = builder;
  const ends = nodes[0].children.filter((id) => nodes[id].kind === kind);
  if (ends.length < GROUP_FROM) return;
  const names = endNames(scene);
  const sequences = new Map<string, number[]>();
  for (const id of ends) {
    const name = names.get(nodes[id].rows[0])?.match(/^(.+?)\.\d/)?.[1] ?? "";
    sequences.set(name, plus(sequences.get(name), id));
  }
  const others: number[] = [];
  for (const [name, members] of sequences) {
    if (name && members.length >= FOLD_FROM) wrap(builder, members, name, kind);
    else others.push(...members);
  }
  if (others.length >= GROUP_FROM) wrap(builder, others, `${kind}s`, kind);
}

function wrap(builder: Builder, members: number[], title: string, subtitle: string): void {
  const { nodes } = builder;
  const parent = nodes[members[0]].parent;
  const group = newNode(builder, "group", parent, nodes[members[0]].order);
  nodes[parent].children.pop();
  const rest = new Set(members);
  const at = nodes[parent].children.indexOf(members[0]);
  nodes[parent].children = nodes[parent].children.filter((id) => !rest.has(id));
  nodes[parent].children.splice(at, 0, group.id);
  group.children = members;
  group.title = title;
  group.subtitle = subtitle;
  for (const id of members) nodes[id].parent = group.id;
}

/** Put structurally equal modules that follow one another into a fold. */
export function foldRepeats(builder: Builder): void {
  const { nodes } = builder;
  const shape = signatures(builder);
  const last = nodes.length;
  for (let id = 0; id < last; id++) {
    const children = nodes[id].children.slice();
    if (nodes[id].kind === "group") continue;
    for (let start = 0; start < children.length; ) {
      let stop = start + 1;
      while (stop < children.length && shape[children[stop]] === shape[children[start]]) stop++;
      const first = nodes[children[start]];
      const isFoldable = first.kind === "module" && first.children.length > 0;
      const coversAll = start === 0 && stop === children.length && id !== 0;
      if (isFoldable && stop - start >= FOLD_FROM && !coversAll) wrap(builder, children.slice(start, stop), "", "");
      start = stop;
    }
  }
}

/** Return a number per box, equal for boxes with equal class, contents and shapes; the type of a buffer or parameter is its name. */
function signatures({ scene, nodes }: Builder): Int32Array {
  const known = new Map<string, number>();
  const out = new Int32Array(nodes.length);
  const children = nodes.map(() => [] as number[]);
  for (let id = nodes.length - 1; id >= 0; id--) {
    const node = nodes[id];
    const type = node.call >= 0 ? scene.modules[scene.calls.module[node.call]][1] : "";
    const own = `${type}|${node.rows.map((row) => `${scene.ops.kind[row] === OP ? scene.ops.type[row] : ""}:${scene.ops.meta[row]}`).join()}`;
    const key = `${node.kind}|${own}|${children[id].reverse().join()}`;
    let value = known.get(key);
    if (value === undefined) known.set(key, (value = known.size));
    out[id] = value;
    if (node.parent >= 0) children[node.parent].push(value);
  }
  return out;
}
