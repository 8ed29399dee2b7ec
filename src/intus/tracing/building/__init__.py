"""Build a Graph, and from it a Trace, from what a capture recorded."""
