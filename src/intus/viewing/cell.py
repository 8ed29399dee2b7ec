"""Put a page into a notebook cell, in an iframe that follows the notebook's light or dark theme."""

from __future__ import annotations

from html import escape

# A framed page sees the color-scheme of its iframe element as its preferred scheme, even across origins
# (w3c/csswg-drafts, issues 7213 and 7493). So the style sets that property from the attributes by which
# JupyterLab, nbconvert, VS Code and Colab declare their theme. The page follows a change of theme without any
# script that crosses the frame. A notebook that sets color-scheme itself needs no rule, because the iframe
# inherits it. Otherwise, and in browsers that do not pass the scheme on, the system's preference applies.
_STYLE = """\
[data-jp-theme-light=true] .intus-cell,\
[data-vscode-theme-kind] .intus-cell,\
html[theme=light] .intus-cell{color-scheme:light}\
[data-jp-theme-light=false] .intus-cell,\
[data-vscode-theme-kind]:not([data-vscode-theme-kind*=light]) .intus-cell,\
html[theme=dark] .intus-cell{color-scheme:dark}"""

_UNTRUSTED = "Graph not shown because this notebook is not trusted. Trust the notebook or run this cell."


def cell(page: str, *, title: str, height: int) -> str:
    """Return a page as HTML for a notebook cell.

    The iframe isolates the page's styles and scripts from the notebook's. Its sandbox denies the page access
    to the notebook's cookies. In a notebook that is not trusted Jupyter removes the iframe element and keeps
    the text inside it, which says why there is no graph.

    Args:
        page: The page as HTML text.
        title: The accessible name of the frame.
        height: The height of the frame in CSS pixels.
    """
    return (
        f"<style>{_STYLE}</style>"
        f'<iframe class="intus-cell" srcdoc="{escape(page)}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{height}px;border:0;border-radius:8px" '
        f'title="{escape(title)}">{_UNTRUSTED}</iframe>'
    )
