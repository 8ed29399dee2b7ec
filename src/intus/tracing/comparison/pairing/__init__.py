"""Pairs of what belongs together in two passes: module calls, moved elements, regions of operations."""
