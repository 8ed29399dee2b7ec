"""A client of a server whose database is deleted while it runs."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch
from torch import nn

from intus.monitoring import flush, probe
from intus.serving.run import Server


def test_flush_ends_with_the_reason_of_a_server_that_takes_nothing_until_it_is_mended(tmp_path, caplog):
    """It waited out its time, two minutes by default, though the server knew the reason at once."""
    model, path = nn.Linear(4, 2), tmp_path / "x.db"
    with Server(no_token=True, database=path, port=0) as server:
        with probe(model, server.host, server.port, run="r", name="m") as watch:
            model(torch.ones(20, 4))
            assert flush(server.host, server.port)
            path.rename(tmp_path / "y.db")
            watch.epoch = 1
            model(torch.ones(20, 4))
            began = time.monotonic()
            assert not flush(server.host, server.port, timeout=120)
            assert time.monotonic() - began < 60
            assert "takes nothing now: " in caplog.text
            assert "x.db' was deleted or moved while it was in use" in caplog.text
            (tmp_path / "y.db").rename(path)
            assert flush(server.host, server.port)
        assert watch.status()["dropped"] == 0


_SCRIPT = """
import sys
from pathlib import Path
import torch
from intus import probe
path, model = Path(sys.argv[1]), torch.nn.Linear(4, 2)
with probe(model, to=str(path), structure=False) as watch:
    model(torch.ones(20, 4))
    assert watch.flush()
    path.unlink()
    watch.epoch = 1
    model(torch.ones(20, 4))
    assert not watch.flush()
    print(watch.status()["faults"])
"""


@pytest.mark.long
def test_reason_of_a_private_server_is_logged_once(tmp_path):
    """Its two workers, ``flush`` and the end of the process all have it."""
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "runs.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stderr.count("was deleted or moved while it was in use") == 1
    assert "flush failed" in done.stderr
    assert "before exit: the server" in done.stderr
    assert "was deleted or moved while it was in use" in done.stdout
