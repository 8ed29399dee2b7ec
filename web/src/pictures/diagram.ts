// The visible graph as data, for Graphviz, which makes its own layout, and for tests.
import type { LayoutView } from "../graph/layout/layoutView.ts";
import type { Measure } from "../graph/layout/sizes.ts";
import type { PlacedBox } from "../graph/layout/visibleLayout.ts";
import { captions, isBoxed } from "../graph/model/captions.ts";
import { details } from "../graph/model/details.ts";
import { dimensions, totals } from "../graph/model/facts.ts";
import { type Marks, marksOf, shapeOf } from "../graph/model/marks.ts";
import type { LevelEdge, TreeNode } from "../graph/model/tree.ts";
import { paintOf, styleOf, wordsOn } from "../graph/paint/boxes.ts";
import { inkOn } from "../graph/paint/colour.ts";
import type { Picture } from "../graph/paint/picture.ts";
import { visibleBox, type VisibleBox, visibleRoute, type VisibleRoute } from "../graph/paint/visibleBoxes.ts";
import { factsOf } from "./facts.ts";
import { shown } from "../ui/format.ts";
import { hex } from "./recorder.ts";
import { type PictureTask, still } from "./still.ts";

/** A box with its text, free of control characters, and its colors as #rrggbb. */
export interface DiagramBox extends VisibleBox {
  id: number;
  /** The box around it, 0 for none. */
  parent: number;
  depth: number;
  title: string;
  subtitle: string;
  details: string[];
  facts: string;
  /** Whether it is drawn as a rectangle (modules and groups) rather than as a pill. */
  boxed: boolean;
  fill: string;
  line: string;
  ink: string;
  dashed: boolean;
}

/** An edge between two closed boxes. */
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

/** Return the visible graph as data. */
export function diagram(task: PictureTask, measure: Measure): Diagram {
  const { graphModel, picture, boxes, lines, turned } = still(task, measure);
  const routes = lines.map((line) => visibleRoute(picture, line));
  if (turned) for (const route of routes) route.points = route.points.map((_, i, all) => all[i ^ 1]);
  return {
    title: shown(`${task.title}: ${totals(graphModel.tree.scene).join(" · ")}`),
    boxes: boxes.map((box) => boxOf(picture, box)),
    edges: edgesBetween(graphModel.layoutView),
    routes,
  };
}

function boxOf(picture: Picture, box: PlacedBox): DiagramBox {
  const { node, open } = box;
  const { theme } = picture;
  const [title, subtitle] = open ? captions(node, picture.figures) : wordsOn(picture, node);
  const style = styleOf(theme, node);
  const paint = paintOf(picture, node);
  if (paint?.colour) Object.assign(style, { fill: paint.colour, line: paint.colour, ink: inkOn(paint.colour), dashed: false });
  else if (paint) Object.assign(style, { fill: theme.surface, line: theme["line-strong"], dashed: true });
  return {
    ...visibleBox(picture, box),
    ...{ id: node.id, parent: node.parent, depth: node.depth, boxed: isBoxed(node) },
    ...{ title: shown(title), subtitle: shown(subtitle), details: open ? [] : details(picture.tree, node).map(shown), facts: shown(factsOf(picture, node)) },
    ...{ fill: hex(style.fill), line: hex(style.line), ink: hex(style.ink), dashed: style.dashed },
  };
}

/** Return the edges between closed boxes, with one edge for several tensors. */
function edgesBetween(layoutView: LayoutView): DiagramEdge[] {
  const { tree } = layoutView;
  const { nodes, scene } = tree;
  const { src, dst } = scene.edges;
  const found = new Map<string, LevelEdge>();
  for (let raw = 0; raw < src.length; raw++) {
    const [a, b] = [tree.boxOf[src[raw]], tree.boxOf[dst[raw]]];
    if (a < 0 || b < 0) continue;
    const [from, to] = [shownAs(layoutView, nodes[a]), shownAs(layoutView, nodes[b])];
    if (from.members !== to.members && from.members.some((member, i) => to.members[i] && to.members[i].fold === member.fold && to.members[i].place !== member.place)) continue;
    // An edge within one box is shown only if a rolled layer feeds itself.
    if (from.id === to.id && !(a === b && scene.edges.out && !nodes[from.id].children.length)) continue;
    const key = `${from.id} ${to.id}`;
    const edge = found.get(key);
    if (edge) edge.raw.push(raw);
    else found.set(key, { from: from.id, to: to.id, raw: [raw], inPort: -1, outPort: -1 });
  }
  return [...found.values()].map((edge) => {
    const { out, into, branch } = marksOf(tree, edge);
    return { from: edge.from, to: edge.to, label: shapeOf(tree, edge, dimensions), out, into: shown(into), branch };
  });
}

interface ShownAs {
  /** The closed box that shows it. */
  id: number;
  /** The folds around it that show one member, and the position of the member that contains it. */
  members: { fold: number; place: number }[];
}

/** Return what shows a box: the box itself, the closed box around it or, if a fold shows another member than the one around
 * it, the corresponding box in that member. */
function shownAs(layoutView: LayoutView, node: TreeNode): ShownAs {
  const { nodes, placeOf } = layoutView.tree;
  const path: number[] = [];
  for (let n = node; n.parent >= 0; n = nodes[n.parent]) path.push(placeOf[n.id]);
  const members: ShownAs["members"] = [];
  let id = 0;
  while (path.length && (id === 0 || layoutView.open.has(id))) {
    const place = path.pop()!;
    const pick = layoutView.pickOf(id);
    if (pick !== "all") members.push({ fold: id, place });
    id = nodes[id].children[pick === "all" ? place : pick];
  }
  return { id, members };
}
