"""Notebook cells under the restrictions of hosts that cannot be run here.

VS Code, Colab and Kaggle are imitated from their published sources; tests/notebooks runs JupyterLab,
Notebook, nbconvert and marimo themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page
from waiting import until
from zoo import MODELS

from intus.viewing.html import View

# VS Code inserts outputs by innerHTML into a webview. The policy is the one in microsoft/vscode that the
# setting notebook.experimental.enableCsp turns on (src/vs/workbench/contrib/notebook/browser/view/renderers/
# backLayerWebView.ts); the sandbox is that of contrib/webview/browser/pre/index.html.
_VSCODE = """<!doctype html><html><head>
<meta http-equiv="Content-Security-Policy" content="default-src 'none';
script-src 'self' https://*.vscode-cdn.net 'unsafe-inline' 'unsafe-eval';
style-src 'self' https://*.vscode-cdn.net 'unsafe-inline'; img-src 'self' https: http: data:;
font-src 'self' https:; connect-src https:; child-src https: data:;"></head>
<body data-vscode-theme-kind="vscode-dark"><div class="output"></div>
<script id="given" type="text/plain">{packed}</script><script>
const given = decodeURIComponent(document.getElementById("given").textContent);
document.querySelector(".output").innerHTML = given;
</script></body></html>"""
_VSCODE_SANDBOX = "allow-same-origin allow-pointer-lock allow-scripts allow-downloads allow-forms"

# Colab shows each cell in a frame of another origin (https://*-colab.googleusercontent.com/outputframe.html)
# and makes the frame as high as its content; a cell can access neither the notebook nor other cells.
_COLAB = """<!doctype html><html><body><div id="output-body"></div>
<script id="given" type="text/plain">{packed}</script><script>
const given = decodeURIComponent(document.getElementById("given").textContent);
document.getElementById("output-body").append(document.createRange().createContextualFragment(given));
const report = () => parent.postMessage(document.documentElement.scrollHeight, "*");
new ResizeObserver(report).observe(document.body);
</script></body></html>"""
_COLAB_SANDBOX = "allow-downloads allow-forms allow-popups allow-same-origin allow-scripts allow-modals"

# Kaggle shows a saved notebook as converted by nbconvert, in a sandboxed frame of another origin. This
# imitates the strictest form of that: an opaque origin (no allow-same-origin) and no network.
_KAGGLE = """<!doctype html><html><head>
<meta http-equiv="Content-Security-Policy" content="default-src 'none';
script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"></head><body>
<div class="jp-RenderedHTMLCommon jp-RenderedHTML jp-OutputArea-output">{html}</div></body></html>"""
_KAGGLE_SANDBOX = "allow-scripts allow-downloads allow-popups"


@pytest.fixture(scope="module")
def origins() -> Iterator[tuple[dict[str, str], str, str]]:
    """Serve pages by path on two origins."""
    pages: dict[str, str] = {}

    class Serving(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages[self.path].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Serving)
    Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    yield pages, f"http://127.0.0.1:{port}", f"http://localhost:{port}"
    server.shutdown()
    server.server_close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("host", "sandbox"),
    [(_VSCODE, _VSCODE_SANDBOX), (_COLAB, _COLAB_SANDBOX), (_KAGGLE, _KAGGLE_SANDBOX)],
    ids=["vscode", "colab", "kaggle"],
)
def test_cell_works_under_host_restrictions(
    origins: tuple[dict[str, str], str, str], new_page: Callable[..., Page], host: str, sandbox: str
) -> None:
    pages, notebook_origin, cell_origin = origins
    html = View(MODELS["recurrent"]())._repr_html_()
    packed = "".join(f"%{byte:02x}" for byte in html.encode())
    pages["/cell"] = host.replace("{packed}", packed).replace("{html}", html)
    pages["/notebook"] = (
        f'<!doctype html><title>Notebook</title><iframe id="cell" src="{cell_origin}/cell" '
        f'sandbox="{escape(sandbox)}" style="width:1000px;height:700px;border:0"></iframe>'
        "<script>onmessage = ({ data }) => { cell.style.height = `${data}px`; };</script>"
    )
    page = new_page()
    page.goto(f"{notebook_origin}/notebook")
    graph = page.frame_locator("#cell").frame_locator("iframe[srcdoc]")
    graph.locator(".ig-canvas").wait_for()
    frame = innermost(page)
    view = "document.querySelector('#intus-graph').intusView"
    until(frame, f"{view}.boxes().length > 5")
    assert frame.evaluate("document.querySelector('#intus-graph').getBoundingClientRect().height") == 640
    graph.get_by_placeholder("Find name, type, shape").fill("tanh")
    graph.locator(".ig-found li").first.click()
    assert graph.locator(".ig-panel h2").inner_text().startswith("tanh")
    graph.get_by_label("Color by").select_option("time")
    assert any(box["colour"] for box in frame.evaluate(f"{view}.boxes()"))
    assert (
        640 <= page.evaluate("cell.offsetHeight") <= 720
    )  # a frame that follows its content does not grow without end


# How notebooks declare their theme, from their published sources; the last is what any host may do.
_SET_THEME = {
    "jupyter": "document.body.dataset.jpThemeLight = String(!dark)",
    "vscode": "document.body.dataset.vscodeThemeKind = dark ? 'vscode-dark' : 'vscode-light'",
    "vscode, high contrast": (
        "document.body.dataset.vscodeThemeKind = `vscode-high-contrast${dark ? '' : '-light'}`"
    ),
    "colab": "document.documentElement.setAttribute('theme', dark ? 'dark' : 'light')",
    "color-scheme": "document.documentElement.style.colorScheme = dark ? 'dark' : 'light'",
}


@pytest.fixture(scope="module")
def systems(chromium: Browser, launch: Callable[..., Browser]) -> dict[str, Browser]:
    """Launch browsers on a light and a dark system; what Playwright emulates would apply to every frame."""
    return {"light": chromium, "dark": launch("--blink-settings=preferredColorScheme=0")}


@pytest.mark.long
@pytest.mark.parametrize("system", ["light", "dark"])
@pytest.mark.parametrize("host", _SET_THEME)
def test_cell_follows_the_notebooks_theme(
    systems: dict[str, Browser], tmp_path: Path, host: str, system: str
) -> None:
    path = tmp_path / "notebook.html"
    cell = View(MODELS["recurrent"]())._repr_html_()
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{cell}</body>", encoding="utf-8")
    page = systems[system].new_page(color_scheme="null", viewport={"width": 900, "height": 700})
    page.goto(path.as_uri())
    page.frame_locator("iframe").locator(".ig-canvas").wait_for()
    wait_for_shade(page, system)  # while the notebook declares nothing
    other = "light" if system == "dark" else "dark"
    for shade in (other, system, other):
        page.evaluate(f"(dark) => {{ {_SET_THEME[host]} }}", shade == "dark")
        wait_for_shade(page, shade)
    page.frame_locator("iframe").get_by_role("button", name="Light or dark").click()
    wait_for_shade(page, system)  # the button overrides the notebook
    page.close()


def wait_for_shade(page: Page, shade: str) -> None:
    """Wait until the toolbar and the canvas are both light or both dark."""
    lightness: dict[str, int] = {}
    for _ in range(100):
        frame = page.frame_locator("iframe")
        for part in (".ig-toolbar", ".ig-canvas"):
            picture = Image.open(BytesIO(frame.locator(part).screenshot())).convert("L")
            lightness[part] = int(median(picture.tobytes()))
        if all((grey < 64) if shade == "dark" else (grey > 192) for grey in lightness.values()):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not {shade}: {lightness}")


def innermost(page: Page) -> Any:
    """Return the frame of the graph."""
    return next(frame for frame in page.frames if frame.url == "about:srcdoc")
