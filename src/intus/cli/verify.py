"""``intus verify``: compare saved files with their checksums."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..storage.verify import verify


def add(verbs: Any) -> None:
    """Add the command to the command line."""
    verb = verbs.add_parser(
        "verify",
        help="compare saved traces and activations with their checksums",
        description="Reads every byte of the files and compares each tensor with the checksum that was "
        "written with it. Takes files that Trace.save and collect wrote, and folders that "
        "trace(…, store=…) wrote. The exit code is 1 if anything is damaged or has no checksums.",
    )
    verb.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="a file or a folder of values")
    verb.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    faulty = []
    for path in chosen.paths:
        try:
            found = verify(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from None
        for fault in found.faults:
            print(fault)
        if found.faults:
            faulty.append(str(path))
        else:
            print(f"{path}: {found.tensors:,} tensors ({found.nbytes:,} B) as they were written")
    if faulty:
        raise InputError(f"{len(faulty)} of {len(chosen.paths)} not verified: {', '.join(faulty)}.")
    return 0
