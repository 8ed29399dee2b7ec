"""Run all benchmarks or those named on the command line; each writes its tables into benchmarks/results."""

import sys
from importlib import import_module

MODULES = {
    "recording": "benchmarks.recording",
    "probing": "benchmarks.probing",
    "frameworks": "benchmarks.frameworks",
    "statistics": "benchmarks.statistics",
    "scoring": "benchmarks.scoring",
    "inspecting": "benchmarks.inspecting",
    "serving": "benchmarks.serving",
    "pages": "benchmarks.pages.graph_page",
    "page": "benchmarks.pages.server_page",
}

chosen = sys.argv[1:] or list(MODULES)
sys.argv[1:] = []  # a benchmark that runs alone parses its own arguments
unknown = [name for name in chosen if name not in MODULES]
if unknown:
    sys.exit(f"There is no benchmark {unknown[0]!r}. Choose from: {', '.join(MODULES)}.")
for name in chosen:
    import_module(MODULES[name]).main()
