// Builds four programs into src/intus/_static: the graph (intus.js, intus.css), which saved files, notebook cells and
// widgets contain; its addition for two graphs side by side (sides.js, sides.css); the still pictures (pictures.js), which
// Python runs; and the server's page (index.html, page.js, page.css), which loads the graph. Equal sources give equal
// bytes, so CI rebuilds and compares.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.env.INTUS_WEB_OUT ?? join(here, "..", "src", "intus", "_static");
mkdirSync(out, { recursive: true });

const options = {
  absWorkingDir: here,
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "eof",
  logLevel: "warning",
};
await build({ ...options, entryPoints: { intus: "src/main.ts" }, globalName: "intus" });
await build({ ...options, entryPoints: { sides: "src/graph/view/sides.ts" }, globalName: "intusSides" });
await build({ ...options, entryPoints: { page: "src/page/main.ts" } });
await build({ ...options, entryPoints: { pictures: "src/pictures/main.ts" }, globalName: "intusPictures" });
copyFileSync(join(here, "src", "index.html"), join(out, "index.html"));

/** The size limit of each program in gzipped bytes. */
const programs = [
  { title: "graph", files: ["intus.js", "intus.css"], limit: 47_700 },
  { title: "side by side", files: ["sides.js", "sides.css"], limit: 3_500 },
  { title: "pictures", files: ["pictures.js"], limit: 29_900 },
  { title: "server's page", files: ["page.js", "page.css", "index.html"], limit: 37_000 },
];
for (const { title, files, limit } of programs) {
  const parts = files.map((name) => readFileSync(join(out, name)));
  const [plain, packed] = [parts, parts.map((bytes) => gzipSync(bytes, { level: 9 }))].map((all) => all.reduce((sum, { length }) => sum + length, 0));
  console.log(`${title.padEnd(14)} ${String(plain).padStart(7)} bytes, ${String(packed).padStart(6)} gzipped of ${limit}`);
  if (packed > limit) {
    console.error(`The ${title} is over its budget.`);
    process.exitCode = 1;
  }
}
