// What the address bar remembers: enough to send someone the very view one looks at. Pure.

import type { Choice } from "./state.ts";

const TEXTS = ["run", "model", "score", "target", "kind"] as const;

/** `#run=…&model=…&score=…`; no epoch means the newest. */
export function toHash(choice: Choice): string {
  const query = new URLSearchParams();
  for (const name of TEXTS) if (choice[name]) query.set(name, choice[name]);
  if (choice.address !== null) query.set("address", choice.address);
  if (choice.epoch !== null) query.set("epoch", String(choice.epoch));
  if (choice.filter) query.set("filter", choice.filter);
  for (const key of choice.against) query.append("against", key);
  const text = query.toString();
  return text ? `#${text}` : "";
}

/** The part of a choice that a hash names; anything it cannot read is left out. */
export function fromHash(hash: string): Choice {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  const epoch = Number.parseFloat(query.get("epoch") ?? "");
  const text = (name: string): string => query.get(name) ?? "";
  return {
    run: text("run"),
    model: text("model"),
    score: text("score"),
    target: text("target"),
    kind: text("kind"),
    address: query.get("address"),
    epoch: Number.isFinite(epoch) ? epoch : null,
    filter: text("filter"),
    against: query.getAll("against"),
  };
}
