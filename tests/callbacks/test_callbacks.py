"""The training loops of others: epochs, modes, and nothing left on the model."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from intus import callbacks
from intus.callbacks.probe_callback import ProbeCallback
from intus.core.errors import InputError

SET = (torch.randn(6, 4), {"sign": [0, 1, 0, 1, 0, 1]})


def test_importing_it_loads_no_framework():
    code = (
        "import sys, intus.callbacks\n"
        "assert not {'torch', 'transformers', 'lightning'} & set(sys.modules)\n"
        "assert dir(intus.callbacks) == ['LightningProbe', 'TrainerProbe']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="KerasProbe"):
        _ = callbacks.KerasProbe


def test_a_training_is_watched_from_its_begin_to_its_end(unused_tcp_port_number):
    model, one = nn.Linear(4, 2), ProbeCallback()
    one.prepare("127.0.0.1", unused_tcp_port_number, {"probe_set": SET})
    one.at(3)  # before it begins
    one.begin(model, 2)
    assert (one.watch.epoch, one.watch.operations) == (2, ("",))
    one.at(3)
    assert one.watch.epoch == 3
    first = one.watch
    one.begin(model, 0)  # the last one broke off
    assert one.watch is not first
    one.finish()
    one.finish()
    assert one.watch is None
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_a_misspelt_option_is_said_when_it_is_written():
    with pytest.raises(InputError, match=r"no option 'probeset'\. Did you mean 'probe_set'"):
        ProbeCallback().prepare("127.0.0.1", 1, {"probeset": SET})


def test_the_trainers_callback_is_one():
    from transformers import TrainerCallback, TrainerControl, TrainerState

    model, one = nn.Linear(4, 2), callbacks.TrainerProbe(port=9, probe_set=SET)
    assert isinstance(one, TrainerCallback)
    state, control = TrainerState(), TrainerControl()
    state.is_world_process_zero = False
    one.on_train_begin(None, state, control, model=model)
    assert one.watch is None
    state.is_world_process_zero, state.epoch = True, 1.9999
    one.on_train_begin(None, state, control, model=model)
    assert one.watch.epoch == 2
    state.epoch = 3.0
    one.on_epoch_begin(None, state, control, model=model)
    assert one.watch.epoch == 3
    one.on_train_end(None, state, control, model=model)
    assert one.watch is None
