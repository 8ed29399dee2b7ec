"""A translator that is watched while it learns: which layer knows what, and when?

A transformer translates sentences that a grammar makes (``grammar``), so that the part of speech and the
entity of each word and the topic of each sentence are known exactly. Its encoder and decoder are scored on
all three after every epoch: the plan of the paper on Vivisect. ``analysis`` puts the result into words.

Start ``intus serve --scores default,linear_selectivity``, then run ``intus examples translation``.
Afterwards ``python -m intus.examples.translation runs.db`` repeats the analysis of a database's newest run,
and draws the curves.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from intus import flush, probe, runs
from intus.examples.translation.analysis import report
from intus.examples.translation.grammar import SOURCE, sentences
from intus.examples.translation.model import LAYERS, Translator, encode, labels

TRAINED, TESTED = 4000, 800


def train(host: str = "127.0.0.1", port: int = 8082, epochs: int = 12, run: str | None = None) -> None:
    """Train for some epochs; after each, run the probe set and send its layers to the server."""
    torch.manual_seed(0)
    ids, others = encode(sentences(TRAINED, seed=1))
    tested = sentences(TESTED, seed=3)
    asked, written = encode(tested)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    known = labels(tested)
    next_ids = written[:, 1:]
    meant: dict[str, dict[str, Any]] = {"types": {}, "layers": {}}
    for name in known:
        if name != "topic":  # of whole sentences, for both sides
            of_source = len(known[name][0]) == SOURCE
            meant["types"][name] = asked if of_source else next_ids
            meant["layers"][name] = "source|encoder" if of_source else "target|decoder"
    watch = probe(
        model, host, port, run=run, which=LAYERS, probe_set=((asked, written[:, :-1]), known, meant)
    )
    watch.run_probe_set()  # the untrained network is epoch 0

    for watch.epoch in range(1, epochs + 1):
        for chosen in torch.randperm(len(ids)).split(64):
            optimizer.zero_grad()
            logits = model(ids[chosen], others[chosen, :-1]).flatten(0, 1)
            F.cross_entropy(logits, others[chosen, 1:].flatten(), ignore_index=0).backward()
            optimizer.step()
        with torch.no_grad():
            right = model(asked, written[:, :-1]).argmax(2) == written[:, 1:]
        share = right[written[:, 1:] > 0].float().mean()
        print(f"Translator, epoch {watch.epoch}: {share:.1%} of the words of other sentences", flush=True)
    watch.remove()
    if flush(host, port, run=watch.run, timeout=900):
        print(report(runs(f"{host}:{port}")[watch.run].scores(model=watch.model)))
