"""An LSTM that reads a handwritten digit row by row, scored on a probe set.

Start ``intus serve``, then run:  python -m intus.examples.lstm
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from intus import flush, probe


class Reader(nn.Module):
    """An LSTM over the eight rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 24)
        self.lstm = nn.LSTM(24, 48, num_layers=2, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, 10) of images (n, 8, 8)."""
        states, _ = self.lstm(self.embed(images))
        return self.head(states[:, -1])


def train(host: str = "127.0.0.1", port: int = 8082, epochs: int = 5, run: str | None = None) -> None:
    """Train for some epochs; after each, run the probe set and send its layers to the server."""
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)
    ink = images.sum(2)
    targets: dict[str, list[object]] = {
        "digit": labels.tolist(),  # one label per image; the other targets have one per row of the image
        "ink so far": (ink.cumsum(1) > ink.sum(1, keepdim=True) / 2).tolist(),
        "ink in this row": (ink > ink.mean()).tolist(),
    }
    held_out = torch.randperm(len(images))[:500]
    learn = torch.ones(len(images), dtype=torch.bool).index_fill(0, held_out, False).nonzero()[:, 0]
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    known = {name: [values[item] for item in held_out.tolist()] for name, values in targets.items()}
    watch = probe(model, host, port, name="LSTM", run=run, probe_set=(images[held_out], known))
    watch.run_probe_set()  # the untrained network is epoch 0

    for watch.epoch in range(1, epochs + 1):
        for items in learn[torch.randperm(len(learn))].split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[items]), labels[items])
            loss.backward()
            optimizer.step()
        print(f"LSTM, epoch {watch.epoch}: loss {loss.item():.3f}", flush=True)
    watch.remove()
    flush(host, port)


if __name__ == "__main__":
    train()
