"""A small transformer that learns to write Python, character by character, from the standard library.

What each layer knows of every character, which nobody tells the network: is it in a keyword, a name, a
string, a comment, and does it stand in brackets?

Run it beside ``intus serve``:  python -m intus.examples.transformer
"""

import torch
import torch.nn.functional as F
from torch import nn

from intus import flush, probe
from intus.examples.python_source import CHARACTERS, LENGTH, read


class Writer(nn.Module):
    mask: torch.Tensor

    def __init__(self, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(len(CHARACTERS), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.next = nn.Linear(width, len(CHARACTERS))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        x = self.characters(codes) + self.places.weight[: codes.shape[1]]
        for block in self.blocks:
            x = block(x, src_mask=self.mask[: codes.shape[1], : codes.shape[1]], is_causal=True)
        return self.next(x)


def train(host: str = "127.0.0.1", port: int = 8082, epochs: int = 5, run: str | None = None) -> None:
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
            said = model(codes[items])[:, :-1]
            loss = F.cross_entropy(said.flatten(0, 1), codes[items][:, 1:].flatten())
            loss.backward()
            optimizer.step()
        print(f"Transformer, epoch {watch.epoch}: loss {loss.item():.3f}", flush=True)
    watch.remove()
    flush(host, port)


if __name__ == "__main__":
    train()
