"""Make a notebook widget: the graph with a selection that the page and Python share."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.errors import AddressError, did_you_mean, require
from ..core.graph import Graph
from .html import content, packed, packed_assets

if TYPE_CHECKING:
    from .html import View

# A shadow root isolates the page's style from the notebook's. All widgets of a notebook share one program.
_MODULE = """
const unpack = (text) => {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream);
};
const load = async (text) => {
  const [style, script] = (await unpack(text).text()).split("\\0");
  const source = new Blob([script, "\\nexport default intus;"], { type: "text/javascript" });
  const url = URL.createObjectURL(source);
  const program = (await import(url)).default;
  URL.revokeObjectURL(url);
  const inShadow = (_, given) => `:host${given ? `(${given})` : ""}`;
  return { style: style.replaceAll(/:root(\\[[^\\]]*\\])?/g, inShadow), program, script };
};
// Follow the notebook's theme: JupyterLab, VS Code and Colab have attributes for it, others a color-scheme.
const follow = (host) => {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  const scheme = getComputedStyle(host.parentElement ?? document.body).colorScheme;
  let dark = /^(dark|light)$/.test(scheme) ? scheme === "dark" : null;
  const colab = document.documentElement.getAttribute("theme");
  if (colab) dark = colab === "dark";
  if (vscodeThemeKind) dark = !vscodeThemeKind.includes("light");
  if (jpThemeLight) dark = jpThemeLight === "false";
  if (dark === null) delete host.dataset.theme;
  else host.dataset.theme = dark ? "dark" : "light";
};
async function render({ model, el }) {
  const assets = model.get("_assets");
  const programs = (globalThis.intusPrograms ??= new Map());
  if (!programs.has(assets)) programs.set(assets, load(assets));
  const { style, program, script } = await programs.get(assets);
  const { scene, paint, depth, rolled, details } = await unpack(model.get("_content")).json();
  const root = el.shadowRoot ?? el.attachShadow({ mode: "open" });
  const sheet = document.createElement("style");
  sheet.textContent = style;
  const host = document.createElement("div");
  host.style.height = `${model.get("height")}px`;
  const notice = document.createElement("p");
  notice.style.cssText = "margin: 0; padding: 8px 12px; font: 13px var(--font); color: var(--text)";
  notice.textContent = "The kernel was restarted: run this cell again to share the selection with Python.";
  notice.hidden = true;
  root.replaceChildren(sheet, notice, host);
  follow(el);
  const themes = new MutationObserver(() => follow(el));
  for (const place of [document.body, document.documentElement]) themes.observe(place, { attributes: true });
  const onSelect = (address) => {
    if (address === model.get("selected")) return;
    model.set("selected", address);
    model.save_changes();
  };
  const options = { depth, rolled, details, onSelect, isGuest: true, program: { text: script } };
  const view = new program.GraphView(host, scene, options);
  if (typeof paint === "string") view.paintBuiltIn(paint);
  else if (paint) view.paint({ ...paint, values: new Map(Object.entries(paint.values)) });
  const select = () => view.select(model.get("selected"));
  if (model.get("selected") !== null) select();
  model.on("change:selected", select);
  // Jupyter keeps the widget after its kernel ended, and the graph still works. anywidget binds `this` to
  // its view.
  const listen = function () {
    notice.hidden = this?.model?.comm_live !== false;
  };
  model.on("comm_live_update", listen);
  return () => {
    model.off("change:selected", select);
    model.off("comm_live_update", listen);
    themes.disconnect();
    view.destroy();
  };
}
export default { render };
"""


def widget(view: View) -> Any:
    """Return a widget of what a View shows; see ``View.widget``.

    Raises:
        MissingExtraError: anywidget is not installed.
    """
    require("anywidget", extra="widget", why="to share a selection with a notebook (a trace shows without)")
    return _widget_class()(view)


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class GraphWidget(anywidget.AnyWidget):
        """The graph as a widget; ``selected`` is the address of the selected box, or None."""

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
                details=view.details,
                values=view.values,
            )
            super().__init__(_assets=packed_assets(), _content=packed(shown), height=view.height)

        def select(self, address: str | None) -> None:
            """Select a box and open the modules around it.

            Args:
                address: An address of a module, a module call or an operation, or None to select nothing.

            Raises:
                AddressError: Nothing in the graph has this address.
            """
            self.selected = None if address is None else _page_address(self._graph, address)

        def __repr__(self) -> str:
            return f"<Widget of {self._graph.model}: {self.selected!r} selected>"

    return GraphWidget


def _page_address(graph: Graph, address: str) -> str:
    """Return the name that the page uses for an address: a module call's address or an operation's label."""
    calls = {graph.call_address(call) for call in range(len(graph.calls))} - {""}
    for name in (address, f"{address}:1", address.removesuffix(":1")):
        if name in calls:
            return name
    rows = graph.rows(address)
    if not rows:
        known = sorted(calls | {name for name in graph.names() if name})
        raise AddressError(f"No module or operation is called {address!r}. {did_you_mean(address, known)}")
    return graph.label(rows[0])
