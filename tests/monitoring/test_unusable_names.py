"""Names: what a training refuses is what a server refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from intus import probe, register_targets
from intus.core.errors import InputError
from intus.core.names import is_name
from intus.serving.decoding import read
from intus.serving.messages import ChangeRunRequest, EpochReport

AT = "127.0.0.1", 1


@given(st.text(st.characters(), max_size=6) | st.integers(990, 1010).map("n".__mul__))
@example("\ud800")
@example("\0")
@example("line\n")
def test_server_and_training_refuse_the_same_names(name):
    try:
        read({"run": "r", "name": name}, ChangeRunRequest)
        taken = True
    except InputError:
        taken = False
    assert is_name(name) == taken
    if taken:
        assert read({"run": name, "model": name}, EpochReport).run_key == (name, name)


def set_mode(name):
    with probe(nn.Linear(4, 2), *AT) as watch:
        watch.mode = name


GIVE = {
    "run": lambda name: probe(nn.Linear(4, 2), *AT, run=name),
    "name": lambda name: probe(nn.Linear(4, 2), *AT, name=name),
    "labels": lambda name: probe(nn.Linear(4, 2), *AT, probe_set=(torch.ones(2, 4), {name: [0, 1]})),
    "target": lambda name: register_targets(*AT, name=name, targets=[0, 1]),
    "mode": set_mode,
}


@pytest.mark.parametrize("argument", GIVE)
@pytest.mark.parametrize("name", ["", "a\0b", "\ud800x", "L" * 1001])
def test_name_that_cannot_be_stored_is_refused_before_anything_is_sent(argument, name):
    if (argument, name) == ("mode", ""):
        return  # no mode
    with pytest.raises(InputError, match=r"must be a non-empty string of at most 1,000 characters"):
        GIVE[argument](name)
