"""Test with concept activation vectors (TCAV): does the class of a scene depend on shapes and on colors?

The network is that of ``intus examples dissection``: the class of an image is which two shapes it shows, in
any colors. A layer may encode colors without the class depending on them. TCAV (Kim et al. 2018) asks for the
second: does the output of a class grow along the direction of a concept?

Run:  intus examples tcav
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas
from torch import nn

from intus import inspect

from . import pictures
from .dissection import COLORS, EPOCHS, SCENES, SHAPES, classifier, learn, scenes
from .training import trained

LAYERS = ["relu2", "relu3"]


def ask(
    model: nn.Module, images: np.ndarray, concepts: dict[str, np.ndarray], scene: int
) -> pandas.DataFrame:
    """Score how the output for a scene depends on each concept, and how well layers encode it."""
    return inspect(model, concepts, ["tcav", "linear_f1"], images, LAYERS, output=scene)


def run(folder: Path, epochs: int | None = None) -> None:
    """Train the network, ask of each scene, and write the table and the picture into the folder."""
    models = trained(folder, "scenes", classifier, partial(learn, epochs=epochs or EPOCHS))
    model = models[max(models)]
    images, _, masks = scenes(1500, seed=3)
    concepts = {name: np.asarray(mask.any((1, 2))) for name, mask in masks.items()}
    tables = [ask(model, images, concepts, scene).assign(scene=_name(scene)) for scene in range(len(SCENES))]
    table = pandas.concat(tables, ignore_index=True)
    table["planted"] = [
        _planted(scene, concept) for scene, concept in zip(table.scene, table.target, strict=True)
    ]
    table.to_csv(folder / "tcav.csv", index=False)
    scored = table[table.score == "tcav"]
    deep = scored[scored.address == LAYERS[-1]]
    print(f"\nTCAV in {LAYERS[-1]}: the share of a scene's images whose output grows along the concept.")
    values = deep.pivot_table(index="scene", columns="target", values="value", sort=False)
    print(values.round(2).to_string())
    print("\np: two-sided, against random concepts (permuted labels).")
    print(deep.pivot_table(index="scene", columns="target", values="p", sort=False).round(3).to_string())
    encoded = table[(table.score == "linear_f1") & (table.scene == _name(0))]
    print("\nWhat a linear probe reads: the layers encode colors, though no class depends on them.")
    print(
        encoded.pivot_table(index="address", columns="target", values="value", sort=False)
        .round(2)
        .to_string()
    )
    drawn, (left, right) = pictures.figure(2)
    pictures.heat(drawn, left, values, f"TCAV in {LAYERS[-1]}")
    for kind, rows in deep.groupby("planted", sort=False):
        right.plot(rows.value, rows.p, "o", label=kind)
    right.axhline(0.05, color="black", linestyle=":", linewidth=1)
    right.set(title="each concept and scene", xlabel="TCAV", ylabel="p")
    right.legend(fontsize=8)
    pictures.save(drawn, folder, "tcav")


def _name(scene: int) -> str:
    return " + ".join(SHAPES[shape] for shape in SCENES[scene])


def _planted(scene: str, concept: str) -> str:
    """Return what the class has to do with the concept."""
    if concept in COLORS:
        return "color"
    return "shape of the scene" if concept in scene.split(" + ") else "other shape"
