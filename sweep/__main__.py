"""Check the architectures of the catalogue and write docs/sweep.md."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from . import environment

_ROOT = Path(__file__).parents[1]


def main() -> None:
    """Parse the arguments, check the architectures and write the table."""
    parser = argparse.ArgumentParser(prog="sweep", description=__doc__)
    parser.add_argument(
        "--only", metavar="PATTERN", help="a regular expression for 'family name'; writes no table"
    )
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel processes")
    parser.add_argument("--fresh", action="store_true", help="discard the results of earlier runs")
    parser.add_argument("--list", action="store_true", help="only list the catalogue")
    options = parser.parse_args()
    environment.prepare()
    from .catalogue import catalogue
    from .run import run
    from .table import summary, table

    chosen = [one for one in catalogue() if re.search(options.only or "", f"{one.family} {one.name}")]
    if options.list:
        print("\n".join(f"{one.family} {one.name}" for one in chosen))
        return
    results = _ROOT / "out" / "sweep.jsonl"
    if options.fresh:
        results.unlink(missing_ok=True)
    outcomes = run(chosen, results, options.jobs, lambda text: print(text, flush=True))
    print(summary(outcomes))
    if not options.only:
        (_ROOT / "docs" / "sweep.md").write_text(table(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
