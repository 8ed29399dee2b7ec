"""Run benchmarks, all or those named: each writes a table of its own into benchmarks/results."""

import sys
from importlib import import_module

NAMES = ("recording", "probing", "scoring", "serving", "pages", "page")

wanted = sys.argv[1:] or NAMES
sys.argv[1:] = []  # a benchmark may read arguments of its own when it is run alone
unknown = [name for name in wanted if name not in NAMES]
if unknown:
    sys.exit(f"There is no benchmark {unknown[0]!r}. Name any of: {', '.join(NAMES)}.")
for name in wanted:
    import_module(f"benchmarks.{name}").main()
