"""A server whose disk fills up, and later has room again."""

from __future__ import annotations

import json
import resource
import time
import urllib.error
import urllib.request

import pytest
import torch
from torch import nn

from intus.monitoring import flush, probe
from intus.serving.run import Server


def read(server, path):
    with urllib.request.urlopen(server.page_url + path, timeout=20) as answer:
        return json.load(answer)


def limit(server, nbytes) -> None:
    """Limit the size of the server's files."""
    if not hasattr(resource, "prlimit"):
        pytest.skip("needs Linux' prlimit")
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (nbytes, hard))


def wait_until(seen, seconds=90.0):
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.long
def test_records_are_stored_once_disk_has_room(tmp_path):
    model = nn.Linear(10, 50)
    with Server(no_token=True, database=tmp_path / "x.db", port=0) as server:
        with probe(model, server.host, server.port, run="r", name="m") as watch:
            for epoch in range(4):
                watch.epoch = epoch
                for _ in range(5):
                    model(torch.randn(200, 10))  # 40 KB each
                    time.sleep(0.01)
                if epoch == 0:
                    assert flush(server.host, server.port)
                    limit(server, 100_000)
            wait_until(lambda: read(server, "api/status")["requests"].get("http_507"))
            assert read(server, "api/runs")["runs"][0]["epochs"][0] == 0  # the server still answers
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{server.page_url}activation_output", b'{"metadata": 1}')
            assert refused.value.code == 400
            refused.value.close()
            limit(server, resource.RLIM_INFINITY)
        assert flush(server.host, server.port)
        status = watch.status()
        assert (status["sent"], status["dropped"], status["failed"]) == (20, 0, 0)
        points = read(server, "api/points?run=r&model=m&score=mean")
        assert (points["epoch"], points["n"]) == ([0, 1, 2, 3], [1000] * 4)
        assert set(points["note"]) == {""}
        assert not [line for line in server.log if "Traceback" in line]
