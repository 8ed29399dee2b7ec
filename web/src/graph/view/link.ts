// Links: the open boxes, the selection and whether the graph is rolled, as text for the address bar.
import { queryOf } from "../../ui/hash.ts";
import type { LayoutView } from "../layout/layoutView.ts";
import { isFold } from "../model/captions.ts";
import { depthName, depthNamed } from "../model/depths.ts";
import type { Details } from "../model/details.ts";
import type { Tree, TreeNode } from "../model/tree.ts";

/** What a link describes. */
export interface Place {
  /** The name of the selected box, "" for none. */
  at: string;
  rolled: boolean;
  details: Details;
  /** The depth down to which everything is open; null if the open boxes match no depth. */
  depth: number | null;
  /** The names of open boxes, and of folds with the member that each shows. */
  open: string[];
  picks: [fold: string, pick: number | "all"][];
}

const MOST = 300; // names in a link; with more open boxes only the selection is named

/** Return the name of a box in links; a group is named after its first member. */
export const nameOf = ({ nodes }: Tree, node: TreeNode): string => (node.kind === "group" ? `~${nodes[node.children[0]].address}` : node.address);

/** Return the current place. */
export function placeOf(tree: Tree, layoutView: LayoutView, selected: number, rolled: boolean): Place {
  const open = [...layoutView.open].filter((id) => id > 0).map((id) => tree.nodes[id]);
  const picks = open.filter(isFold).map((node): [string, number | "all"] => [nameOf(tree, node), layoutView.pickOf(node.id)]);
  return {
    ...{ at: nameAt(tree, selected), rolled, details: tree.details, depth: layoutView.depth },
    open: open.map((node) => nameOf(tree, node)),
    picks: picks.filter(([, pick]) => pick !== 0),
  };
}

const nameAt = (tree: Tree, id: number): string => (id > 0 ? nameOf(tree, tree.nodes[id]) : "");

/** Return the current place as a URL hash; with very many open boxes it names only the selection. */
export function hashOf(tree: Tree, layoutView: LayoutView, selected: number, rolled: boolean): string {
  const query = new URLSearchParams();
  const { depth } = layoutView;
  if (selected > 0) query.set("at", nameAt(tree, selected));
  if (rolled) query.set("rolled", "1");
  if (tree.details !== "names") query.set("details", tree.details);
  if (depth !== null) query.set("depth", depthName(depth));
  else if (layoutView.open.size <= MOST) {
    const { open, picks } = placeOf(tree, layoutView, selected, rolled);
    for (const name of open) query.append("open", name);
    for (const [fold, pick] of picks) query.append("pick", `${pick} ${fold}`);
  }
  return `#${query}`;
}

/** Return the place of a URL hash; null if it has none. */
export function fromHash(hash: string): Partial<Place> | null {
  const query = queryOf(hash);
  if (!["at", "open", "depth"].some((name) => query.has(name))) return null;
  const picks = query.getAll("pick").map((text): [string, number | "all"] => {
    const [pick, ...fold] = text.split(" ");
    return [fold.join(" "), pick === "all" ? "all" : Number.parseInt(pick, 10) || 0];
  });
  return {
    at: query.get("at") ?? "",
    rolled: query.has("rolled"),
    details: detailsNamed(query.get("details")),
    ...(query.has("depth") ? { depth: depthNamed(query.get("depth")!) } : {}),
    ...(query.has("open") ? { open: query.getAll("open").filter(Boolean), picks } : {}),
  };
}

/** Return the details of a name in a link. */
const detailsNamed = (name: string | null): Details => (name === "parameters" ? name : name ? "full" : "names");

/** Open the boxes of a place; unknown names are ignored. */
export function openPlace(tree: Tree, layoutView: LayoutView, place: Partial<Place>): void {
  if (!place.open) return;
  const byName = new Map(tree.nodes.filter((node) => node.children.length).map((node) => [nameOf(tree, node), node.id]));
  layoutView.openToDepth(0);
  for (const [fold, pick] of place.picks ?? []) if (byName.has(fold)) layoutView.pick(byName.get(fold)!, pick);
  for (const name of place.open) if (byName.has(name)) layoutView.setOpen(byName.get(name)!, true);
}
