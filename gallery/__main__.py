"""python -m gallery [--out FOLDER] [--only TEXT] [--sweep]: trace known architectures and write the site."""

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
    """Write the gallery; returns 0, or 1 where nothing could be shown."""
    asked = argparse.ArgumentParser(prog="python -m gallery", description=__doc__)
    asked.add_argument("--out", type=Path, default=Path("out/gallery"), help="folder (default: %(default)s)")
    asked.add_argument("--only", default="", help="those whose family or name holds this text")
    asked.add_argument("--sweep", action="store_true", help="add the small models of the sweep's catalogue")
    chosen = asked.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    entries = []
    for one in _catalogue(chosen.sweep):
        if chosen.only.lower() in f"{one.family} {one.name}".lower():
            entries += _shown(chosen.out, one)
            gc.collect()
    print(index(chosen.out, entries))
    return 0 if entries else 1


def _catalogue(sweep: bool) -> Iterable[Any]:
    yield from known()
    if sweep:
        from sweep.catalogue import catalogue

        yield from catalogue()


def _shown(out: Path, one: Any) -> list[Entry]:
    began = time.perf_counter()
    try:
        model, inputs = one.build()
        graph = trace(model, inputs, save="none", meta_value=False, on_error="keep").graph
    except Exception as error:
        print(f"{one.name}: left out, {type(error).__name__}: {str(error).splitlines()[0]}")
        return []
    entry = add(out, one.family, one.name, graph)
    print(f"{one.name}: {entry.facts}, {time.perf_counter() - began:.1f} s", flush=True)
    return [entry]


if __name__ == "__main__":
    raise SystemExit(main())
