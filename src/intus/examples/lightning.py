"""A convolutional network on handwritten digits in Lightning, probed by one callback.

Needs lightning. Start ``intus serve``, then run:  python -m intus.examples.lightning
"""

from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(host: str = "127.0.0.1", port: int = 8082, epochs: int = 5, run: str | None = None) -> None:
    """Train for some epochs, and send every layer to the server."""
    import lightning

    from intus.callbacks import LightningProbe

    class Digits(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                OrderedDict(
                    conv1=nn.Conv2d(1, 12, 3),
                    relu1=nn.ReLU(),
                    conv2=nn.Conv2d(12, 24, 3),
                    relu2=nn.ReLU(),
                    pool=nn.MaxPool2d(2),
                    flatten=nn.Flatten(),
                    head=nn.Linear(96, 10),
                )
            )

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=2e-3)

    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    targets = {"digit": labels[:500], "even": labels[:500] % 2 == 0}
    held_out = images[:500], targets
    watching = LightningProbe(host, port, of="net", name="CNN (Lightning)", run=run, probe_set=held_out)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=epochs, callbacks=[watching], accelerator="auto", **quiet)
    trainer.fit(Digits(), DataLoader(TensorDataset(images[500:], labels[500:]), batch_size=64, shuffle=True))


if __name__ == "__main__":
    train()
