"""Tests of ``collect``: the activations of many batches in one file."""

import inspect as source_of
import json
import pickle

import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.data import DataLoader, TensorDataset

import intus
from intus.core.errors import AddressError, CodecError, InputError


def hooked(model, name, batches):
    """Return the outputs that a forward hook on a module sees; the reference."""
    kept = []
    hook = model.get_submodule(name).register_forward_hook(
        lambda m, args, out: kept.append(out.detach().clone())
    )
    with torch.no_grad():
        for batch in batches:
            model(**batch) if isinstance(batch, dict) else model(batch)
    hook.remove()
    return torch.cat(kept)


def cnn():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)).eval()


def test_collect_digits(tmp_path):
    digits = load_digits()
    images, labels = torch.tensor(digits.images[:, None] / 16).float(), torch.tensor(digits.target)
    loader, model = DataLoader(TensorDataset(images, labels), batch_size=256), cnn()
    acts = intus.collect(
        model, loader, ["0", "relu_1", "linear"], tmp_path / "a.safetensors", inputs=lambda batch: batch[0]
    )
    assert list(acts) == ["0", "relu_1", "linear_1_4"]
    assert acts.counts == {"0": 1797, "relu_1": 1797, "linear_1_4": 1797}
    assert acts.parts["0"] == [(n, 256) for n in range(7)] + [(7, 5)]
    assert torch.equal(acts["0"], hooked(model, "0", images.split(256)))
    assert torch.equal(acts["linear_1_4"], hooked(model, "3", images.split(256)))
    classifier = LogisticRegression(max_iter=200).fit(acts["relu_1"].flatten(1)[:1000], labels[:1000])
    assert classifier.score(acts["relu_1"].flatten(1)[1000:], labels[1000:]) > 0.85
    plain = load_file(tmp_path / "a.safetensors")
    assert np.array_equal(plain["0"], acts["0"].numpy())
    again = pickle.loads(pickle.dumps(acts))
    assert torch.equal(again["0"][-1], acts["0"][-1])
    assert repr(acts) == "<Collected in a.safetensors, rows: 0 1,797, relu_1 1,797, linear_1_4 1,797>"


def test_collect_gpt2_with_transform(tmp_path):
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=3, n_head=2, n_embd=16, vocab_size=128, n_positions=32)
    model = transformers.GPT2Model(config).eval()
    text = source_of.getsource(json.decoder).encode()[: 32 * 50]
    ids = torch.tensor([byte % 128 for byte in text]).reshape(-1, 32)
    batches = [{"input_ids": part, "use_cache": False} for part in ids.split(16)]
    acts = intus.collect(
        model, batches, "h.*.mlp", tmp_path / "a", to=torch.float16, transform=lambda t: t.flatten(0, 1)
    )
    assert acts.counts == {"h.0.mlp": 1600, "h.1.mlp": 1600, "h.2.mlp": 1600}
    for name, value in acts.items():
        assert torch.equal(value, hooked(model, name, batches).flatten(0, 1).half())


class Steps(nn.Module):
    """Runs a cell once for each row of the batch."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(3, 3)

    def forward(self, x):
        h = x
        for _ in range(len(x)):
            h = torch.tanh(self.cell(h))
        return h


def test_collect_by_module_class(tmp_path):
    model, x = cnn(), torch.rand(3, 1, 8, 8)
    acts = intus.collect(model, [x], ["ReLU", "Linear"], tmp_path / "a.safetensors")
    assert list(acts) == ["1", "3"]
    assert torch.equal(acts["3"], model(x))


def test_passes_missing_in_some_batches(tmp_path):
    torch.manual_seed(0)
    model = Steps()
    batches = [torch.randn(1, 3), torch.randn(3, 3), torch.randn(2, 3)]
    acts = intus.collect(model, batches, ["cell", "tanh_1"], tmp_path / "a")
    assert acts.counts == {"cell:1": 6, "tanh_1:1": 6, "cell:2": 5, "cell:3": 3, "tanh_1:2": 5, "tanh_1:3": 3}
    assert acts.parts["cell:2"] == [(1, 3), (2, 2)]
    assert torch.equal(acts["cell"], torch.cat([model.cell(batch) for batch in batches]))
    only = intus.collect(model, batches, "cell:3", tmp_path / "b")
    assert torch.equal(only["cell:3"], acts["cell:3"])
    with pytest.raises(AddressError, match=r"^'cell:9' did not run in any batch.$"):
        intus.collect(model, batches, ["cell", "cell:9"], tmp_path / "b")
    with pytest.raises(AddressError, match=r"has no 'cel'. Did you mean 'cell'"):
        intus.collect(model, batches, ["cell", "cel"], tmp_path / "b")
    with pytest.raises(AddressError, match="has no 'sell:1'"):
        intus.collect(model, batches, "sell:1", tmp_path / "b")
    once = intus.collect(model, batches[:1], "cell", tmp_path / "c")
    assert list(once) == ["cell"]
    assert once["cell"] is not None
    assert torch.equal(once["cell:1"], once["cell"])


def test_addresses_of_aliases_and_multiple_outputs(tmp_path):
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3)), nn.LSTM(3, 4))
    acts = intus.collect(model, [torch.randn(2, 5, 3)], ["0", "0.0", "linear_1_1", "1"], tmp_path / "a")
    assert list(acts)[:3] == ["0.0", "0", "linear_1_1"]
    assert torch.equal(acts["0"], acts["0.0"])
    assert [name.partition("_")[0] for name in list(acts)[3:]] == ["lstm"] * 3
    inner = intus.collect(model, [torch.randn(2, 3)], "0**", tmp_path / "a")
    assert list(inner) == ["0.0"]


def test_memory_holds_one_batch(tmp_path):
    alive, most = [], []

    def batches():
        for _ in range(6):
            batch = torch.randn(100, 50)
            alive.append(StorageWeakRef(batch.untyped_storage()))
            yield batch

    def model(x):
        y = x * 2
        alive.append(StorageWeakRef(y.untyped_storage()))
        most.append(sum(not ref.expired() for ref in alive))
        return y

    acts = intus.collect(model, batches(), "mul_1", tmp_path / "a")
    assert max(most) <= 4  # this batch with its result, and the previous one
    assert acts["mul_1"].shape == (600, 50)


def test_failure_leaves_the_old_file(tmp_path):
    file = tmp_path / "a"
    intus.collect(cnn(), [torch.ones(1, 1, 8, 8)], "0", file)
    before = file.read_bytes()
    for batches, message in (
        ([torch.ones(2, 1, 8, 8), torch.ones(2, 1, 9, 8)], "mat1 and mat2|shapes"),
        ([torch.ones(2, 1, 8, 8), 3], "3|conv2d"),
    ):
        with pytest.raises((RuntimeError, TypeError), match=message):
            intus.collect(cnn(), batches, "0", file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_batches_that_cannot_be_concatenated_raise(tmp_path):
    file, double = tmp_path / "a", nn.Identity()
    with pytest.raises(
        InputError, match=r"'0' is F32 of shape \(2, 4\) in batch 1 and was F32 of shape \(2, 3\) in"
    ):
        intus.collect(nn.Sequential(double), [torch.ones(2, 3), torch.ones(2, 4)], "0", file)
    with pytest.raises(InputError, match=r"'0' is F64 of shape .* and was F32"):
        intus.collect(nn.Sequential(double), [torch.ones(2, 3), torch.ones(2, 3).double()], "0", file)
    with pytest.raises(InputError, match=r"'sum_1' in batch 0 has no axis 0, so it cannot"):
        intus.collect(lambda x: x.sum(), [torch.ones(2)], "sum_1", file)
    with pytest.raises(InputError, match=r"'to_sparse_1' in batch 0 is torch\.sparse_coo, so"):
        intus.collect(lambda x: x.to_sparse(), [torch.ones(2)], "to_sparse_1", file)
    with pytest.raises(InputError, match=r"batches must be several: .* got Tensor.*\[batch\]"):
        intus.collect(cnn(), torch.ones(2, 1, 8, 8), "0", file)
    with pytest.raises(InputError, match=r"A batch is a list of 2, .*inputs=lambda batch: batch\[0\]"):
        intus.collect(cnn(), [[torch.ones(2, 1, 8, 8), 1]], "0", file)
    with pytest.raises(InputError, match=r"seed must be a whole number, .* got None"):
        intus.collect(cnn(), [], "0", file, seed=None)
    with pytest.raises(InputError, match="There is no folder"):
        intus.collect(cnn(), [], "0", tmp_path / "none" / "a")
    assert not list(tmp_path.iterdir())


def test_file_is_readable_later_and_by_safetensors(tmp_path):
    from intus.tracing.collect import Collected

    intus.collect(
        cnn(), [torch.ones(2, 1, 8, 8)] * 2, ["0", "3"], tmp_path / "a", transform=lambda t: t.flatten(1)
    )
    again = Collected(tmp_path / "a")
    assert again["3"].shape == (4, 10)
    with pytest.raises(AddressError, match="a has no '4'"):
        _ = again["4"]
    with safe_open(tmp_path / "a", "numpy") as file:
        assert file.get_slice("0").get_shape() == [4, 288]
    (tmp_path / "b").write_bytes(b"none")
    with pytest.raises(CodecError, match="is no file that collect has written"):
        Collected(tmp_path / "b")


def test_random_numbers_per_batch_are_reproducible(tmp_path):
    state = torch.get_rng_state()
    model = nn.Sequential(nn.Dropout())
    one, other = (intus.collect(model, [torch.ones(9, 9)] * 2, "0", tmp_path / name) for name in "ab")
    assert torch.equal(one["0"], other["0"])
    assert not torch.equal(one["0"][:9], one["0"][9:])
    assert torch.equal(torch.get_rng_state(), state)


def test_used_up_generator_is_refused_and_the_file_kept(tmp_path):
    file, batches = tmp_path / "acts", (x for x in [torch.ones(2, 3)])
    intus.collect(nn.ReLU(), batches, "relu_1", file)
    for empty in (batches, []):
        with pytest.raises(InputError, match="batches holds no batch"):
            intus.collect(nn.ReLU(), empty, "relu_1", file)
    with safe_open(file, framework="pt") as kept:
        assert torch.equal(kept.get_tensor("relu_1"), torch.ones(2, 3))
    assert [path.name for path in tmp_path.iterdir()] == ["acts"]
