// Shown before the first run: lines to add to a training script.
import { el } from "../../ui/dom.ts";
import { COPY, icon } from "../../ui/icons.ts";
import type { Part, View } from "../state/view.ts";
import { setText } from "./elements.ts";

/** Return the port that receives records, given the port of the page. With the default ports they differ; with another port one
 * server receives records and serves the page. */
export function probePort(pagePort: string): number {
  return pagePort === "8080" || pagePort === "" ? 8082 : Number(pagePort);
}

/** Return the lines to add to a training script. */
export function snippet(host: string, pagePort: string): string {
  const at = `"${host}", ${probePort(pagePort)}`;
  return [
    "import intus",
    "",
    `watch = intus.probe(model, ${at})`,
    `intus.register_targets(${at}, name="class", targets=labels)  # one per row of the dataset`,
    "...  # your training, unchanged",
    `intus.flush(${at})`,
  ].join("\n");
}

/** Return the command that trains example networks for this server. */
export function examples(pagePort: string): string {
  const port = probePort(pagePort);
  return `intus examples${port === 8082 ? "" : ` --port ${port}`}`;
}

export function firstSteps(): Part {
  const code = snippet(location.hostname, location.port);
  const copy = el("button", { type: "button", class: "toggle" }, icon(COPY), "Copy");
  copy.addEventListener("click", () => {
    void navigator.clipboard?.writeText(code).then(() => setText(copy, "Copied"));
  });
  const root = el(
    "section",
    { class: "panel empty", hidden: true },
    el("h2", {}, "No data received yet"),
    el("p", {}, "Add these lines to a training script. The page updates while the script runs."),
    el("div", { class: "code" }, el("pre", { tabindex: 0 }, el("code", {}, code)), copy),
    el("p", { class: "soft" }, "Without a script, run ", el("code", {}, examples(location.port)), ". It trains three small networks and shows them here."),
  );
  return {
    root,
    update({ state }: View): void {
      root.hidden = !state.loaded || state.runs.length > 0;
    },
  };
}
