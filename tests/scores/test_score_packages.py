"""Scores of another installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import intus
from intus.core.errors import InputError
from intus.scores.registry import as_score

MODULE = """
from sklearn.cluster import AgglomerativeClustering
from sklearn.neighbors import KNeighborsClassifier

neighbours, clusters = KNeighborsClassifier(5), AgglomerativeClustering(10)

def spread(behaviours):
    return float(behaviours.max() - behaviours.min())

def gap(behaviours, labels):
    return float(behaviours[labels == 0].mean() - behaviours[labels == 1].mean())

def three(a, b, c):
    return 0.0
"""
ENTRIES = """[intus.scores]
s_neighbours = stranger:neighbours
s_clusters = stranger:clusters
s_spread = stranger:spread
s_gap = stranger:gap
s_three = stranger:three
s_none = stranger:nothing
s_class = stranger:KNeighborsClassifier
mean = stranger:spread
"""
USE = """
from sklearn.datasets import load_digits
from intus.scores import Scorer, names
from intus.serving.evaluation.scoring import default_scores

found = [name for name in names() if name.startswith("s_")]
assert set(found) <= set(default_scores())
x, y = load_digits(return_X_y=True)
scorer = Scorer([*found, "mean"])
scorer.update(x, {"digit": y})
for result in scorer.result():
    print(result.score, round(result.value, 2), round(result.baseline, 2))
"""


@pytest.mark.long
def test_installed_package_scores_and_warnings(tmp_path: Path):
    facts = tmp_path / "stranger-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "stranger.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), str(Path(intus.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", USE], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    read = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert list(read) == ["s_clusters", "s_gap", "s_neighbours", "s_spread", "mean"], done.stderr
    assert float(read["s_neighbours"][0]) > 0.97 > 0.2 > float(read["s_neighbours"][1])
    assert float(read["s_clusters"][0]) > 0.8
    assert float(read["s_spread"][0]) == 16
    assert float(read["mean"][0]) == pytest.approx(4.88)
    for sentence in (
        "'s_three' of stranger could not be loaded: The score 's_three' takes 3 arguments",
        "'s_none' of stranger could not be loaded: module 'stranger' has no attribute 'nothing'",
        "'s_class' of stranger could not be loaded: A score is an estimator, not its class. "
        "Give KNeighborsClassifier()",
        "'mean' of stranger is left out: the name is taken",
    ):
        assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_invalid_scores_are_refused():
    with pytest.raises(InputError, match="or a scikit-learn estimator, got 3 of type int"):
        as_score(3)
