"""A plain PyTorch training script with a few lines of intus: a small network learns handwritten digits.

Start ``intus serve``, then run:  python -m intus.demo.digits --epochs 10
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from intus import flush, probe, register_targets


class DigitsNet(nn.Module):
    """A small convolutional network for images of 8 by 8 pixels and ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Conv2d(24, 32, 3, padding=1), nn.ReLU()),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, 10) of images (n, 1, 8, 8)."""
        return self.classifier(self.features(images))


def train(
    host: str, port: int, epochs: int, run: str | None = None, checkpoints: Path | None = None
) -> float:
    """Train the network.

    Args:
        host: The host of the server.
        port: The server's port for probes.
        epochs: The number of epochs.
        run: The name of the run. Default: chosen by ``probe``.
        checkpoints: The folder to save a checkpoint in after each epoch. Default: none.

    Returns:
        The accuracy on images that the network was not trained on.
    """
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = (
        torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16,
        torch.tensor(digits.target),
    )
    learn = torch.randperm(len(images))[:1200]
    held_out = torch.ones(len(images), dtype=torch.bool).index_fill(0, learn, False)
    model = DigitsNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    # Probe the evaluation pass over all images at the end of each epoch. block=True waits rather than drops.
    watch = probe(model, host, port, run=run, when=lambda model, operation: not model.training, block=True)
    ink = images.flatten(1)
    register_targets(host, port, name="digit", targets=labels)
    register_targets(
        host, port, name="even or odd", targets=["even" if d % 2 == 0 else "odd" for d in labels.tolist()]
    )
    register_targets(host, port, name="ink above the middle", targets=ink[:, :32].sum(1) > ink[:, 32:].sum(1))

    for epoch in range(epochs + 1):  # epoch 0 is the untrained network
        watch.epoch = epoch
        if epoch:
            model.train()
            for rows in learn[torch.randperm(len(learn))].split(64):
                watch.items = rows  # the ids of these images, which are shuffled
                optimizer.zero_grad()
                F.cross_entropy(model(images[rows]), labels[rows]).backward()
                optimizer.step()
        model.eval()
        watch.items = range(len(images))
        with torch.no_grad():
            correct = model(images).argmax(1) == labels
        print(
            f"epoch {epoch:2d}: {correct[held_out].float().mean():.1%} of the unseen digits correct",
            flush=True,
        )
        if checkpoints:
            torch.save(model.state_dict(), checkpoints / f"{epoch}.pt")
    flush(host, port)
    return float(correct[held_out].float().mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8082)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--run")
    parser.add_argument("--checkpoints", type=Path)
    train(**vars(parser.parse_args()))
