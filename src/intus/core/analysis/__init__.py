"""Facts that follow from a graph alone: layers and loops, totals, walks, and pairs of two graphs' rows."""
