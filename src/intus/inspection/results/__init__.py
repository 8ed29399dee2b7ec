"""The results of an inspection: its table, its store, and comparisons of them."""
