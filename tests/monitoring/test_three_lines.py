"""Scripts of a stranger's trainings, in which at most three lines are of intus, beside the import."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from intus.monitoring import flush
from intus.serving.run import Server
from intus.storage.database import Database

LANGUAGE_MODEL = """
import sys, torch, numpy as np
from torch.nn import functional as F
import intus
tokens = np.random.default_rng(0).integers(1, 50, (256, 12))
tokens[:, 1::2] = (tokens[:, 0::2] * 7 + 3) % 50
class LM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lstm = torch.nn.Embedding(50, 16), torch.nn.LSTM(16, 24, batch_first=True)
        self.out = torch.nn.Linear(24, 50)
    def forward(self, x):
        return self.out(self.lstm(self.emb(x))[0])
torch.manual_seed(0)
model = LM()
watch = intus.probe(model, port=int(sys.argv[1]), run="r")
intus.register_targets(port=int(sys.argv[1]), name="parity", targets=tokens % 2)
intus.register_targets(port=int(sys.argv[1]), name="first", targets=tokens[:, 0] // 10)
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
loader = torch.utils.data.DataLoader(torch.tensor(tokens), batch_size=32, shuffle=True, num_workers=2)
for epoch in range(2):
    for step, x in enumerate(loader):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x)[:, :-1].reshape(-1, 50), x[:, 1:].reshape(-1)) / 2
        loss.backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
print(sum(float(p.detach().double().sum()) for p in model.parameters()))
"""
TRANSLATOR = """
import sys, torch, numpy as np
from torch.nn import functional as F
import intus
rng = np.random.default_rng(0)
source = np.where(np.arange(8) < rng.integers(4, 9, (260, 1)), rng.integers(1, 40, (260, 8)), 0)
tags = [[int(word % 4) if word else None for word in row] for row in source]
class Translator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.o = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 40)
        self.t = torch.nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    def forward(self, a, b):
        return self.o(self.t(self.e(a), self.e(b), src_key_padding_mask=a == 0))
torch.manual_seed(0)
model, A = Translator(), torch.tensor(source)
B = A.flip(1)
optimizer = torch.optim.Adam(model.parameters(), 2e-3)
held_out = (A[200:], B[200:]), {"pos": tags[200:]}, {"layers": {"pos": "encoder"}}
watch = intus.probe(model, port=int(sys.argv[1]), run="r", probe_set=held_out)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(A[:200], B[:200]), 50, shuffle=True)
for epoch in range(2):
    for a, b in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(a, b).reshape(-1, 40), b.reshape(-1)).backward()
        optimizer.step()
print(sum(float(p.detach().double().sum()) for p in model.parameters()))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "model", "epochs", "targets"),
    [
        (LANGUAGE_MODEL, "LM", {1, 2}, {"parity", "first"}),
        (TRANSLATOR, "Translator", {0, 1, 2}, {"pos"}),
    ],
    ids=["language model", "translator"],
)
def test_script_needs_three_lines_and_trains_the_same(tmp_path, script, model, epochs, targets):
    ours = [line for line in script.splitlines() if "intus." in line or line.startswith("held_out")]
    assert len(ours) <= 3
    plain = "\n".join(line for line in script.splitlines() if line not in ours)
    with Server(database=tmp_path / "x.db", port=0) as server:

        def run(text):
            command = [sys.executable, "-W", "ignore", "-c", text, str(server.port)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert run(script) == run(plain)
        assert flush(server.host, server.port)
    with Database(tmp_path / "x.db") as database:
        scores = database.points("r", model).where(score="lda_f1")
        assert set(scores["epoch"].tolist()) == epochs
        assert set(scores["target"].tolist()) == targets
        layers = {
            address: set(scores.where(address=address)["epoch"].tolist()) for address in scores["address"]
        }
        assert set(map(frozenset, layers.values())) == {frozenset(epochs)}  # none vanishes after the first
        assert not [note for note in database.notices() if note["level"] == "error"]
