"""Run all benchmarks or those named on the command line; each writes its tables into benchmarks/results.

Words after a name that are no names of benchmarks are its arguments: ``serving load --scale 0.1``.
"""

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

chosen: list[list[str]] = [[name] for name in MODULES] if len(sys.argv) == 1 else []
for word in sys.argv[1:]:
    if word in MODULES:
        chosen.append([word])
    elif chosen:
        chosen[-1].append(word)
    else:
        sys.exit(f"There is no benchmark {word!r}. Choose from: {', '.join(MODULES)}.")
for name, *arguments in chosen:
    sys.argv[1:] = arguments
    import_module(MODULES[name]).main()
