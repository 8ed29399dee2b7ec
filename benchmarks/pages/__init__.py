"""Benchmarks of the pages in Chromium: the graph page beside other tools, and the live page."""
