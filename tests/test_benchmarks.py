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


def test_what_is_done_now_and_then_counts():
    found = harness.paired({"plain": [1.0] * 6, "same": [1.0] * 6, "bursts": [1.0] * 5 + [7.0]}, "plain")
    assert found["same"] == {"ratio": 1.0, "low": 1.0, "high": 1.0, "seconds": 6.0, "rounds": 6}
    assert found["bursts"]["ratio"] == 2.0
    assert found["bursts"]["low"] == 1.0
    assert 2 < found["bursts"]["high"] <= 7


def test_goals_of_probing_are_met_or_missed_and_what_is_not_installed_has_a_dash():
    from benchmarks import probing

    fine = {"ratio": 1.004, "low": 1.0, "high": 1.01}
    one = {"plain again": fine, "probe": fine | {"ratio": 1.06}, "when false": fine, "JSON": fine}
    text = probing.report({"CNN": one | {"watched": 0.06}}, 151.0)
    assert "| CNN: probe at its default budget" in text
    assert [line.split("|")[-2].strip() for line in text.splitlines()[2:5]] == ["missed", "met", "met"]
    assert "–" in text.split("TensorBoard")[1].splitlines()[2]
    assert "watched 6% of the passes of the CNN" in text
