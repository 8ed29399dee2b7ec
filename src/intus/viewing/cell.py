"""What a notebook's cell shows: the page in a frame of its own, light or dark as the notebook is."""

from __future__ import annotations

from html import escape

# A page in a frame is asked to prefer the color-scheme that the frame has where it stands, across origins too
# (w3c/csswg-drafts, issues 7213 and 7493). So the style sets it by what notebooks say of themselves:
# JupyterLab and nbconvert, VS Code, Colab. A change is followed, and no script reaches across. A color-scheme
# that the notebook sets is inherited. Where nothing is said, or handed on by the browser, the system decides.
_STYLE = """\
[data-jp-theme-light=true] .intus-cell,\
[data-vscode-theme-kind] .intus-cell,\
html[theme=light] .intus-cell{color-scheme:light}\
[data-jp-theme-light=false] .intus-cell,\
[data-vscode-theme-kind]:not([data-vscode-theme-kind*=light]) .intus-cell,\
html[theme=dark] .intus-cell{color-scheme:dark}"""

_UNTRUSTED = "A graph, not shown because this notebook is not trusted: trust it, or run this cell."


def cell(page: str, *, title: str, height: int) -> str:
    """The page as HTML for a cell, ``height`` pixels high.

    An iframe keeps the page's styles and scripts away from the notebook's, and the sandbox keeps the
    notebook's cookies away from the page. Jupyter takes it out of a notebook that is not trusted; the words
    in it, which no browser shows, remain.
    """
    return (
        f"<style>{_STYLE}</style>"
        f'<iframe class="intus-cell" srcdoc="{escape(page)}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{height}px;border:0;border-radius:8px" '
        f'title="{escape(title)}">{_UNTRUSTED}</iframe>'
    )
