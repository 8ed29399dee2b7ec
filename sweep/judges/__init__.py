"""Judges that know nothing of how intus works: they use torch alone, and compare."""
