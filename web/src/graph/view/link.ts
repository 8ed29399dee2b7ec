// What is open, chosen and rolled, as text for the address bar: enough to send someone the very view.
import type { LayoutView } from "../layout/layoutView.ts";
import { isFold } from "../model/captions.ts";
import { depthName, depthNamed } from "../model/depths.ts";
import type { Tree, TreeNode } from "../model/tree.ts";

export interface Place {
  at: string;
  rolled: boolean;
  /** The depth down to which all is open, where there is one. */
  depth: number | null;
  /** Names of what is open, and of folds with the member each shows. */
  open: string[];
  picks: [fold: string, pick: number | "all"][];
}

const MOST = 300; // names in a link; beyond, only what is selected

/** A name for every container: a fold is called after its first member. */
export const nameOf = ({ nodes }: Tree, node: TreeNode): string => (node.kind === "group" ? `~${nodes[node.children[0]].address}` : node.address);

export function placeOf(tree: Tree, layoutView: LayoutView, selected: number, rolled: boolean): Place {
  const open = [...layoutView.open].filter((id) => id > 0).map((id) => tree.nodes[id]);
  const picks = open.filter(isFold).map((node): [string, number | "all"] => [nameOf(tree, node), layoutView.pickOf(node.id)]);
  return {
    ...{ at: nameAt(tree, selected), rolled, depth: layoutView.depth },
    open: open.map((node) => nameOf(tree, node)),
    picks: picks.filter(([, pick]) => pick !== 0),
  };
}

const nameAt = (tree: Tree, id: number): string => (id > 0 ? nameOf(tree, tree.nodes[id]) : "");

/** The place in words; where very much is open, names only what is selected. */
export function hashOf(tree: Tree, layoutView: LayoutView, selected: number, rolled: boolean): string {
  const query = new URLSearchParams();
  const { depth } = layoutView;
  if (selected > 0) query.set("at", nameAt(tree, selected));
  if (rolled) query.set("rolled", "1");
  if (depth !== null) query.set("depth", depthName(depth));
  else if (layoutView.open.size <= MOST) {
    const { open, picks } = placeOf(tree, layoutView, selected, rolled);
    for (const name of open) query.append("open", name);
    for (const [fold, pick] of picks) query.append("pick", `${pick} ${fold}`);
  }
  return `#${query}`;
}

/** The place a hash names; null where it names none. */
export function fromHash(hash: string): Partial<Place> | null {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  if (!["at", "open", "depth"].some((name) => query.has(name))) return null;
  const picks = query.getAll("pick").map((text): [string, number | "all"] => {
    const [pick, ...fold] = text.split(" ");
    return [fold.join(" "), pick === "all" ? "all" : Number.parseInt(pick, 10) || 0];
  });
  return {
    at: query.get("at") ?? "",
    rolled: query.has("rolled"),
    ...(query.has("depth") ? { depth: depthNamed(query.get("depth")!) } : {}),
    ...(query.has("open") ? { open: query.getAll("open").filter(Boolean), picks } : {}),
  };
}

/** Open what a place names; names it does not know are passed over. */
export function openPlace(tree: Tree, layoutView: LayoutView, place: Partial<Place>): void {
  if (!place.open) return;
  const byName = new Map(tree.nodes.filter((node) => node.children.length).map((node) => [nameOf(tree, node), node.id]));
  layoutView.openToDepth(0);
  for (const [fold, pick] of place.picks ?? []) if (byName.has(fold)) layoutView.pick(byName.get(fold)!, pick);
  for (const name of place.open) if (byName.has(name)) layoutView.setOpen(byName.get(name)!, true);
}
