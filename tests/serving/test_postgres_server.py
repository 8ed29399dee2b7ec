"""A real server with PostgreSQL that is killed and restarted."""

from __future__ import annotations

import json
import urllib.request

import numpy as np
import pytest
from serving_help import record

from intus.serving.run import Server
from intus.storage.codec import encode_records


def ask(server, path, body=None):
    with urllib.request.urlopen(server.page_url + path, body, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.postgres
def test_server_stores_scores_in_postgresql(new_postgres, tmp_path):
    options = {"database": new_postgres(), "journal": tmp_path / "journal", "port": 0, "no_token": True}
    labels = json.dumps({"name": "parity", "targets": [0, 1] * 20}).encode()
    blocks = [np.random.default_rng(epoch).normal(size=(40, 5)).astype(np.float32) for epoch in range(2)]
    requests = [
        encode_records([record(array=block, epoch=epoch)], {"client": "c", "seq": epoch})
        for epoch, block in enumerate(blocks)
    ]
    with Server(**options) as server:
        ask(server, "targets", labels)
        ask(server, "records", requests[0])
        server.process.kill()
    with Server(**options) as server:
        for request in requests:
            ask(server, "records", request)
        ask(server, "flush", b"{}")
        points = ask(server, "api/points?run=r&model=m&score=mean")
        assert np.allclose(points["value"], [block.mean() for block in blocks], rtol=1e-5)
        assert points["n"] == [40, 40]
        f1 = ask(server, "api/points?run=r&model=m&score=linear_f1&target=parity")
        assert f1["epoch"] == [0, 1]
