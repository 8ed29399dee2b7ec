"""A plain PyTorch training script with two lines of intus: a small network learns handwritten digits.

Start ``intus serve``, then run:  python -m intus.demo.digits --epochs 6
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from intus import flush, probe


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
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    learn = torch.randperm(len(images))
    learn, unseen = learn[:1200], learn[1200:]
    loader = DataLoader(TensorDataset(images[learn], labels[learn]), batch_size=64, shuffle=True)
    model = DigitsNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    # The probe runs the unseen images on the untrained network as epoch 0, and after each epoch, which it
    # finds from the DataLoader. block=True waits rather than drops.
    ink = images[unseen].flatten(1)
    targets = {
        "digit": labels[unseen],
        "even or odd": ["even" if digit % 2 == 0 else "odd" for digit in labels[unseen].tolist()],
        "ink above the middle": ink[:, :32].sum(1) > ink[:, 32:].sum(1),
    }
    probe(model, host, port, run=run, probe_set=(images[unseen], targets), block=True)

    for epoch in range(epochs + 1):
        if epoch:
            model.train()
            for rows, digit in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(rows), digit).backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(images[unseen]).argmax(1) == labels[unseen]).float().mean()
        print(f"epoch {epoch:2d}: {accuracy:.1%} of the unseen digits correct", flush=True)
        if checkpoints:
            torch.save(model.state_dict(), checkpoints / f"{epoch}.pt")
    while not flush(host, port):
        print("The scores are not done yet; waiting for them.", flush=True)
    return float(accuracy)


def main(arguments: list[str] | None = None) -> None:
    """Train with the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8082)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--run")
    parser.add_argument("--checkpoints", type=Path)
    train(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
