// What is visible, in words and numbers: for Graphviz, which lays out for itself, and for tests.
import type { LayoutView } from "../graph/layout/layoutView.ts";
import type { Measure } from "../graph/layout/sizes.ts";
import type { PlacedBox } from "../graph/layout/visibleLayout.ts";
import { captions, isBoxed } from "../graph/model/captions.ts";
import { dimensions, totals } from "../graph/model/facts.ts";
import { type Marks, marksOf, shapeOf } from "../graph/model/marks.ts";
import type { LevelEdge, TreeNode } from "../graph/model/tree.ts";
import { paintOf, styleOf, wordsOn } from "../graph/paint/boxes.ts";
import { inkOn } from "../graph/paint/colour.ts";
import type { Picture } from "../graph/paint/picture.ts";
import { visibleBox, type VisibleBox, visibleRoute, type VisibleRoute } from "../graph/paint/visibleBoxes.ts";
import { factsOf } from "./facts.ts";
import { hex, shown } from "./recorder.ts";
import { type PictureTask, still } from "./still.ts";

/** A box, its words made fit to be shown, and its colours as #rrggbb. */
export interface DiagramBox extends VisibleBox {
  id: number;
  /** The box that it stands in, 0 for none. */
  parent: number;
  depth: number;
  title: string;
  subtitle: string;
  facts: string;
  /** A module, or several; anything else is a pill. */
  boxed: boolean;
  fill: string;
  line: string;
  ink: string;
  dashed: boolean;
}

/** An edge from a closed box to another. */
export interface DiagramEdge extends Marks {
  from: number;
  to: number;
  label: string;
}

export interface Diagram {
  title: string;
  boxes: DiagramBox[];
  edges: DiagramEdge[];
  routes: VisibleRoute[];
}

export function diagram(task: PictureTask, measure: Measure): Diagram {
  const { graphModel, picture, boxes, lines, turned } = still(task, measure);
  const routes = lines.map((line) => visibleRoute(picture, line));
  if (turned) for (const route of routes) route.points = route.points.map((_, i, all) => all[i ^ 1]);
  return {
    title: shown(`${task.title}: ${totals(graphModel.tree.scene)}`),
    boxes: boxes.map((box) => boxOf(picture, box)),
    edges: edgesBetween(graphModel.layoutView),
    routes,
  };
}

function boxOf(picture: Picture, box: PlacedBox): DiagramBox {
  const { node, open } = box;
  const { theme } = picture;
  const [title, subtitle] = open ? captions(node, picture.figures) : wordsOn(picture, node);
  const look = styleOf(theme, node);
  const paint = paintOf(picture, node);
  if (paint?.colour) Object.assign(look, { fill: paint.colour, line: paint.colour, ink: inkOn(paint.colour), dashed: false });
  else if (paint) Object.assign(look, { fill: theme.surface, line: theme["line-strong"], dashed: true });
  return {
    ...visibleBox(picture, box),
    ...{ id: node.id, parent: node.parent, depth: node.depth, boxed: isBoxed(node) },
    ...{ title: shown(title), subtitle: shown(subtitle), facts: shown(factsOf(picture, node)) },
    ...{ fill: hex(look.fill), line: hex(look.line), ink: hex(look.ink), dashed: look.dashed },
  };
}

/** The edges between closed boxes, those of several tensors as one. */
function edgesBetween(layoutView: LayoutView): DiagramEdge[] {
  const { tree } = layoutView;
  const { nodes, scene } = tree;
  const { src, dst } = scene.edges;
  const found = new Map<string, LevelEdge>();
  for (let raw = 0; raw < src.length; raw++) {
    const [a, b] = [tree.boxOf[src[raw]], tree.boxOf[dst[raw]]];
    if (a < 0 || b < 0) continue;
    const [from, to] = [seenAs(layoutView, nodes[a]), seenAs(layoutView, nodes[b])];
    if (from.members !== to.members && from.members.some((member, i) => to.members[i] && to.members[i].fold === member.fold && to.members[i].place !== member.place)) continue;
    // Of what stays within one box only a layer's way back to itself is an edge.
    if (from.id === to.id && !(a === b && scene.edges.out && !nodes[from.id].children.length)) continue;
    const key = `${from.id} ${to.id}`;
    const known = found.get(key);
    if (known) known.raw.push(raw);
    else found.set(key, { from: from.id, to: to.id, raw: [raw], inPort: -1, outPort: -1 });
  }
  return [...found.values()].map((edge) => {
    const { out, into, branch } = marksOf(tree, edge);
    return { from: edge.from, to: edge.to, label: shapeOf(tree, edge, dimensions), out, into: shown(into), branch };
  });
}

interface Seen {
  /** The closed box that shows it. */
  id: number;
  /** Folds on the way to it that show one member for all, and the place of the member it is of. */
  members: { fold: number; place: number }[];
}

/** How a box is seen: as itself, as the closed box around it or, in a member of a fold that is not shown, as its like in
 * the one that is. */
function seenAs(layoutView: LayoutView, node: TreeNode): Seen {
  const { nodes, placeOf } = layoutView.tree;
  const way: number[] = [];
  for (let n = node; n.parent >= 0; n = nodes[n.parent]) way.push(placeOf[n.id]);
  const members: Seen["members"] = [];
  let id = 0;
  while (way.length && (id === 0 || layoutView.open.has(id))) {
    const place = way.pop()!;
    const pick = layoutView.pickOf(id);
    if (pick !== "all") members.push({ fold: id, place });
    id = nodes[id].children[pick === "all" ? place : pick];
  }
  return { id, members };
}
