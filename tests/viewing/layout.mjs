// What the page's own code makes of things, under Node, a line in and a line out: {scene, depth} gives the frame,
// {paint} where its values stand on their scale and the scale's ticks.
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const web = process.argv[2];
const { buildSync } = createRequire(join(web, "package.json"))("esbuild");
const entry = `
  export { buildTree } from "./model.ts";
  export { figures } from "./facts.ts";
  export { captions, isFold } from "./captions.ts";
  export { Stage } from "./stage.ts";
  export { scaled, shareOf, ticksOf } from "./scale.ts";
`;
const built = buildSync({
  stdin: { contents: entry, resolveDir: join(web, "src", "graph"), loader: "ts" },
  bundle: true,
  write: false,
  format: "esm",
  loader: { ".css": "empty" },
});
const page = await import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].text).toString("base64")}`);
const measure = (text, size, bold) => text.length * size * (bold ? 0.6 : 0.55);

for await (const line of createInterface({ input: process.stdin })) {
  const { scene, depth, paint } = JSON.parse(line);
  if (paint) {
    const shown = page.scaled({ ...paint, values: new Map(Object.entries(paint.values)) });
    console.log(JSON.stringify({ log: shown.log, shares: [...shown.values.values()].map((value) => page.shareOf(shown, value)), ticks: page.ticksOf(shown) }));
    continue;
  }
  const tree = page.buildTree(scene);
  const figures = page.figures(tree);
  const stage = new page.Stage(tree, figures, measure);
  if (depth === null) stage.openReadable(26);
  else stage.openToDepth(depth < 0 ? Infinity : depth);
  // A still picture has no picker: where not all is open, its folds stay closed.
  if (depth !== null && depth >= 0) for (const node of tree.nodes) if (page.isFold(node)) stage.setOpen(node.id, false);
  const { boxes, lines, width, height } = stage.frame();
  const [box, edge] = [
    ({ node, x, y, width, height, open }) => [node.address, ...page.captions(node, figures), x, y, width, height, open],
    ({ route, x, y, label }) => [Array.from(route, (at, i) => at + (i % 2 ? y : x)), label],
  ];
  console.log(JSON.stringify({ width, height, boxes: boxes.map(box), lines: lines.map(edge) }));
}
