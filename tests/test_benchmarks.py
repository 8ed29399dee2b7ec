"""The harness measures what it says, and the benchmark's workloads are what they are called."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import harness, recording
from benchmarks.workloads import WORKLOADS


def test_contenders_take_turns():
    order = []
    taken = harness.measure(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, seconds=0, least=3
    )
    assert order == ["a", "b"] * 4  # one round is not counted
    assert {name: len(times) for name, times in taken.items()} == {"a": 3, "b": 3}


def test_cpu_seconds_tell_work_from_waiting():
    import time

    taken = harness.measure(
        {"wait": lambda: time.sleep(0.02), "work": lambda: sum(range(400_000))}, seconds=0, least=3
    )
    found = harness.summary(taken, "wait")
    assert found["wait"]["median"] < 0.01
    assert found["work"]["ratio"] > 1


def test_the_machine_is_described_without_naming_it():
    facts = str(harness.machine())
    assert "/" not in facts.replace("+cpu", "")
    assert "torch" in facts


@pytest.mark.parametrize("name", ["chain of 1,000", "Python LSTM, 200 steps"])
def test_workloads_run(name):
    import intus

    model, inputs = WORKLOADS[name]()
    assert len(intus.trace(model, inputs, save="none")) == {"chain of 1,000": 1000}.get(name, 3401)


def test_a_table_says_what_was_skipped():
    timed = {"median": 0.002, "minimum": 0.001, "rounds": 3, "ratio": 1.0}
    ours = {"plain": timed, "recording": timed | {"median": 0.004, "ratio": 2.0}}
    ours |= {"structure": ours["recording"], "values": ours["recording"]}
    skipped = {
        "name": "w",
        "operations": 1000,
        "intus": ours,
        "torchlens": {},
        "drawn": {},
        "note": "skipped",
    }
    text = recording.beside([skipped])
    assert "| w    | 1,000 | 2.0 ms | 2.00 ×    | 2.00  |".replace(" ", "") in text.replace(" ", "")
    assert "- w: skipped." in text
