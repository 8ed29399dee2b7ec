"""Trace known architectures and write the site: python -m gallery [--out FOLDER] [--only TEXT] [--sweep]."""

from __future__ import annotations

import argparse
import gc
import os
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from intus import trace

from .models import known
from .site import Entry, add, index


def main() -> int:
    """Write the gallery; return 0, or 1 if no model could be traced."""
    parser = argparse.ArgumentParser(prog="python -m gallery", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/gallery"), help="folder (default: %(default)s)")
    parser.add_argument("--only", default="", help="only models whose family or name contains this text")
    parser.add_argument("--sweep", action="store_true", help="add the small models of the sweep's catalogue")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    entries = []
    for one in _catalogue(options.sweep):
        if options.only.lower() in f"{one.family} {one.name}".lower():
            entries += _add(options.out, one)
            gc.collect()
    print(index(options.out, entries))
    return 0 if entries else 1


def _catalogue(sweep: bool) -> Iterable[Any]:
    """Yield the architectures to show."""
    yield from known()
    if sweep:
        from sweep.catalogue import catalogue

        yield from catalogue()


def _add(out: Path, one: Any) -> list[Entry]:
    """Trace a model and add it to the gallery; return its entry, or nothing if it cannot be traced."""
    began = time.perf_counter()
    try:
        model, inputs = one.build()
        graph = trace(model, inputs, save="none", meta_value=False, on_error="keep").graph
    except Exception as error:
        print(f"{one.name}: skipped, {type(error).__name__}: {str(error).splitlines()[0]}")
        return []
    entry = add(out, one.family, one.name, graph)
    print(f"{one.name}: {entry.facts}, {time.perf_counter() - began:.1f} s", flush=True)
    return [entry]


if __name__ == "__main__":
    raise SystemExit(main())
