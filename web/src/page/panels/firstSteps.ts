// Before the first run: the lines to paste into a training script.

import { h, icon, ICONS, setText } from "./elements.ts";
import type { Part, View } from "../state/view.ts";

/** The port a probe sends to, from the page's own: 8080 is one of three, any other stands for all. Pure. */
export function probePort(pagePort: string): number {
  return pagePort === "8080" || pagePort === "" ? 8082 : Number(pagePort);
}

/** The script's lines for this server. Pure. */
export function snippet(host: string, pagePort: string): string {
  const at = `"${host}", ${probePort(pagePort)}`;
  return [
    "import intus",
    "",
    `watch = intus.probe(model, ${at})`,
    `intus.register_targets(${at}, name="class", targets=labels)`,
    "for watch.epoch in range(epochs):",
    "    for rows in batches:",
    "        watch.items = rows  # the numbers of these rows among labels",
    "        ...                 # your training step",
    `intus.flush(${at})`,
  ].join("\n");
}

/** The command that trains something for this server. Pure. */
export function examples(pagePort: string): string {
  const port = probePort(pagePort);
  return `intus examples${port === 8082 ? "" : ` --port ${port}`}`;
}

export function empty(): Part {
  const code = snippet(location.hostname, location.port);
  const copy = h("button", { type: "button", class: "toggle" }, icon(ICONS.copy), "Copy");
  copy.addEventListener("click", () => {
    void navigator.clipboard?.writeText(code).then(() => setText(copy, "Copied"));
  });
  const root = h(
    "section",
    { class: "panel empty", hidden: true },
    h("h2", {}, "Nothing has been sent yet"),
    h("p", {}, "Add these lines to a training script. The page fills while it runs; there is nothing to reload."),
    h("div", { class: "code" }, h("pre", { tabindex: 0 }, h("code", {}, code)), copy),
    h("p", { class: "soft" }, "No script at hand? ", h("code", {}, examples(location.port)), " trains three small networks that fill this page."),
  );
  return {
    root,
    update({ state }: View): void {
      root.hidden = !state.loaded || state.runs.length > 0;
    },
  };
}
