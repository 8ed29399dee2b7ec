"""Write still pictures of a graph: SVG, PNG, PDF and DOT.

The page's own program (``web/src/pictures``) lays the graph out and returns shapes. It runs in a QuickJS
engine inside this process (``engine``). The writers in this folder put the shapes into files.
"""
