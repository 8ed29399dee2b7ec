"""Callbacks of training loops: epochs, modes, and removal of the probe."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace

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
    watch = callback.watch
    callback.finish()
    callback.finish()
    assert callback.watch is watch  # so that a script can read what is missing; before, it was None
    assert watch.status()["epochs"] == "set by the script"
    assert pickle.loads(pickle.dumps(callback)).watch is None  # of a loop that starts processes
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_last_epoch_shows_the_model_at_its_end_and_not_what_the_loop_loads_afterwards(
    kept, unused_tcp_port_number
):
    """The best checkpoint, or an average: before, the last epoch was that model, without a word."""
    model, callback = nn.Linear(4, 2), ProbeCallback()
    callback.prepare("127.0.0.1", unused_tcp_port_number, {"probe_set": SET}, wait=False)
    callback.begin(model, 0)
    shown = []
    for done in range(3):
        callback.at(done)
        with torch.no_grad():
            model.weight.add_(0.1)
            shown.append(model(SET[0]).numpy())
        callback.show()
    with torch.no_grad():
        model.weight.zero_()
    callback.finish()
    recorded = {record.epoch: record.array for record in kept}
    assert list(recorded) == [0, 1, 2, 3]
    assert all((recorded[epoch + 1] == array).all() for epoch, array in enumerate(shown))
    assert callback.watch.status()["faults"] == []


@pytest.mark.parametrize(("done", "epoch"), [(0.25, 1), (1, 2), (1.25, 2), (1.75, 2)])
def test_training_that_is_resumed_inside_of_an_epoch_continues_it_and_has_no_epoch_0(
    kept, unused_tcp_port_number, done, epoch
):
    model, options = nn.Linear(4, 2), ({"probe_set": SET}, {})
    for each in options:
        callback = ProbeCallback()
        callback.prepare("127.0.0.1", unused_tcp_port_number, each, wait=False)
        callback.begin(model, done)
        for more in range(2):
            callback.at(int(done) + more)
            model(SET[0]).sum().backward()
            with torch.no_grad():
                model.weight.add_(0.1)
            callback.show()
        callback.finish()
        assert [record.epoch for record in kept] == [epoch, epoch + 1]
        marks = [record.of_pass.is_part for record in kept]
        assert marks == [each == {} and done != 1, False]  # from which the note on the scores follows
        kept.clear()
        is_said = f"Epoch {epoch} is a part" in callback.watch.status()["epochs"]
        assert is_said == (
            each == {} and done != 1
        )  # the probe set shows the model at its end, which is whole


def test_epoch_without_a_pass_is_no_part(unused_tcp_port_number):
    """The Trainer resumes at the end of a stream, of which it knows no length, with an epoch of no steps."""
    model, callback = nn.Linear(4, 2), ProbeCallback()
    callback.prepare("127.0.0.1", unused_tcp_port_number, {}, wait=False)
    callback.begin(model, 0.92)
    for done in range(2):
        callback.at(done)
        for x in [SET[0]] * done:
            model(x).sum().backward()
    callback.finish()
    assert "is a part" not in callback.watch.status()["epochs"]


@pytest.mark.parametrize(
    ("saved", "epochs", "is_part"),
    [
        ({"epoch": 12 / 13, "global_step": 3, "max_steps": 12}, (1, 2), True),  # two batches are left
        ({"epoch": 12 / 13, "global_step": 3, "max_steps": 9}, (2, 3), False),  # a version that drops them
        ({"epoch": 1.0, "global_step": 4, "max_steps": 12}, (2, 3), False),
        ({"epoch": 1.5, "global_step": 6, "max_steps": 12}, (2, 3), True),
    ],
)
@pytest.mark.parametrize("skips", [True, False])
def test_epoch_of_a_trainer_is_a_part_if_steps_of_it_were_made(
    kept, unused_tcp_port_number, saved, epochs, is_part, skips
):
    from transformers import TrainerControl, TrainerState

    model, callback = nn.Linear(4, 2), callbacks.TrainerProbe(port=unused_tcp_port_number, wait=False)
    state, control = TrainerState(**saved), TrainerControl()
    args = SimpleNamespace(max_steps=-1, num_train_epochs=3, ignore_data_skip=not skips)
    callback.on_train_begin(args, state, control, model=model)
    for _ in epochs:
        callback.on_epoch_begin(args, state, control, model=model)
        model(SET[0]).sum().backward()
    callback.on_train_end(args, state, control, model=model)
    assert [record.epoch for record in kept] == list(epochs)
    assert [record.of_pass.is_part for record in kept] == [is_part and skips, False]


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
    state.is_world_process_zero, state.epoch = True, 1.9999  # inside of the second epoch, near its end
    callback.on_train_begin(None, state, control, model=model)
    for epoch in (2, 3):
        callback.on_epoch_begin(None, state, control, model=model)
        assert callback.watch.epoch == epoch
    state.epoch = 3.0
    callback.on_train_begin(None, state, control, model=model)
    callback.on_epoch_begin(None, state, control, model=model)
    assert callback.watch.epoch == 4
    callback.on_train_end(None, state, control, model=model)
    assert not model._forward_pre_hooks
