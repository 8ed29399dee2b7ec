"""Run benchmarks, all or those named: each writes a table of its own into benchmarks/results."""

import sys
from importlib import import_module

NAMES = ("recording", "probing", "scoring", "serving", "pages", "page")

unknown = [name for name in sys.argv[1:] if name not in NAMES]
if unknown:
    sys.exit(f"There is no benchmark {unknown[0]!r}. Name any of: {', '.join(NAMES)}.")
for name in sys.argv[1:] or NAMES:
    import_module(f"benchmarks.{name}").main()
