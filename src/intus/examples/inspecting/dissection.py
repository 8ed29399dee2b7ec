"""Dissect a small CNN as in NetDissect: do detectors of shapes emerge in a network that classifies scenes?

A scene is an image with two shapes of any colors; its class is which two. No label ever says where a shape
is, and colors do not matter. Each unit is labeled with the idea whose mask overlaps its top activations most
(Bau et al. 2017); emerging object detectors are the finding of Zhou et al. 2015.

Run:  intus examples dissection
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas
import torch
from torch import nn

from intus import inspect, trace
from intus.scores import iou

from . import pictures
from .training import classify, trained

EPOCHS, SIZE = 8, 32
SHAPES = ("disc", "frame", "cross", "stripes")
COLORS = {"red": (0.9, 0.2, 0.2), "green": (0.2, 0.8, 0.2), "blue": (0.3, 0.3, 1.0)}
SCENES = list(combinations(range(len(SHAPES)), 2))
TOP = 0.02  # the share of pixels where a unit counts as active; NetDissect has .005 of larger images
DETECTOR = 0.04  # NetDissect's threshold


def ask(models: dict[int, nn.Module], images: np.ndarray, masks: dict[str, np.ndarray]) -> pandas.DataFrame:
    """Score every unit of every layer against every mask."""
    return inspect(models, masks, iou(TOP), images, ["relu1", "relu2", "relu3"])


def scenes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return images (count, 3, 32, 32), their classes, and a mask for each shape and color."""
    rng = np.random.default_rng(seed)
    images = rng.normal(0.3, 0.05, (count, 3, SIZE, SIZE)).astype(np.float32)
    classes = rng.integers(len(SCENES), size=count)
    masks = {name: np.zeros((count, SIZE, SIZE), bool) for name in (*SHAPES, *COLORS)}
    for k in range(count):
        for shape, quarter in zip(SCENES[classes[k]], rng.choice(4, 2, replace=False), strict=True):
            color = list(COLORS)[rng.integers(len(COLORS))]
            row, column = rng.integers(0, 6, 2) + np.array([quarter // 2, quarter % 2]) * SIZE // 2
            window = slice(row, row + 11), slice(column, column + 11)
            images[(k, slice(None), *window)][:, _ink(SHAPES[shape])] = np.array(COLORS[color])[:, None]
            masks[SHAPES[shape]][k][window] = masks[color][k][window] = True
    return images, classes, masks


def _ink(shape: str) -> np.ndarray:
    """Return which pixels of an 11 x 11 window a shape colors."""
    rows, columns = np.indices((11, 11)) - 5
    ring = np.maximum(abs(rows), abs(columns))
    return {
        "disc": rows**2 + columns**2 <= 20,
        "frame": (ring >= 3) & (ring <= 4),
        "cross": (ring <= 4) & (np.minimum(abs(rows), abs(columns)) <= 1),
        "stripes": (ring <= 4) & (rows % 3 == 0),
    }[shape]


def classifier() -> nn.Module:
    """Return the untrained network: three convolutions, the mean over places, and the class."""
    torch.manual_seed(0)
    layers = {"conv1": nn.Conv2d(3, 16, 3, padding=1), "relu1": nn.ReLU()}
    layers |= {"conv2": nn.Conv2d(16, 32, 3, stride=2, padding=1), "relu2": nn.ReLU()}
    layers |= {"conv3": nn.Conv2d(32, 32, 5, stride=2, padding=2), "relu3": nn.ReLU()}
    head = {"mean": nn.AdaptiveMaxPool2d(1), "flat": nn.Flatten(), "scene": nn.Linear(32, len(SCENES))}
    return nn.Sequential(OrderedDict(layers | head))


def learn(model: nn.Module, epochs: int) -> Iterator[str]:
    """Train the network to classify scenes; yield the accuracy on other images after each epoch."""
    examples, held_out = scenes(4000, seed=1)[:2], scenes(500, seed=2)[:2]
    for right in classify(model, examples, held_out, epochs=epochs, batch=50, rate=3e-3):
        yield f"{right:.0%} of other scenes"


def run(folder: Path, epochs: int | None = None) -> None:
    """Train the network, dissect it before and after, and write the table and the picture into the folder."""
    models = trained(folder, "scenes", classifier, partial(learn, epochs=epochs or EPOCHS))
    images, _, masks = scenes(600, seed=3)
    last = max(models)
    table = ask({0: models[0], last: models[last]}, images, masks)
    table.to_csv(folder / "dissection.csv", index=False)
    labeled = label(table)
    print(
        f"\nUnits by the idea that they overlap most, if IoU > {DETECTOR} and q < .05; {len(images)} images."
    )
    counts = labeled.groupby(["epoch", "address", "target"]).size().unstack(fill_value=0)
    print(counts.reindex(columns=[*SHAPES, *COLORS], fill_value=0).to_string())
    best = table[table.epoch == last].nlargest(200, "value").groupby("target").head(1)
    print("\nThe best unit for each idea, beside the best of the untrained network.")
    new = table[table.epoch == 0].groupby("target").value.max().rename("untrained best").reset_index()
    best = best.merge(new, on="target")
    print(
        pictures.text(
            best[["target", "address", "unit", "value", "low", "high", "baseline", "q", "untrained best"]]
        )
    )
    best.to_csv(folder / "dissection-best.csv", index=False)
    drawn, panels = pictures.figure(3, width=9, widths=[1.6, 1, 1])
    panels[0].bar(range(len(best)), best.value, color="#3b6fb6", label="trained")
    panels[0].plot(
        range(len(best)), best["untrained best"], "_", color="#d1495b", markersize=12, label="untrained"
    )
    panels[0].set(title="IoU of the best unit", xticks=range(len(best)))
    panels[0].set_xticklabels(best.target, rotation=30, fontsize=8)
    panels[0].legend(fontsize=8)
    for panel, (address, unit, idea) in zip(panels[1:], _shown(labeled[labeled.epoch == last]), strict=False):
        values = np.asarray(trace(models[last], torch.tensor(images)).value(f"{address}[{unit}]"))
        step = SIZE // values.shape[1]
        nearest = ((np.arange(SIZE) + step // 2) // step).clip(max=values.shape[1] - 1)
        values = values[:, nearest][
            :, :, nearest
        ]  # a stride without a shift: place k of the map is pixel k * step
        k = int(values.max((1, 2)).argmax())
        title = f"{address}[{unit}]: {idea}"
        pictures.over(
            panel, images[k].transpose(1, 2, 0), values[k], float(np.quantile(values, 1 - TOP)), title, 2
        )
    pictures.save(drawn, folder, "dissection")


def label(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return one row for each unit that is a detector: the idea with the largest IoU."""
    alive = table.dropna(subset="value")  # a unit that never changes overlaps nothing
    best = alive.loc[alive.groupby(["epoch", "address", "unit"]).value.idxmax()]
    return best[(best.value > DETECTOR) & (best.low > best.baseline) & (best.q < 0.05)]


def _shown(labeled: pandas.DataFrame) -> list[tuple[str, int, str]]:
    """Return the best detectors of two different shapes."""
    shapes = (
        labeled[labeled.target.isin(SHAPES)].sort_values("value", ascending=False).groupby("target").head(1)
    )
    return list(shapes[["address", "unit", "target"]].head(2).itertuples(index=False, name=None))
