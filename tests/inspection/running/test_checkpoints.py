"""Inspecting many checkpoints: failures, interrupts, resuming from a store, and workers."""

import os
import signal
import sqlite3
import threading
import time

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from intus import inspect
from intus.core.errors import AddressError, InputError

NUMBERS = ["value", "low", "high", "baseline", "p", "q", "n"]


class Counted(nn.Module):
    """A small net that counts its forward passes in a file, so that those in other processes count too."""

    def __init__(self, seed: int, log: str = "") -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv, self.fc, self.log = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(256, 10), log

    def forward(self, x):
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"{len(x)}\n")
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def ink(image):
    return image[0] > 0.5


@pytest.fixture
def images():
    from sklearn.datasets import load_digits

    return (load_digits().images[:600, None] / 16).astype(np.float32)


def passes(log):
    return log.read_text().count("\n") if log.exists() else 0


# -- failures and interrupts --------------------------------------------------------------------------


def test_failing_checkpoint_is_a_row(images):
    def missing():
        raise FileNotFoundError("epoch_1.pt")

    table = inspect({0: Counted(0), 1: missing, 2: Counted(2)}, ink, "correlation", images, "conv")
    assert table.epoch.tolist() == [0] * 4 + [1] + [2] * 4
    failed = table[table.epoch == 1].iloc[0]
    assert failed.note == "failed: FileNotFoundError: epoch_1.pt"
    assert np.isnan(failed.value)
    assert failed[["address", "target", "score"]].tolist() == ["", "", ""]
    assert failed.unit == -1
    alone = inspect({0: Counted(0), 2: Counted(2)}, ink, "correlation", images, "conv")
    pd.testing.assert_frame_equal(
        table[table.epoch != 1].reset_index(drop=True)[NUMBERS], alone[NUMBERS], check_frame_type=False
    )


def test_checkpoint_that_fails_midway_is_a_row(images):
    class Breaks(Counted):
        def forward(self, x):
            if x.mean() > 0 and len(x) == 88:
                raise RuntimeError("device lost")
            return super().forward(x)

    table = inspect([Counted(0), Breaks(1)], ink, "correlation", images, "conv")
    assert table[table.epoch == 1].note.tolist() == ["failed: RuntimeError: device lost"]


def test_error_of_all_checkpoints_is_raised(images):
    def missing():
        raise FileNotFoundError("no such file")

    with pytest.raises(FileNotFoundError, match="no such file"):
        inspect([missing, missing], ink, "correlation", images, "conv")


def test_wrong_argument_is_raised_at_the_first_checkpoint(images):
    opened = []

    def load():
        opened.append(1)
        return Counted(0)

    with pytest.raises(AddressError, match="konv"):
        inspect([load, load, load], ink, "correlation", images, "konv")
    assert len(opened) == 1


def test_error_of_a_hypothesis_is_raised(images):
    def broken(image):
        raise ZeroDivisionError("in my hypothesis")

    with pytest.raises(ZeroDivisionError, match="in my hypothesis"):
        inspect([Counted(0), Counted(1)], broken, "correlation", images, "conv")


def test_interrupt_keeps_finished_models(images):
    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    with pytest.warns(UserWarning, match=r"interrupted. The table lacks epoch 1, epoch 2"):
        table = inspect([Counted(0), interrupted, Counted(2)], ink, "correlation", images, "conv")
    assert table.epoch.tolist() == [0] * 4


def test_interrupt_of_the_only_model_is_raised(images):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inspect(interrupted, ink, "correlation", images, "conv")


# -- resuming -----------------------------------------------------------------------------------------


def test_same_call_is_read_from_the_store(images, tmp_path):
    log = tmp_path / "passes"

    def ask(second=1, labels=ink, scores=("correlation", "iou"), data=images, run="r"):
        models = {0: Counted(0, str(log)), 1: Counted(second, str(log))}
        before = passes(log)
        table = inspect(models, labels, list(scores), data, "conv", store=tmp_path / "s.db", run=run)
        return table, passes(log) - before

    first, computed = ask()
    whole = computed // 2
    assert whole > 1
    again, computed = ask()
    assert computed == 0
    pd.testing.assert_frame_equal(first, again)
    # Whatever is asked differently is computed: other weights, labels, scores, data.
    assert ask(second=7)[1] == whole
    assert ask(labels={"ink": lambda image: image[0] > 0.3})[1] == 2 * whole
    assert ask(scores=("correlation",))[1] == 2 * whole
    assert ask(data=images + 0.25)[1] == 2 * whole
    assert ask(run="another")[1] == 2 * whole


def test_interrupted_call_continues(images, tmp_path):
    log = tmp_path / "passes"

    def interrupted():
        raise KeyboardInterrupt

    def ask(last):
        return inspect(
            {0: Counted(0, str(log)), 1: last}, ink, "iou", images, "conv", store=tmp_path / "s.db", run="r"
        )

    with pytest.warns(UserWarning, match="interrupted"):
        ask(interrupted)
    before = passes(log)
    table = ask(Counted(1))
    assert passes(log) == before
    assert table.epoch.tolist() == [0] * 4 + [1] * 4
    expected = inspect({0: Counted(0), 1: Counted(1)}, ink, "iou", images, "conv")
    pd.testing.assert_frame_equal(table[NUMBERS], expected[NUMBERS])


def test_function_as_a_score_is_computed_again(images, tmp_path):
    log = tmp_path / "passes"
    for _ in range(2):
        before = passes(log)
        inspect(
            Counted(0, str(log)),
            [],
            lambda x: float(x.mean()),
            images,
            "conv",
            store=tmp_path / "s.db",
            run="r",
        )
        assert passes(log) > before


@pytest.mark.parametrize("damage", ["garbage", "folder", "locked"])
def test_unusable_store_leaves_the_table(images, tmp_path, damage, monkeypatch):
    where = tmp_path / "s.db"
    lock = None
    if damage == "garbage":
        where.write_bytes(b"not a database" * 100)
    elif damage == "folder":
        where = tmp_path / "missing" / "s.db"
    else:
        monkeypatch.setattr("intus.storage.tables.BUSY_S", 0.2)
        lock = sqlite3.connect(where)
        lock.execute("BEGIN EXCLUSIVE")
    with pytest.warns(UserWarning, match="are not stored in .*The table is complete"):
        table = inspect(Counted(0), ink, "correlation", images, "conv", store=where, run="r")
    assert len(table) == 4
    assert np.isfinite(table.value).all()
    if lock is not None:
        lock.close()


def test_damaged_rows_are_computed_again(images, tmp_path):
    where = tmp_path / "s.db"
    first = inspect(Counted(0), ink, "correlation", images, "conv", store=where, run="r")
    with sqlite3.connect(where) as connection:
        connection.execute("UPDATE inspection SET content = x'00ff00ff'")
    with pytest.warns(UserWarning, match="damaged"):
        again = inspect(Counted(0), ink, "correlation", images, "conv", store=where, run="r")
    pd.testing.assert_frame_equal(first, again)


# -- workers ------------------------------------------------------------------------------------------


def assert_same_numbers(one, other, tolerance=1e-12):
    pd.testing.assert_frame_equal(one.drop(columns=NUMBERS), other.drop(columns=NUMBERS))
    for name in NUMBERS:
        np.testing.assert_allclose(
            one[name].astype(float), other[name].astype(float), rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.long
def test_processes_give_the_results_of_one(images):
    digit = np.arange(600) % 3
    asked = (
        {"ink": ink, "third": digit == 0, "class": digit},
        ["correlation", "mean_difference", "iou", "iou_max", "linear_f1", "lda_f1", "mean", "dead"],
        images,
        "conv",
    )
    models = {0: Counted(0), 1: Counted(1)}
    for batch in (50, 599):  # 599 would leave a block of one record
        assert_same_numbers(
            inspect(models, *asked, batch=batch), inspect(models, *asked, batch=batch, engine=2)
        )


class DiesOnce(Counted):
    """Kills the worker that runs it, the first time."""

    def __init__(self, seed, flag):
        super().__init__(seed)
        self.flag, self.parent = flag, os.getpid()

    def forward(self, x):
        if os.getpid() != self.parent and not os.path.exists(self.flag):
            with open(self.flag, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


@pytest.mark.long
def test_killed_worker_is_replaced(images, tmp_path):
    flag = tmp_path / "died"
    table = inspect({"net": DiesOnce(0, str(flag))}, ink, "correlation", images, "conv", batch=50, engine=2)
    assert flag.exists()
    assert_same_numbers(table, inspect({"net": Counted(0)}, ink, "correlation", images, "conv", batch=50))


def test_model_that_cannot_be_pickled(images):
    model = Counted(0)
    model.lock = threading.Lock()
    began = time.monotonic()
    with pytest.raises(InputError, match=r"cannot be pickled.*engine=None"):
        inspect(model, ink, "correlation", images, "conv", engine=2)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("engine", [0, -1, True, "spark", 2.5])
def test_unknown_engine(images, engine):
    with pytest.raises(InputError, match=f"engine must be a number of processes.*{engine}"):
        inspect(Counted(0), ink, "correlation", images, "conv", engine=engine)
