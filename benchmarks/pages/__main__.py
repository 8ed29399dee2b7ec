"""Measure the graph page: ``python -m benchmarks.pages --only goals`` or ``--only beside``."""

from .graph_page import main

main()
