"""A small transformer that learns to write Python, character by character, from the standard library.

Its layers are scored on properties that it is not trained on: the kind of token that each character belongs
to (keyword, name, string, comment), and whether it is inside brackets.

Start ``intus serve``, then run:  python -m intus.examples.transformer
"""

import torch
import torch.nn.functional as F
from torch import nn

from intus import flush, probe
from intus.examples.python_source import CHARACTERS, LENGTH, read


class Writer(nn.Module):
    """A decoder-only transformer over characters."""

    mask: torch.Tensor

    def __init__(self, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(len(CHARACTERS), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.next = nn.Linear(width, len(CHARACTERS))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, t, characters) of the next character for codes (n, t)."""
        x = self.characters(codes) + self.positions.weight[: codes.shape[1]]
        for block in self.blocks:
            x = block(x, src_mask=self.mask[: codes.shape[1], : codes.shape[1]], is_causal=True)
        return self.next(x)


def train(host: str = "127.0.0.1", port: int = 8082, epochs: int = 5, run: str | None = None) -> None:
    """Train for some epochs; after each, run the probe set and send its layers to the server."""
    torch.manual_seed(0)
    codes, kinds, brackets = read()
    order = torch.randperm(len(codes))
    held_out, learn = order[:150], order[150:]
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    chosen = held_out.tolist()
    labels = {"kind of word": [kinds[k] for k in chosen], "brackets": [brackets[k] for k in chosen]}
    layers = [f"blocks.{k}" for k in range(3)] + ["characters", "next"]
    watch = probe(
        model,
        host,
        port,
        name="Transformer",
        run=run,
        which=lambda model, operation: operation.address in layers,
        probe_set=(codes[held_out], labels),
    )
    watch.run_probe_set()  # the untrained network is epoch 0

    for watch.epoch in range(1, epochs + 1):
        for items in learn[torch.randperm(len(learn))].split(64):
            optimizer.zero_grad()
            logits = model(codes[items])[:, :-1]
            loss = F.cross_entropy(logits.flatten(0, 1), codes[items][:, 1:].flatten())
            loss.backward()
            optimizer.step()
        print(f"Transformer, epoch {watch.epoch}: loss {loss.item():.3f}", flush=True)
    watch.remove()
    flush(host, port)


if __name__ == "__main__":
    train()
