"""Let judges check the traces of architectures, of torch's own test inputs and of random programs.

``models`` checks the architectures of the catalogue (docs/sweep.md), ``ops`` and ``modules`` torch's own test
inputs (docs/torch-inputs.md), ``programs`` random programs with views and writes, ``opinions`` lets autograd,
forward hooks, Hugging Face and torch's FLOP counter judge the catalogue. Each also writes docs/proof.md.
"""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path

from . import environment

_ROOT = Path(__file__).parents[1]
_ENDINGS = {2: "nd", 3: "rd"}


def main() -> None:
    """Parse the arguments, run the checks and write the tables."""
    parser = argparse.ArgumentParser(
        prog="sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="models",
        choices=["models", "ops", "modules", "programs", "opinions"],
        help="what to check; default: models",
    )
    parser.add_argument(
        "--only", metavar="PATTERN", help="a regular expression for 'family name'; writes no table"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="check only one of N; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel processes")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, metavar="N", help="start nothing after N minutes"
    )
    parser.add_argument(
        "--failed",
        action="store_true",
        help="check again only what failed with other sources; the page says how many results were kept",
    )
    parser.add_argument("--fresh", action="store_true", help="discard the results of earlier runs")
    parser.add_argument("--list", action="store_true", help="only list what would be checked")
    options = parser.parse_args()
    environment.prepare()
    from .kinds import kinds
    from .run import run

    kind = kinds()[options.what]
    chosen = [one for one in kind.subjects() if re.search(options.only or "", f"{one.family} {one.name}")]
    total, chosen = len(chosen), chosen[:: options.every]
    if options.list:
        print("\n".join(f"{one.family} {one.name}" for one in chosen))
        return
    results = _ROOT / "out" / f"sweep-{options.what}.jsonl"
    if options.fresh:
        results.unlink(missing_ok=True)
    outcomes, others = run(
        chosen,
        results,
        options.jobs,
        lambda text: print(text, flush=True),
        kind.kind,
        minutes=options.minutes,
        only_failed=options.failed,
    )
    print(kind.summary(outcomes))
    if not options.only:
        kind.write(_ROOT / "docs", outcomes, _extent(len(outcomes), total, options.every, others))


def _extent(checked: int, total: int, every: int, others: int) -> str:
    """Return what a reader must know about how much was checked; empty if everything was, with one state."""
    text = ""
    if checked < total:
        how = (
            f"every {every}{_ENDINGS.get(every, 'th')}"
            if checked == -(-total // every)
            else "as many as the time allowed"
        )
        text += f" {checked:,} of {total:,} were checked ({how})."
    if others:
        text += f" {others:,} results are of an earlier state of the sources."
    return text


if __name__ == "__main__":
    main()
