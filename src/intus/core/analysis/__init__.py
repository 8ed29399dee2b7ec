"""What follows from a graph alone: layers and loops, totals, walks, and how two graphs correspond."""
