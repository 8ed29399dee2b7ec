"""The PacMan example: the game by its rules, and the answers by planted truth and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score

from intus.examples.inspecting.maze import COLORS, MOVES, play
from intus.examples.inspecting.pacman import agent


def test_frames_follow_the_rules_of_the_game():
    games = play(2000, seed=5)
    assert games.images.shape == (2000, 3, 15, 19)
    frames = np.arange(2000)
    here, ghost = games.pacman, games.ghost
    for name, cells in (("pacman", here), ("ghost", ghost)):
        assert not games.walls[frames, cells[:, 0], cells[:, 1]].any(), name
        shown = games.images[frames, :, cells[:, 0], cells[:, 1]]
        known = np.where(games.scared[:, None] & (name == "ghost"), COLORS["scared"], COLORS[name])
        assert (shown == known).all(), name
    same = games.game[1:] == games.game[:-1]
    moved = here[1:] - here[:-1]
    assert (moved[same] == np.array(MOVES)[games.moves[:-1][same]]).all()
    steps = np.abs(ghost[1:] - ghost[:-1]).sum(1)
    eaten = games.scared[:-1] & ~games.scared[1:]
    assert set(steps[same & ~eaten].tolist()) <= {0, 1}
    assert not games.food[frames, here[:, 0], here[:, 1]].any()


def test_ghost_after_is_shifted_within_a_game():
    games = play(300, seed=5)
    later = games.ghost_after(3)
    for frame in range(297):
        if games.game[frame] == games.game[frame + 3]:
            assert np.argwhere(later[frame] == 1).tolist() == [games.ghost[frame + 3].tolist()]
        else:
            assert np.isnan(later[frame]).all()


def test_near_is_a_window_of_open_cells():
    games = play(50, seed=5)
    near = games.near(games.ghost, 1)
    row, column = games.ghost[7]
    window = np.zeros((15, 19), bool)
    window[row - 1 : row + 2, column - 1 : column + 2] = True
    assert (near[7] == (window & ~games.walls[7])).all()


@pytest.fixture(scope="module")
def pacman(run_example):
    return run_example("pacman")


@pytest.mark.slow
def test_trained_units_see_the_ghost(pacman):
    ghost = pacman.table("pacman-ghost")
    last = ghost[ghost.epoch == ghost.epoch.max()]
    best = last.loc[last.value.idxmax()]
    assert best.value >= 0.1  # NetDissect calls a unit a detector from .04
    assert best.q < 0.05
    assert best.low > 10 * best.baseline
    assert best.value >= 2 * ghost[ghost.epoch == 0].value.max()
    curve = ghost[(ghost.address == best.address) & (ghost.unit == best.unit)].sort_values("epoch")
    assert curve.value.iloc[0] < curve.low.iloc[-1]


@pytest.mark.slow
def test_ghost_iou_equals_scikit_learn(pacman):
    ghost = pacman.table("pacman-ghost")
    last = ghost[(ghost.epoch == ghost.epoch.max()) & (ghost.address == "conv2")]
    best = last.loc[last.value.idxmax()]
    games, keep = play(7500, seed=3), slice(None, None, 5)
    model = agent()
    model.load_state_dict(torch.load(pacman.folder / "agent.pt", weights_only=True)[-1])
    with torch.no_grad():
        unit = model[:3](torch.tensor(games.images[keep]))[:, int(best.unit)].numpy().ravel()
    active = unit > np.quantile(unit, 0.995)
    truth = games.mask(games.ghost)[keep].ravel()
    assert best.value == pytest.approx(jaccard_score(truth, active), abs=0.003)


@pytest.mark.slow
def test_anticipation_vanishes_given_the_present(pacman):
    given = pacman.table("pacman-given")
    assert given.steps.tolist() == [1, 2, 4, 8]
    plain, partial = given["r +"].abs(), given["r + given"].abs()
    assert (plain > given.baseline).all()  # the naive analysis finds something
    assert (partial < given["baseline given"]).all()
    assert (partial < plain / 2).all()
    assert ((partial - given["r - given"].abs()).abs() < 0.02).all()  # the past is known as well


@pytest.mark.slow
def test_other_networks_see_the_ghost(pacman):
    unique = pacman.table("pacman-unique")
    assert len(unique) == 3
    assert (unique.detectors >= 1).all()
    assert (unique.low > 2 * unique["untrained best"]).all()


@pytest.mark.slow
def test_ideas_pictures_and_summary(pacman):
    ideas = pacman.table("pacman-ideas")
    overlap = ideas[ideas.score == "iou_max"]
    best = overlap.loc[overlap.groupby("target").value.idxmax()].set_index("target")
    assert best.value["pacman"] > 0.6
    assert best.value["walls"] > best.baseline["walls"] + 0.05
    assert set(pacman.pictures()) == {"pacman-ghost", "pacman-epochs", "pacman-ideas"}
    assert min(pacman.pictures().values()) > 5000
    assert "Is that anticipation?" in pacman.text
