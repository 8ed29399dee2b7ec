"""Databases and journals of older versions are opened; those of newer versions are refused in a sentence.

The archives in ``older`` are what servers of these commits left when they were killed; older/write.py wrote
them.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from journal_help import check_sums

from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.journal import FORMAT, Journal
from intus.serving.aggregation.service import AggregatorService
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.serving.roles import Roles
from intus.storage.codec import decode_records
from intus.storage.database import Database

sys.path.append(str(Path(__file__).parent / "older"))
from write import HERE, LAYERS, ROWS, request  # type: ignore[import-not-found]

#: The first journal; targets with owners; descriptions of scores; predictions; the last of format 1.
COMMITS = ("d870aaf0", "6f2f3a9d", "b03eaa3b", "94d2652d", "a0d2997a")


def unpack(commit: str, folder: Path) -> None:
    with tarfile.open(HERE / f"{commit}.tar.xz") as archive:
        archive.extractall(folder, filter="data")


def start(folder: Path) -> Roles:
    """Start a server of the present version on what an older one left."""
    frontend = Frontend(Database(folder / "x.db"))
    evaluator = Evaluator(frontend)
    service = AggregatorService(evaluator, Aggregator(), Journal(folder / "x.db.journal"))
    return Roles(service, evaluator, frontend)


def send(roles: Roles, *arguments, **report):
    body = request(*arguments, **report)
    return roles.aggregator.records(*decode_records(body), body)


def test_every_archive_is_tested():
    assert {path.name for path in HERE.glob("*.tar.xz")} == {f"{commit}.tar.xz" for commit in COMMITS}


@pytest.mark.parametrize("commit", COMMITS)
def test_scores_of_older_version_are_shown_and_its_journal_is_scored(tmp_path, commit):
    unpack(commit, tmp_path)
    roles = start(tmp_path)
    assert send(roles, 2, 3, LAYERS[:1], ended=False, sent=1).duplicate  # its number is in the journal
    assert send(roles, 2, 4, LAYERS[1:], ended=True, sent=2).accepted == 1
    roles.aggregator.flush()
    (row,) = roles.aggregator.counts().runs
    check_sums(row)
    assert (row.waiting, row.failed, row.lost) == (0, 0, 0)
    notices = [each["text"] for each in roles.frontend.database.notices() if each["level"] != "info"]
    roles.close()
    with Database(tmp_path / "x.db") as database:
        means = database.points("r", "M").where(score="mean")
        classified = database.points("r", "M").where(score="linear_f1", target="t")
    assert notices == []
    assert sorted(zip(means["epoch"], means["address"], means["n"], strict=True)) == [
        (epoch, layer, 40) for epoch in range(3) for layer in LAYERS
    ]
    expected = ROWS.mean() + means["epoch"]
    np.testing.assert_allclose(means["value"], expected, atol=1e-6)
    assert not [note for note in means["note"] if "incomplete" in note]
    assert len(classified) == 6


@pytest.mark.parametrize("commit", COMMITS[-1:])
@pytest.mark.parametrize("newer", ["database", "journal"])
def test_newer_version_is_refused_in_a_sentence(tmp_path, commit, newer):
    unpack(commit, tmp_path)
    if newer == "database":
        with sqlite3.connect(tmp_path / "x.db") as database:
            database.execute("INSERT INTO schema_version VALUES (99)")
        database.close()
        reason = "is of version 99, but this intus supports versions up to"
    else:
        (tmp_path / "x.db.journal" / "format").write_text(f"{FORMAT + 1}\n")
        reason = f"was written by a newer version of intus, in format {FORMAT + 1}"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.log")}
    command = [sys.executable, "-m", "intus.serving", "--port", "0", "--database", str(tmp_path / "x.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    (line,) = ended.stderr.strip().splitlines()
    assert reason in line
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.log")} == before
