"""Callbacks of training loops: epochs, modes, and removal of the probe."""

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


def test_import_loads_no_framework():
    code = (
        "import sys, intus.callbacks\n"
        "assert not {'torch', 'transformers', 'lightning'} & set(sys.modules)\n"
        "assert dir(intus.callbacks) == ['Keras', 'LightningProbe', 'TrainerProbe']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="KerasProbe"):
        _ = callbacks.KerasProbe


def test_probe_lives_from_begin_to_finish(unused_tcp_port_number):
    model, callback = nn.Linear(4, 2), ProbeCallback()
    callback.prepare("127.0.0.1", unused_tcp_port_number, {"probe_set": SET})
    callback.at(3)  # ignored before the training
    callback.begin(model, 2)
    assert (callback.watch.epoch, callback.watch.operations) == (2, ("",))
    callback.at(2)
    assert callback.watch.epoch == 3
    assert callback.watch.status()["recorded"] == 0
    first = callback.watch
    callback.begin(model, 0)  # the last training was interrupted
    assert callback.watch is not first
    callback.at(0)  # runs the probe set on the untrained model, as epoch 0
    assert (callback.watch.epoch, callback.watch.status()["recorded"]) == (1, 1)
    callback.finish()
    callback.finish()
    assert callback.watch is None
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_end_waits_for_scores_only_if_wanted(monkeypatch, unused_tcp_port_number):
    waited = []
    monkeypatch.setattr("intus.monitoring.handle.Probe.flush", lambda watch: waited.append(watch.run))
    for wait in (False, True):
        callback = ProbeCallback()
        callback.prepare("127.0.0.1", unused_tcp_port_number, {}, wait=wait)
        callback.begin(nn.Linear(4, 2), 0)
        run = callback.watch.run
        callback.finish()
        assert waited == [run] * wait


def test_misspelled_option_is_refused():
    with pytest.raises(InputError, match=r"no option 'probeset'\. Did you mean 'probe_set'"):
        ProbeCallback().prepare("127.0.0.1", 1, {"probeset": SET})


def test_trainer_probe_is_trainer_callback():
    from transformers import TrainerCallback, TrainerControl, TrainerState

    model, callback = nn.Linear(4, 2), callbacks.TrainerProbe(port=9, probe_set=SET)
    assert isinstance(callback, TrainerCallback)
    state, control = TrainerState(), TrainerControl()
    state.is_world_process_zero = False
    callback.on_train_begin(None, state, control, model=model)
    assert callback.watch is None
    state.is_world_process_zero, state.epoch = True, 1.9999
    callback.on_train_begin(None, state, control, model=model)
    assert callback.watch.epoch == 2
    state.epoch = 3.0
    callback.on_epoch_begin(None, state, control, model=model)
    assert callback.watch.epoch == 4
    callback.on_train_end(None, state, control, model=model)
    assert callback.watch is None
