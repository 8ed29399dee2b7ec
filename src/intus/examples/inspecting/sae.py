"""Train a sparse autoencoder on a character model; score its features beside neurons and random features.

The model is that of ``intus examples python``. A sparse autoencoder with 512 features, 16 of them active at a
time (TopK), learns to reconstruct the 128 units of its LSTM. Are its features closer to strings, comments and
keywords than single units are, and than any 512 directions would be?

Run:  intus examples sae
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas
import torch
from torch import nn

from intus import Dictionary, inspect

from . import pictures
from .python import EPOCHS, Reader, learn, new_reader, records
from .training import trained

FEATURES, ACTIVE, STEPS = 512, 16, 800
NAMES = {"lstm": "neurons", "lstm (SAE)": "SAE", "lstm (random SAE)": "random"}


def ask(
    model: nn.Module, windows: np.ndarray, ideas: dict[str, np.ndarray], files: np.ndarray, sae: Sparse
) -> pandas.DataFrame:
    """Score neurons, features and, always, random features."""
    features = Dictionary(sae, sae.decode.weight.T, center=sae.center, name="SAE")
    return inspect(
        model, ideas, ["correlation", "iou_max"], windows, ["lstm", ("lstm", features)], groups=files
    )


class Sparse(nn.Module):
    """A sparse autoencoder whose ``active`` largest features are kept."""

    center: torch.Tensor
    scale: torch.Tensor

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        width = rows.shape[1]
        self.encoder, self.decode = nn.Linear(width, FEATURES), nn.Linear(FEATURES, width, bias=False)
        self.register_buffer("center", rows.mean(0))
        self.register_buffer("scale", rows.std())

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the features (n, 512) of rows (n, 128), whose center has been subtracted."""
        values, places = self.encoder(rows / self.scale).relu().topk(ACTIVE, dim=-1)
        return torch.zeros(len(rows), FEATURES, device=rows.device).scatter_(-1, places, values)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the reconstruction of rows (n, 128)."""
        return self.decode(self.encode(rows - self.center)) * self.scale + self.center


def fit(rows: torch.Tensor) -> Sparse:
    """Train the autoencoder; print how much of the variance it leaves unexplained."""
    torch.manual_seed(0)
    began, sae = time.process_time(), Sparse(rows)
    sae.encoder.weight.data = sae.decode.weight.data.T.clone()
    variance = rows.var(0).mean()
    optimizer = torch.optim.Adam(sae.parameters(), lr=2e-3)
    for _ in range(STEPS):
        some = rows[torch.randint(len(rows), (512,))]
        loss = (sae(some) - some).square().mean() / variance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"SAE: trained in {time.process_time() - began:.0f} s of CPU time, {loss.item():.0%} unexplained")
    return sae.eval()


def run(folder: Path, epochs: int | None = None) -> None:
    """Train the model and the autoencoder, ask, and write the table and the picture into the folder."""
    models = trained(folder, "reader", new_reader, partial(learn, epochs=epochs or EPOCHS))
    model = models[max(models)]
    assert isinstance(model, Reader)
    windows, ideas, files = records()
    first = (
        files < files.max() // 2
    )  # the autoencoder learns from some files, the question is asked of others
    with torch.no_grad():
        rows = model.lstm(model.embed(torch.tensor(windows[first])))[0].flatten(0, 1)
    sae = fit(rows)
    classes = {name: idea[~first] for name, idea in ideas.items() if name != "bracket depth"}
    table = ask(model, windows[~first], classes, files[~first], sae)
    table.to_csv(folder / "sae.csv", index=False)
    alive = table.dropna(subset="value").assign(
        strength=lambda t: t.value.abs(), units=lambda t: t.address.map(NAMES)
    )
    best = (
        alive.groupby(["score", "target", "units"], sort=False).strength.max().unstack()[list(NAMES.values())]
    )
    best.to_csv(folder / "sae-summary.csv")
    print(
        f"\nThe best of 128 neurons, {FEATURES} features and as many random ones; {(~first).sum()} windows."
    )
    print(best.round(3).to_string())
    print("A dictionary offers more units to choose from; only what exceeds the random one has been learned.")
    drawn, panels = pictures.figure(2)
    for panel, score in zip(panels, ("correlation", "iou_max"), strict=True):
        best.loc[score].plot.bar(ax=panel, rot=20, title=f"{score} of the best unit", xlabel="")
    pictures.save(drawn, folder, "sae")
