"""Still pictures of a graph: SVG, PNG, PDF and DOT.

The page's own program lays a graph out and draws it (``web/src/pictures``), in a QuickJS engine inside this
process (``engine``). What it hands back are shapes; the writers here put them into files.
"""
