// What the page adds to the graph's way of making elements. Text always becomes a text node, so nothing a server says
// can be markup.

import { el } from "../../ui/dom.ts";

export { el as h };
export type Child = Node | string;

/** The same for SVG. */
export function svg(tag: string, attributes: Record<string, string | number> = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** Set text only where it differs, so that live regions speak and layout moves only on change. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Size a canvas for the screen's pixels and give its cleared context, in CSS pixels. */
export function canvasContext(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.scale(ratio, ratio);
  return context;
}

/** A small line drawing, 16 by 16. */
export function icon(path: string): SVGElement {
  const shape = svg("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": 1.6 });
  shape.setAttribute("stroke-linecap", "round");
  shape.setAttribute("stroke-linejoin", "round");
  return svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, shape);
}

export const ICONS = {
  play: "M5 3.2v9.6l7.5-4.8z",
  pause: "M5.2 3.2v9.6M10.8 3.2v9.6",
  theme: "M8 2.2a5.8 5.8 0 1 0 0 11.6zM8 2.2a5.8 5.8 0 0 1 0 11.6",
  download: "M8 2.5v7.5M4.8 7 8 10.2 11.2 7M3 13.2h10",
  copy: "M6 5.5h7v8H6zM3 10.5v-8h7",
};

/** A native select that rebuilds its options only when they changed. */
export class Picker {
  readonly root: HTMLLabelElement;
  readonly select: HTMLSelectElement;
  private built = "";

  constructor(label: string, name: string, onpick: (value: string) => void) {
    this.select = el("select", { name, "aria-label": label, change: () => onpick(this.select.value) });
    this.root = el("label", { class: "picker" }, el("span", {}, label), this.select);
  }

  /** Options by group; a group with no label stands at the top level. */
  update(groups: { label: string; options: { value: string; label: string }[] }[], value: string): void {
    const signature = JSON.stringify(groups);
    if (signature !== this.built) {
      this.built = signature;
      this.select.replaceChildren(...groups.flatMap(({ label, options }) => {
        const items = options.map((o) => el("option", { value: o.value }, o.label));
        return label ? [el("optgroup", { label }, ...items)] : items;
      }));
    }
    this.select.value = value;
  }
}
