"""``docs/add-a-framework.md``: its code, installed as a package, is watched, traced and inspected."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from intus.serving.run import Server
from intus.storage.database import Database

PAGE = (Path(__file__).parents[3] / "docs" / "add-a-framework.md").read_text(encoding="utf-8")
FRAMEWORK, USE = re.findall(r"^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(ENTRY_POINT,) = re.findall(r'^(tinynet = )"(.*)"$', PAGE, re.MULTILINE)

#: What the test reads of the page's variables, as JSON.
REPORT = """
import json
print(json.dumps({
    "labels": [op.label for op in trace], "hidden": trace["hidden"].value.tolist(),
    "page": repr(trace.show()), "status": watch.status(), "hooks": len(net.hooks),
    "table": table[["address", "unit", "value"]].to_dict("list"),
}))
import sys
from intus.core.errors import InputError
for wrong in (
    lambda: intus.probe(net, "127.0.0.1", 8082, kinds="grad_output"),
    lambda: intus.trace(net, images, seed=1),
    lambda: watch.through(net),
    lambda: intus.probe(object(), "127.0.0.1", 8082),
):
    try:
        wrong()
    except InputError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Return a folder in which the page's package is installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "tinynet.py").write_text(FRAMEWORK)
    about = folder / "tinynet-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tinynet\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[intus.backends]\n{''.join(ENTRY_POINT)}\n")
    return folder


def test_code_is_short():
    assert len([line for line in FRAMEWORK.splitlines() if line.strip()]) < 60


@pytest.mark.long
def test_package_is_watched_traced_and_inspected(package, tmp_path):
    with Server(database=tmp_path / "tiny.db", port=0) as server:
        code = (USE + REPORT).replace("8082", str(server.port))
        found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), *filter(None, sys.path)])}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=found)
        assert done.returncode == 0, done.stderr
    first, *refusals = done.stdout.splitlines()
    report = json.loads(first)

    images, labels = load_digits(return_X_y=True)
    hidden = np.tanh(images / 16 @ (np.random.default_rng(0).normal(size=(64, 32)) / 8))
    assert report["labels"] == ["dense_1_1", "dense_2_2"]
    assert np.asarray(report["hidden"]) == pytest.approx(hidden[:4])
    assert report["page"].startswith("<View of Net: 2 operations, 2 modules, 2,368 parameters")
    assert report["hooks"] == report["status"]["troubles"] == 0
    assert (report["status"]["passes"], report["status"]["recorded"]) == (2, 4)
    three = labels == 3
    assert report["table"]["value"] == pytest.approx(
        [np.corrcoef(hidden[:, unit], three)[0, 1] for unit in report["table"]["unit"]], abs=1e-6
    )
    with Database(tmp_path / "tiny.db") as database:
        points = [point for point in database.points("tiny", "Net") if point["score"] == "mean_abs"]
    values = {(point["address"], point["epoch"]): point["value"] for point in points}
    assert values["hidden", 1] == pytest.approx(np.abs(hidden).mean(), rel=1e-5)
    assert len(values) == 4
    for refusal, words in zip(
        refusals,
        [
            "tinynet has kinds=('output',) alone, got ('grad_output',).",
            "seed= is for models of PyTorch, and this is one of tinynet.",
            "through is for JAX.",
            "Pass a model of one of these frameworks: ",
        ],
        strict=True,
    ):
        assert words in refusal
    assert "tinynet" in refusals[-1]


@pytest.mark.parametrize(
    ("written", "code", "said"),
    [
        ("net.py:net", 0, "Net: "),
        ("net.py:make", 0, "Net: "),
        ("net.py", 1, 'net.py:net --inputs "x"  a Net'),
        ("net.py:net --inputs 3", 1, "net.py:net cannot run on --inputs '3'"),
    ],
)
def test_command_line(package, tmp_path, written, code, said):
    """``intus view`` of a model of the framework, where torch is not installed."""
    (tmp_path / "net.py").write_text(
        "import numpy as np\nfrom tinynet import Net\nnet = Net(hidden=np.ones((64, 32)))\n"
        "def make() -> Net:\n    return net\n"
    )
    words = ["view", *written.split(), "--no-open", "-o", "net.json"]
    if "--inputs" not in words:
        words += ["--inputs", "randn(4, 64)"]
    script = f"import sys; sys.modules['torch'] = None\nfrom intus.cli import main; sys.exit(main({words!r}))"
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=found, cwd=tmp_path
    )
    assert said in done.stdout + done.stderr
    assert done.returncode == code
