"""The training client, which cannot import the server's messages, sends what these state."""

from __future__ import annotations

import json

import numpy as np
import torch
from torch import nn

import intus
from intus.core.doubt import Doubt
from intus.serving.decoding import builtins, read
from intus.serving.messages import (
    ClearRequest,
    DoubtRequest,
    FlushRequest,
    RecordFacts,
    RecordsEnvelope,
    RemoveRequest,
    RunRequest,
    TargetRequest,
)

MESSAGES = {
    "/run": RunRequest,
    "/doubts": DoubtRequest,
    "/targets": TargetRequest,
    "/flush": FlushRequest,
    "/clear": ClearRequest,
    "/remove": RemoveRequest,
}


def test_requests_have_the_stated_fields_and_no_others(server):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    labels = {"digit": [0, 1, None, 2.5], "tag": np.array(["a", "b", "a", "b"])}
    with intus.probe(model, "127.0.0.1", server.port, probe_set=(torch.randn(4, 4), labels)) as watch:
        watch.run_probe_set()
        for watch.epoch in (1, 2):
            model(torch.randn(5, 4))
        watch._tap.doubt(Doubt("of other rows", True, 0.0, 1.0, ("train",), "0"))
        watch.log(loss=torch.tensor(0.5), accuracy=float("nan"))
    for name, targets in {"words": [["N", None], ["V", "N"]], "half": torch.tensor([True, False])}.items():
        groups, types = [1, "a"], [["x", None], [3, "x"]] if name == "words" else None
        ids = {"groups": groups, "types": types}
        assert intus.register_targets("127.0.0.1", server.port, name=name, targets=targets, **ids)
    assert intus.flush("127.0.0.1", server.port, run="r", timeout=10)
    assert intus.remove("127.0.0.1", server.port, "Sequential")
    assert intus.clear("127.0.0.1", server.port)

    sent = {path: json.loads(body) for path, body in server.got if path in MESSAGES}
    assert set(sent) == set(MESSAGES)
    for path, value in sent.items():
        stated = builtins(read(value, MESSAGES[path]))
        assert {name: stated[name] for name in value} == value, path
    assert any(envelope["epochs"] for _, envelope in server.batches())
    for records, envelope in server.batches():
        stated = builtins(read(envelope, RecordsEnvelope))
        assert {name: stated[name] for name in envelope} == envelope
        for record in records:
            assert read(record, RecordFacts).address == record.address
