"""A client of a server whose database is deleted while it runs."""

from __future__ import annotations

import time

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
