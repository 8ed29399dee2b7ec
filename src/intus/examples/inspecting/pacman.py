"""Inspect an agent that plays PacMan, as in "Deep Neural Inspection with DeepBase", sections 2.1 to 2.3.

The agent is a small CNN that learns a planner's moves in random mazes (``maze``). Four questions: which units
see the ghost, when they learn it, what else units see and whether they anticipate, and whether the detector
is unique.

Run:  intus examples pacman
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas
import torch
from torch import nn

from intus import inspect, trace

from . import pictures
from .maze import HEIGHT, WIDTH, Frames, play
from .training import classify, trained

EPOCHS = 10
FEW, FRAME = 200, 40  # the frames that set the threshold of the picture, and the one that is drawn
AHEAD = (1, 2, 4, 8)  # steps that a hypothesis is ahead of the frame


def ask_ghost(agents: dict[int, nn.Module], games: Frames, keep: slice) -> pandas.DataFrame:
    """2.1 and 2.2: score every unit of layers 1 and 2 of every checkpoint against the ghost's place."""
    ghost = games.mask(games.ghost)[keep]
    return inspect(
        agents, {"ghost": ghost}, "iou", games.images[keep], [(1, "*"), (2, "*")], groups=games.game[keep]
    )


def ask_many(agent: nn.Module, games: Frames, keep: slice) -> pandas.DataFrame:
    """2.3: score the same units against all ideas."""
    ideas = {name: idea[keep] for name, idea in (places(games) | futures(games)).items()}
    units = [(1, "*"), (2, "*")]
    return inspect(
        agent, ideas, ["iou_max", "correlation"], games.images[keep], units, groups=games.game[keep]
    )


def ask_given(agent: nn.Module, games: Frames, keep: slice) -> pandas.DataFrame:
    """2.3, the confounder: a ghost is soon near its place now, and near PacMan, whom it chases."""
    known = places(games) | neighborhoods(games)
    ideas = {name: idea[keep] for name, idea in (known | futures(games)).items()}
    units = [(1, "*"), (2, "*")]
    return inspect(
        agent, ideas, "correlation", games.images[keep], units, groups=games.game[keep], given=list(known)
    )


def places(games: Frames) -> dict[str, np.ndarray]:
    """Return where everything is."""
    now = {"pacman": games.mask(games.pacman), "ghost": games.mask(games.ghost)}
    return now | {"food": games.food, "walls": games.walls}


def futures(games: Frames) -> dict[str, np.ndarray]:
    """Return where the ghost will be, and as a control where it was."""
    return {f"ghost{steps:+d}": games.ghost_after(steps) for ahead in AHEAD for steps in (ahead, -ahead)}


def neighborhoods(games: Frames) -> dict[str, np.ndarray]:
    """Return the open cells near the ghost and near PacMan."""
    return {
        f"near {name} {distance}": games.near(cells, distance)
        for name, cells in (("ghost", games.ghost), ("pacman", games.pacman))
        for distance in (1, 2, 4)
    }


def agent(seed: int = 0) -> nn.Module:
    """Return the agent: a CNN of three layers over the frame, and the next move."""
    return _network(seed, widths=(16, 32, 16), kernel=3, hidden=64)


def wide_agent(seed: int = 0) -> nn.Module:
    """Return a second architecture: fewer layers with wider kernels."""
    return _network(seed, widths=(24, 24), kernel=5, hidden=48)


def _network(seed: int, widths: tuple[int, ...], kernel: int, hidden: int) -> nn.Module:
    """Return ``conv1``, ``relu1``, ``conv2`` and so on, then ``flat``, ``fc``, a ReLU and ``move``."""
    torch.manual_seed(seed)
    layers: dict[str, nn.Module] = {}
    for number, (before, width) in enumerate(pairwise((3, *widths)), start=1):
        layers[f"conv{number}"] = nn.Conv2d(before, width, kernel, padding=kernel // 2)
        layers[f"relu{number}"] = nn.ReLU()
    layers |= {"flat": nn.Flatten(), "fc": nn.Linear(widths[-1] * HEIGHT * WIDTH, hidden)}
    layers |= {f"relu{len(widths) + 1}": nn.ReLU(), "move": nn.Linear(hidden, 4)}
    return nn.Sequential(OrderedDict(layers))


def imitate(model: nn.Module, epochs: int, frames: int = 16000) -> Iterator[str]:
    """Train the agent to predict the planner's moves; yield the accuracy in other mazes after each epoch."""
    games, others = play(frames, seed=1), play(1000, seed=2)
    examples, held_out = (games.images, games.moves), (others.images, others.moves)
    for right in classify(model, examples, held_out, epochs=epochs, batch=64, rate=2e-3):
        yield f"{right:.0%} of the planner's moves in other mazes"


def run(folder: Path, epochs: int | None = None) -> None:
    """Train three agents, ask the questions, and write tables and pictures into the folder."""
    epochs = epochs or EPOCHS
    learn = partial(imitate, epochs=epochs)
    agents = trained(folder, "agent", agent, learn)
    again = trained(folder, "agent-seed-1", partial(agent, 1), learn)
    wide = trained(folder, "agent-wide", wide_agent, learn)
    games = play(7500, seed=3)  # mazes of their own
    keep = slice(None, None, 5)  # neighboring frames say the same

    print("\n2.1 Does PacMan see ghosts?")
    print(f"{len(games.game[keep])} frames of {games.game.max() + 1} games in new mazes.")
    ghost = ask_ghost(agents, games, keep)
    ghost.to_csv(folder / "pacman-ghost.csv", index=False)
    last = max(agents)
    final, untrained = ghost[ghost.epoch == last], ghost[ghost.epoch == 0]
    best = final.nlargest(5, "value")
    print(pictures.text(best[["address", "unit", "value", "low", "high", "baseline", "q"]]))
    print(f"The best untrained unit has {untrained.value.max():.3f}: some filters see colors by chance.")
    address, unit = best.address.iloc[0], int(best.unit.iloc[0])
    _draw_ghost(folder, agents[last], games, final, untrained, address, unit)

    print("\n2.2 When does learning happen? The same units over epochs.")
    chosen = ghost.merge(best[["address", "unit"]]).assign(
        name=lambda t: t.address + "[" + t.unit.astype(str) + "]"
    )
    print(chosen.pivot_table(index="epoch", columns="name", values="value").round(3).to_string())
    drawn, (panel,) = pictures.figure(1, width=6)
    pictures.curves(panel, chosen, "IoU with the ghost", by="name")
    pictures.save(drawn, folder, "pacman-epochs")

    print("\n2.3 Does PacMan anticipate? The best unit for each idea, at its best threshold.")
    many, given = ask_many(agents[last], games, keep), ask_given(agents[last], games, keep)
    many.to_csv(folder / "pacman-ideas.csv", index=False)
    overlap = many[many.score == "iou_max"]
    best = overlap.loc[overlap.groupby("target", sort=False).value.idxmax()]
    print(pictures.text(best[["target", "address", "unit", "value", "low", "high", "baseline", "q"]]))
    drawn, (panel,) = pictures.figure(1, height=3.6)
    pictures.heat(
        drawn, panel, _relative(overlap), "IoU above its baseline, relative to the best unit of the row"
    )
    pictures.save(drawn, folder, "pacman-ideas")

    print(
        "\nIs that anticipation? Correlations of the best unit, with the ghost's future (+) and its past (-)."
    )
    summary = _anticipation(many, given)
    summary.to_csv(folder / "pacman-given.csv", index=False)
    print(pictures.text(summary))
    print(
        "given: without what follows from where everything is now, and which cells are near\n"
        "PacMan and the ghost. The ghost moves one cell at a time and chases PacMan, so a unit\n"
        "that is blurred around either seems to anticipate.\n"
        "What counts is r + given above r - given and above the baseline."
    )

    print("\nIs this detector unique? The same question to another seed and another architecture.")
    networks = {"agent": agents, "agent, seed 1": again, "wide agent": wide}
    unique = _unique(networks, games, keep)
    unique.to_csv(folder / "pacman-unique.csv", index=False)
    print(pictures.text(unique))
    print(
        "detectors: units with IoU above .04 (NetDissect's threshold), above the untrained best, and q < .05."
    )


def _relative(overlap: pandas.DataFrame) -> pandas.DataFrame:
    """Return ideas by units: the value above the baseline as a share of the best in the row."""
    above = (overlap.value - overlap.baseline).clip(lower=0)
    names = overlap.address + "[" + overlap.unit.astype(str) + "]"
    table = overlap.assign(above=above, name=names).pivot_table(
        index="target", columns="name", values="above", sort=False
    )
    return table.div(table.max(axis=1).replace(0, 1), axis=0)


def _anticipation(many: pandas.DataFrame, given: pandas.DataFrame) -> pandas.DataFrame:
    """Return the largest correlation of a unit with the ghost's future and past, plain and partial."""
    rows = []
    for ahead in AHEAD:
        row: dict[str, object] = {"steps": ahead}
        for kind, table in (("", many[many.score == "correlation"]), (" given", given)):
            for sign, steps in (("+", ahead), ("-", -ahead)):
                units = table[table.target == f"ghost{steps:+d}"]
                best = units.loc[units.value.abs().idxmax()]
                row |= {f"r {sign}{kind}": best.value}
            row |= {f"baseline{kind}": best.baseline}
        rows.append(row)
    return pandas.DataFrame(rows)


def _unique(networks: dict[str, dict[int, nn.Module]], games: Frames, keep: slice) -> pandas.DataFrame:
    """Return for each network how many units see the ghost, and the best, before and after training."""
    rows = []
    for name, agents in networks.items():
        table = ask_ghost({0: agents[0], 1: agents[max(agents)]}, games, keep)
        before, after = table[table.epoch == 0], table[table.epoch == 1]
        best = after.loc[after.value.idxmax()]
        sure = (after.value > max(0.04, before.value.max())) & (after.low > after.baseline) & (after.q < 0.05)
        best_unit = f"{best.address}[{best.unit}]"
        row = {"network": name, "units": len(after), "detectors": int(sure.sum()), "best unit": best_unit}
        rows.append(
            row
            | {"iou": best.value, "low": best.low, "high": best.high, "untrained best": before.value.max()}
        )
    return pandas.DataFrame(rows)


def _draw_ghost(
    folder: Path,
    model: nn.Module,
    games: Frames,
    final: pandas.DataFrame,
    untrained: pandas.DataFrame,
    address: str,
    unit: int,
) -> None:
    """Draw the bars of section 2.1 and the best unit over a frame."""
    drawn, panels = pictures.figure(3, width=13, widths=[1, 1.4, 1])
    for panel, layer in zip(panels, ("conv1", "conv2"), strict=False):
        one, other = (table[table.address == layer] for table in (final, untrained))
        pictures.bars(panel, one, f"{layer}: IoU with the ghost", beside=other)
    images = torch.tensor(games.images[:FEW])
    seen = np.asarray(trace(model, images).value(f"{address}[{unit}]")).reshape(FEW, HEIGHT, WIDTH)
    top = float(np.quantile(seen, 0.995))  # the threshold of the score
    title = f"{address}[{unit}] over a frame"
    pictures.over(panels[2], games.images[FRAME].transpose(1, 2, 0), seen[FRAME], top, title)
    pictures.save(drawn, folder, "pacman-ghost")
