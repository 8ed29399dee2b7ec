// Creates elements. Text is always inserted as a text node, so no name from a model or a server can become markup.

export type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | boolean | number | ((event: never) => void)>;

/** Create an element; function attributes become event listeners, true and false set or omit an attribute. */
export function el<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  return complete(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  return complete(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function complete<T extends Element>(element: T, attributes: Attributes, children: Child[]): T {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}
