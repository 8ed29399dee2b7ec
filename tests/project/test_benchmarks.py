"""The harness, the workloads and the reports of the benchmarks."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import harness, recording
from benchmarks.pages import browsing, graph_page, makers, tools
from benchmarks.workloads import PICTURED, WORKLOADS


def test_measure_interleaves_contenders():
    order = []
    taken = harness.measure(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, seconds=0, least=3
    )
    assert order == ["a", "b"] * 4  # the warm-up round is not counted
    assert {name: len(times) for name, times in taken.items()} == {"a": 3, "b": 3}


def test_measure_counts_cpu_time_only():
    import time

    taken = harness.measure(
        {"wait": lambda: time.sleep(0.02), "work": lambda: sum(range(400_000))}, seconds=0, least=3
    )
    found = harness.summary(taken, "wait")
    assert found["wait"]["median"] < 0.01
    assert found["work"]["ratio"] > 1


def test_machine_contains_no_names():
    facts = str(harness.machine())
    assert "/" not in facts.replace("+cpu", "")
    assert "torch" in facts


@pytest.mark.parametrize("name", ["chain of 1,000", "Python LSTM, 200 steps"])
def test_workloads_run(name):
    import intus

    model, inputs = WORKLOADS[name]()
    assert len(intus.trace(model, inputs, save="none")) == {"chain of 1,000": 1000}.get(name, 3401)


def test_recording_report_lists_skipped_tools():
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
    text = recording.comparison([skipped])
    assert "| w    | 1,000 | 2.0 ms | 2.00 ×    | 2.00  |".replace(" ", "") in text.replace(" ", "")
    assert "- w: skipped." in text


def test_paired_includes_occasional_work():
    found = harness.paired({"plain": [1.0] * 6, "same": [1.0] * 6, "bursts": [1.0] * 5 + [7.0]}, "plain")
    assert found["same"] == {"ratio": 1.0, "low": 1.0, "high": 1.0, "seconds": 6.0, "rounds": 6}
    assert found["bursts"]["ratio"] == 2.0
    assert found["bursts"]["low"] == 1.0
    assert 2 < found["bursts"]["high"] <= 7


def test_probing_report_shows_goals_and_missing_tools():
    from benchmarks import probing

    fine = {"ratio": 1.004, "low": 1.0, "high": 1.01}
    one = {"plain again": fine, "probe": fine | {"ratio": 1.06}, "when false": fine, "JSON": fine}
    short = {"probe": fine | {"ratio": 1.031, "rounds": 20}, "seconds": 0.7, "without a pass": 3}
    measured = one | {"watched": 0.06, "short epochs": short, "skipped pass": 9.5}
    text = probing.report({"CNN": measured}, 151.0)
    assert "| CNN: probe at its default budget" in text
    verdicts = [line.split("|")[-2].strip() for line in text.splitlines()[2:6]]
    assert verdicts == ["missed", "met", "missed", "met"]
    assert "epochs of 0.70 s" in text
    idle = {"probe": fine | {"rounds": 20}, "without a pass": 20}  # nothing was recorded, so nothing is shown
    assert "not proven" in probing.report({"CNN": measured | {"short epochs": short | idle}}, 151.0)
    assert "9.5 µs (CNN). Of the short epochs, 3 of 20 (CNN) had no recorded pass" in text
    assert "–" in text.split("TensorBoard")[1].splitlines()[2]
    assert "the probe watched 6% of the passes of the CNN" in text


def test_pictured_workloads():
    assert list(PICTURED)[-2:] == ["chain of 1,000", "chain of 10,000"]
    model, inputs = PICTURED["Python LSTM, 40 steps"]()
    assert model(**inputs).shape == (4, 32)


def test_pages_report_shows_what_was_given_up():
    took = {
        "first": [browsing.Took(400, 100), browsing.Took(200, 90), browsing.Took(300, 80)],
        "all": "more than 15 s",
    }
    found = {"kilobytes": 62.4, "notebook": 706.0, "made": 0.12, "error": "RecursionError", "took": took}
    goal = {"what": "a toggle", "goal": 50, "unit": "ms", "figure": 51.0, "cpu": 20.0}
    facts = {"load before": 1.0, "load after": 2.0, "cores": 2, "minutes": 3.0}
    own = {"machine": facts, "found": [goal]}
    others = {"machine": facts | {"load before": 7.0}, "found": {"chain": {"torchvista": found}}}
    text = graph_page.report(own, others).replace(" ", "")
    assert "|chain|torchvista|62KB|706KB|0.12s,RecursionError|300(90)|morethan15s|–|" in text
    assert "|atoggle|≤50ms|51ms|20ms|missed|" in text
    assert text.index("1.0beforeand2.0after") < text.index("7.0beforeand2.0after")


def test_missing_tools_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(tools.Tool, "python", tmp_path / "nowhere")
    for tool in (tools.Torchvista, tools.Explorer):
        none = tool()
        none.start(tmp_path)
        none.made()
        for model in PICTURED:
            assert none.facts[model]["error"] == "not installed: run make bench ARGS=pages"
            assert list(none.visits(model)) == []
        none.close()


def test_is_done_after_a_slow_or_given_up_action():
    fast, slow = [browsing.Took(200, 100)] * 2, [browsing.Took(3100, 100)]
    assert [graph_page.is_done(times) for times in (None, [], fast, slow, "more than 15 s")] == [
        0,
        0,
        0,
        1,
        1,
    ]


@pytest.mark.long
@pytest.mark.browser
def test_page_is_timed_until_settled(tmp_path, monkeypatch):
    """Elements added later, also after an answer of a worker, must be included in the time."""
    late = """<body><script>
        const add = () => document.body.append(document.createElement("i"));
        setTimeout(add, 200);
        const code = "onmessage = () => setTimeout(() => postMessage(0), 700)";
        const worker = new Worker(URL.createObjectURL(new Blob([code])));
        worker.onmessage = add;
        addEventListener("keydown", () => worker.postMessage(0));
    </script>"""
    (tmp_path / "late.html").write_text(late)
    address = (tmp_path / "late.html").as_uri()
    with browsing.browsers(1) as (chromium,):
        with chromium.visit("i") as page:
            assert page.open(address).wall >= 200
            took = page.press("Enter")
            assert took.wall >= 700
            assert took.cpu < took.wall
        monkeypatch.setattr(browsing, "LIMIT", 2.0)
        slow = chromium.browser
        with pytest.raises(browsing.TooSlowError, match="more than 2 s"), chromium.visit("b") as page:
            page.open(address)
        assert chromium.browser is not slow  # the old browser might still draw
        assert not slow.is_connected()


@pytest.mark.long
@pytest.mark.browser
def test_page_opens_once_the_browser_is_idle():
    """No internal page of the browser may be open, and work of a page must be awaited."""
    work = (
        "<p><script>setTimeout(() => { const end = Date.now() + 1500; while (Date.now() < end); });</script>"
    )
    with browsing.browsers(1) as (chromium,), chromium.visit("p") as page:
        tools = chromium.browser.new_browser_cdp_session()
        targets = tools.send("Target.getTargets")["targetInfos"]
        assert [target["url"] for target in targets if target["type"] != "tab"] == ["about:blank"]
        page.page.goto("data:text/html," + work, wait_until="commit")
        browsing.rest(chromium.browser)
        assert page.page.evaluate("performance.now()") > 1500


@pytest.mark.long
@pytest.mark.browser
def test_intus_page_is_toggled(tmp_path):
    """Run the actions of the benchmark on pages that the tool's process reported."""
    facts = makers.intus("ResNet-50", tmp_path)
    assert facts["kilobytes"] < 300
    assert 10 * facts["kilobytes"] < facts["notebook"] < 2000
    tool = tools.Intus()
    tool.facts["ResNet-50"] = facts
    (_, steps) = tool.visits("ResNet-50")
    with browsing.browsers(1) as (chromium,), chromium.visit(tool.drawn) as page:
        took = {what: act(page) for what, act in steps}
        assert page.page.evaluate("document.querySelector('#intus-graph').intusView.place.open.length") > 10
    assert len(took["toggle"]) == 2
    assert all(one.wall > 0 for one in took["all"] + took["toggle"])


@pytest.mark.long
def test_training_processes_take_turns_and_report(tmp_path):
    from benchmarks import frameworks

    with harness.sink() as port:
        common = (Path(sys.executable), "torch", "--steps", "5", "--epoch", "10", "--width", "8")
        plain = frameworks.Training(*common)
        probed = frameworks.Training(*common, "--port", str(port))
        try:
            for _ in range(3):
                assert plain.run().passes == 0
                totals = probed.run()
            assert (totals.passes, totals.skipped) == (15, 0)
            assert 0 < totals.charged < 5
            assert totals.seconds > 0
            assert probed.run("stop").seconds >= 0
        finally:
            plain.close()
            probed.close()


@pytest.mark.long
def test_cost_of_a_probe_is_told_beside_the_same_training_again():
    from benchmarks import frameworks

    with harness.sink() as port:
        found = frameworks.cost(Path(sys.executable), "torch", port, 0.5, 10, 5, repeats=1)
    for name in ("probe", "plain again", "steady"):
        assert 0 < found[name]["ratio"] < 100
    assert found["passes"] >= found["recorded"] > 0
    assert found["plain seconds"] >= 0.5
    assert (
        "met" in (text := frameworks.report({"torch": {"long": found, "step us": 1.0}})) or "missed" in text
    )


def test_ratio_of_processes_is_that_of_all_runs_between_lowest_and_highest():
    from benchmarks import frameworks

    runs = [{"plain": [1.0, 1.0], "probe": [1.0, 2.0]}, {"plain": [2.0], "probe": [2.0]}]
    assert frameworks._ratio(runs, "probe") == {"ratio": 1.25, "low": 1.0, "high": 1.5}


def test_report_of_frameworks_names_what_is_missing():
    from benchmarks import frameworks

    ratio = {"ratio": 1.06, "low": 1.05, "high": 1.07}
    cost = {"probe": ratio, "plain again": ratio, "steady": ratio, "repeats": 2, "plain seconds": 30.0}
    cost |= {"step ms": 9.0, "recorded": 4, "passes": 90, "charged": 0.1}
    text = frameworks.report({"keras": {"long": cost, "step us": 12.0}, "nnx": None})
    assert "missed" in text
    assert "4 of 90" in text
    assert "Not installed: JAX, Flax NNX." in text


def test_statistics_on_paper_are_the_bytes_that_are_sent(monkeypatch):
    """The bytes that are counted for a layer are at least those of a message with its statistics."""
    import numpy as np
    import torch
    from benchmarks import statistics

    from intus.backends.row_sums import RowPlan
    from intus.backends.torch.row_sums import row_sums
    from intus.core.record import Record
    from intus.core.sketch import UNITS
    from intus.scores.statistics.sent import KnownRows
    from intus.storage.codec import encode_records

    monkeypatch.setattr(statistics, "TOKENS", 9000)
    monkeypatch.setitem(statistics.PAPER, "tiny", (1e6, 1, {1200: 1}))
    known = KnownRows(np.arange(9000), {"class": np.arange(9000) % statistics.CLASSES})
    plan = RowPlan(False, known.kept, known.masks, known.classes, units=np.arange(UNITS))
    rows, items, sums = known.packed(row_sums(torch.randn(9000, 1200), plan, 0))
    sent = len(encode_records([Record(rows, "layer", items=items, statistics=sums)]))
    found = statistics.on_paper("tiny")
    assert 0.98 * sent < found["GB statistics"] * 1e9 < 1.35 * sent
    large = statistics.on_paper("7B")
    assert large["own/forward"] < statistics.MOST_OWN
    assert large["GB statistics"] * 1e9 < statistics.MOST_BYTES_7B
