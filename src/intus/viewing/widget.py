"""A widget for notebooks: the graph with a selection that the page and Python share."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.errors import AddressError, did_you_mean, require
from ..core.graph import Graph
from .html import content, packed, packed_assets

if TYPE_CHECKING:
    from .html import View

# The page stands in a shadow root, so that its style and the notebook's keep to themselves; its program is
# one for all widgets of a notebook.
_MODULE = """
const unpack = async (text) => {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
};
const load = async (text) => {
  const { style, script } = await unpack(text);
  const source = new Blob([script, "\\nexport default intus;"], { type: "text/javascript" });
  const url = URL.createObjectURL(source);
  const program = (await import(url)).default;
  URL.revokeObjectURL(url);
  const inShadow = (_, given) => `:host${given ? `(${given})` : ""}`;
  return { style: style.replaceAll(/:root(\\[[^\\]]*\\])?/g, inShadow), program };
};
const follow = (host) => {
  const light = document.body.dataset.jpThemeLight;
  if (light !== undefined) host.dataset.theme = light === "true" ? "light" : "dark";
};
async function render({ model, el }) {
  const assets = model.get("_assets");
  const known = (globalThis.intusPrograms ??= new Map());
  if (!known.has(assets)) known.set(assets, load(assets));
  const { style, program } = await known.get(assets);
  const { scene, paint, depth } = await unpack(model.get("_content"));
  const root = el.attachShadow({ mode: "open" });
  const sheet = document.createElement("style");
  sheet.textContent = style;
  const host = document.createElement("div");
  host.style.height = `${model.get("height")}px`;
  root.append(sheet, host);
  follow(el);
  const themes = new MutationObserver(() => follow(el));
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  const onSelect = (address) => {
    if (address === model.get("selected")) return;
    model.set("selected", address);
    model.save_changes();
  };
  const view = new program.GraphView(host, scene, { depth, onSelect });
  if (typeof paint === "string") view.paintBuiltIn(paint);
  else if (paint) view.paint({ ...paint, values: new Map(Object.entries(paint.values)) });
  const select = () => view.select(model.get("selected"));
  if (model.get("selected") !== null) select();
  model.on("change:selected", select);
  return () => {
    model.off("change:selected", select);
    themes.disconnect();
    view.destroy();
  };
}
export default { render };
"""


def widget(view: View) -> Any:
    """A widget of what a view shows. Raises MissingExtraError where anywidget is not installed."""
    require("anywidget", extra="widget", why="to share a selection with a notebook (a trace shows without)")
    return _widget_class()(view)


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class GraphWidget(anywidget.AnyWidget):
        """The graph; ``selected`` is the address of the selected box, None for none."""

        _esm = _MODULE
        _assets = traitlets.Unicode().tag(sync=True)
        _content = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int(640).tag(sync=True)
        selected = traitlets.Unicode(None, allow_none=True).tag(sync=True)

        def __init__(self, view: View) -> None:
            self._graph = view.graph
            shown = content(
                view.graph,
                overlay=view.overlay,
                depth=view.depth,
                rolled=view.rolled,
                values=view.values,
            )
            super().__init__(_assets=packed_assets(), _content=packed(shown), height=view.height)

        def select(self, address: str | None) -> None:
            """Select what answers to an address, opening what is around it; None selects nothing."""
            self.selected = None if address is None else _of_the_page(self._graph, address)

        def __repr__(self) -> str:
            return f"<Widget of {self._graph.model}: {self.selected!r} selected>"

    return GraphWidget


def _of_the_page(graph: Graph, address: str) -> str:
    """The address by which the page knows what the caller named: a module's call, or an operation's label."""
    calls = {graph.call_address(call) for call in range(len(graph.calls))} - {""}
    for name in (address, f"{address}:1", address.removesuffix(":1")):
        if name in calls:
            return name
    rows = graph.rows(address)
    if not rows:
        known = sorted(calls | {name for name in graph.names() if name})
        raise AddressError(f"Nothing answers to {address!r}. {did_you_mean(address, known)}")
    return graph.label(rows[0])
