"""Run all benchmarks or those named on the command line; each writes its tables into benchmarks/results."""

import sys
from importlib import import_module

NAMES = ("recording", "probing", "scoring", "serving", "pages", "page")

chosen = sys.argv[1:] or NAMES
sys.argv[1:] = []  # a benchmark that runs alone parses its own arguments
unknown = [name for name in chosen if name not in NAMES]
if unknown:
    sys.exit(f"There is no benchmark {unknown[0]!r}. Choose from: {', '.join(NAMES)}.")
for name in chosen:
    import_module(f"benchmarks.{name}").main()
