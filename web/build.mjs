// Builds the one bundle that the saved file, the notebook and the server share: intus.js, intus.css and
// index.html in src/intus/_static. The same sources give the same bytes, so CI rebuilds and compares.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.env.INTUS_WEB_OUT ?? join(here, "..", "src", "intus", "_static");
mkdirSync(out, { recursive: true });

await build({
  absWorkingDir: here,
  entryPoints: { intus: "src/main.ts" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "intus",
  target: "es2022",
  charset: "utf8",
  legalComments: "eof",
  logLevel: "warning",
});
copyFileSync(join(here, "src", "index.html"), join(out, "index.html"));

const most = 60_000; // packed, as it travels
const total = { plain: 0, packed: 0 };
for (const name of ["intus.js", "intus.css", "index.html"]) {
  const bytes = readFileSync(join(out, name));
  const packed = gzipSync(bytes, { level: 9 }).length;
  total.plain += bytes.length;
  total.packed += packed;
  console.log(`${name.padEnd(12)} ${String(bytes.length).padStart(7)} bytes, ${String(packed).padStart(6)} gzipped`);
}
console.log(`${"together".padEnd(12)} ${String(total.plain).padStart(7)} bytes, ${String(total.packed).padStart(6)} gzipped`);
if (total.packed > most) {
  console.error(`The bundle is over its budget of ${most} bytes gzipped.`);
  process.exit(1);
}
