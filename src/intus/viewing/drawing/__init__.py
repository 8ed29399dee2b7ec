"""The graph as a still picture: the page's boxes and layout, in Python, painted as SVG, PNG, PDF or DOT.

``tree``, ``folds``, ``levels``, ``layout``, ``order``, ``place``, ``route`` and ``stage`` are the page's
modules of the same names (``web/src/graph``), and a test holds the two to the same positions.
"""
