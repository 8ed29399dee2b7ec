// The choice as the hash of the address bar, so that the address opens the same view.
import { queryOf } from "../../ui/hash.ts";
import type { Choice } from "./state.ts";

const TEXTS = ["run", "model", "score", "target", "kind", "group"] as const;

/** Return `#run=…&model=…&score=…`; without an epoch the newest is meant. */
export function hashOfChoice(choice: Choice): string {
  const query = new URLSearchParams();
  for (const name of TEXTS) if (choice[name]) query.set(name, choice[name]);
  if (choice.address !== null) query.set("address", choice.address);
  if (choice.epoch !== null) query.set("epoch", String(choice.epoch));
  if (choice.filter) query.set("filter", choice.filter);
  for (const key of choice.against) query.append("against", key);
  const text = query.toString();
  return text ? `#${text}` : "";
}

/** Return the choice that a hash describes; values that cannot be read are ignored. */
export function choiceOfHash(hash: string): Choice {
  const query = queryOf(hash);
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
    group: text("group"),
    against: query.getAll("against"),
  };
}
