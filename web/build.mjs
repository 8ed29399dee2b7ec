// Builds the page into src/intus/_static, as three programs: the graph's (intus.js, intus.css), which is all that a saved
// file, a notebook and a widget carry; what files of two graphs carry too (sides.js, sides.css); and the server's page
// (index.html, page.js, page.css), which loads the graph's. The same sources give the same bytes, so CI rebuilds and
// compares.
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

/** Bytes that each program may take, packed, as it travels. */
const programs = [
  { title: "graph", files: ["intus.js", "intus.css"], most: 45_000 },
  { title: "side by side", files: ["sides.js", "sides.css"], most: 3_500 },
  { title: "pictures", files: ["pictures.js"], most: 28_000 },
  { title: "server's page", files: ["page.js", "page.css", "index.html"], most: 30_000 },
];
for (const { title, files, most } of programs) {
  const parts = files.map((name) => readFileSync(join(out, name)));
  const [plain, packed] = [parts, parts.map((bytes) => gzipSync(bytes, { level: 9 }))].map((all) => all.reduce((sum, { length }) => sum + length, 0));
  console.log(`${title.padEnd(14)} ${String(plain).padStart(7)} bytes, ${String(packed).padStart(6)} gzipped of ${most}`);
  if (packed > most) {
    console.error(`The ${title} is over its budget.`);
    process.exitCode = 1;
  }
}
