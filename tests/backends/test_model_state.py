"""The hash of a model's state, by which ``inspect`` knows whether a stored table is of the same model."""

import functools
import logging
import operator
import os
import re
import subprocess
import sys
import threading
import time
import types
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from intus import inspect
from intus.backends.base import for_model

X = torch.tensor(np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32))
ODD = {"odd": np.arange(60) % 2}
SCALE = 1.0
TABLE = {"scale": 1.0}
LOG = logging.getLogger(__name__)


def helper(x):
    LOG.debug("called")
    return x * SCALE * TABLE["scale"]


@dataclass
class Settings:
    scale: float = 1.0
    inner: dict = field(default_factory=lambda: {"shift": [0.0]})


class Slotted:
    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 1.0


class Plain:
    scale = 1.0

    def __init__(self):
        self.me = self
        self.names = {"a", "b", "c"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 3)
        self.function = torch.relu
        self.table = {"scale": 1.0}
        self.numbers = [1.0, (2.0, deque([0.0]))]
        self.settings, self.slotted, self.plain = Settings(), Slotted(), Plain()
        self.mask, self.array = torch.ones(3), np.ones(3, np.float32)
        self.lock = threading.Lock()

    def method(self, x):
        return x + 0

    def forward(self, x):
        x = self.method(self.function(self.layer(x)))
        x = x * self.table["scale"] * self.settings.scale * self.plain.scale * self.slotted.scale
        x = x * self.numbers[0] + self.settings.inner["shift"][0] + self.numbers[1][1][0]
        return helper(x) * self.mask * torch.from_numpy(self.array)


def state(model):
    return for_model(model).state(model)


def five_times(x):
    return x * 5


def five_times_the_class(self, x):
    return x * 5


#: What changes the output of a Net, by name.
CHANGES = {
    "function": lambda m: setattr(m, "function", torch.sigmoid),
    "lambda": lambda m: setattr(m, "function", lambda x: x * 7),
    "dict": lambda m: m.table.update(scale=9.0),
    "list": lambda m: m.numbers.__setitem__(0, 4.0),
    "deque in a tuple": lambda m: m.numbers[1][1].__setitem__(0, 4.0),
    "dataclass": lambda m: setattr(m.settings, "scale", 3.0),
    "list in a dataclass": lambda m: m.settings.inner["shift"].__setitem__(0, 2.0),
    "object": lambda m: setattr(m.plain, "scale", 2.0),
    "slots": lambda m: setattr(m.slotted, "scale", 2.0),
    "tensor": lambda m: setattr(m, "mask", torch.tensor([1.0, 0.0, 2.0])),
    "tensor in place": lambda m: m.mask.mul_(3),
    "array": lambda m: m.array.__imul__(3),
    "weight": lambda m: m.layer.weight.data.mul_(3),
    "forward": lambda m: setattr(m.layer, "forward", lambda x: x[:, :3] * 5),
    "method of the instance": lambda m: setattr(m, "method", types.MethodType(five_times_the_class, m)),
    "hook": lambda m: m.layer.register_forward_hook(lambda module, args, out: out * 10),
    "pre-hook": lambda m: m.layer.register_forward_pre_hook(lambda module, args: (args[0] * 10,)),
    "hook of a partial": lambda m: m.layer.register_forward_hook(functools.partial(steer, 4.0)),
    "no gradient": lambda m: setattr(m, "function", torch.no_grad()(five_times)),
}


def steer(factor, module, args, out):
    return out * factor


@pytest.mark.parametrize("change", CHANGES)
def test_changed_model_is_computed_again(change, tmp_path):
    def ask(model, **options):
        return inspect(model, ODD, "mean_difference", X, "[0:3]", **options)

    model = Net()
    before = ask(model, cache=tmp_path)
    assert ask(Net(), cache=tmp_path).value.equals(before.value)
    CHANGES[change](model)
    after, true = ask(model, cache=tmp_path), ask(model)
    assert after.value.equals(true.value)
    assert not true.value.equals(before.value)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (sys.modules[__name__], "SCALE", 9.0),
        (sys.modules[__name__], "TABLE", {"scale": 3.0}),
        (sys.modules[__name__], "helper", lambda x: x * 3),
        (Net, "method", five_times_the_class),
        (Net, "forward", lambda self, x: self.layer(x) * 50),
        (Plain, "scale", 8.0),
        (nn.Linear, "forward", five_times_the_class),
        (torch, "from_numpy", lambda x: torch.tensor(x) * 4),
    ],
)
def test_changed_code_and_globals_are_noticed(owner, name, value, monkeypatch):
    before = state(Net())
    assert before is not None
    assert state(Net()) == before
    monkeypatch.setattr(owner, name, value)
    assert state(Net()) not in (None, before)
    monkeypatch.undo()
    assert state(Net()) == before


def test_inner_state_of_a_closure_is_noticed():
    factor = [1.0]

    def hook(module, args, out):
        return out * factor[0]

    model = Net()
    model.layer.register_forward_hook(hook)
    before = state(model)
    factor[0] = 2.0
    assert state(model) not in (None, before)


def test_global_hooks_are_noticed():
    before = state(Net())
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: out)
    assert state(Net()) not in (None, before)
    handle.remove()
    assert state(Net()) == before


def test_order_of_hooks_matters_and_their_numbers_do_not():
    def one(module, args, out):
        return out + 1

    def two(module, args, out):
        return out * 2

    def hooked(*hooks):
        model = Net()
        for hook in hooks:
            model.register_forward_hook(hook)
        return state(model)

    assert hooked(one, two) == hooked(one, two) != hooked(two, one)


def test_forward_and_hooks_of_intus_leave_the_state():
    model = Net()
    before = state(model)
    model(X)
    assert state(model) == before
    assert state(nn.Sequential(nn.Linear(6, 3))) is not None
    net = nn.Sequential(nn.Linear(6, 3))
    before = state(net)
    backend = for_model(net)
    handle = backend.attach(net, backend.operations(net), {"output"}, object())
    assert net[0]._forward_hooks
    assert state(net) == before
    handle.remove()


@pytest.mark.parametrize("kind", ["generator", "file", "memoryview", "method of a file"])
def test_unknown_content(kind):
    with open(__file__) as file:
        unknown = {"generator": iter(n for n in [1]), "file": file, "memoryview": memoryview(b"a")}
        value = unknown.get(kind, file.readline)
        model = Net()
        model.extra = value
        assert state(model) is None
        model.extra = types.SimpleNamespace(deep=[value])
        assert state(model) is None
        model.extra = types.SimpleNamespace(deep=[1])
        assert state(model) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (re.compile("a"), re.compile("b")),
        (np.tanh, np.sinh),
        (np.sum, np.mean),
        (torch.Tensor.relu, torch.Tensor.exp),
        (operator.itemgetter(1), operator.itemgetter(2)),
        (functools.partial(int, base=2), functools.partial(int, base=3)),
        (functools.lru_cache(lambda x: x + 1), functools.lru_cache(lambda x: x + 2)),
        (torch.float32, torch.float64),
        (torch.Size([1]), torch.Size([2])),
        (np.ma.masked_array([1, 2], [0, 1]), np.ma.masked_array([1, 2], [1, 0])),
        (np.random.default_rng(0), np.random.default_rng(1)),
        ([1, [2]], [[1], 2]),
        (1, True),
        (0.0, -0.0),
        ({"1": 2}, {1: 2}),
    ],
)
def test_objects_are_told_apart(one, other):
    def of(value):
        model = nn.Linear(1, 1, bias=False)
        model.weight.data[:] = 1
        model.extra = value
        return state(model)

    assert None not in (of(one), of(other))
    assert of(one) == of(one) != of(other)


@pytest.mark.parametrize("value", [np.frompyfunc(abs, 1, 1), threading.local()], ids=["ufunc", "local"])
def test_objects_of_c_are_unknown(value):
    model = Net()
    model.extra = value
    assert state(model) is None


def test_unknown_model_is_not_stored(tmp_path):
    model = Net()
    model.extra = (n for n in [1])
    inspect(model, ODD, "mean_difference", X, "[0:3]", cache=tmp_path, cache_outputs=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_compiled_and_scripted_modules_are_unknown():
    assert state(nn.Sequential(torch.jit.script(nn.Linear(6, 3)))) is None
    assert state(nn.Sequential(torch.compile(nn.Linear(6, 3)))) is None
    compiled = nn.Sequential(nn.Linear(6, 3))
    compiled[0].compile()
    assert state(compiled) is None
    model = Net()
    model.function = torch.compile(five_times)
    assert state(model) is None


def test_code_that_is_imported_in_forward(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_late.py").write_text("def factor(): return 1\n")

    class Late(nn.Module):
        def forward(self, x):
            import imported_late

            return x * imported_late.factor()

    assert state(Late()) is None
    import imported_late

    before = state(Late())
    assert before is not None
    monkeypatch.setattr(imported_late, "factor", lambda: 2)
    assert state(Late()) not in (None, before)


# -- what must be found again ---------------------------------------------------------------------------

_BERT = """
import torch, sys
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel
sys.path.insert(0, {folder!r})
from intus.backends.base import for_model
from test_model_state import Net

def bert(hidden=32):
    torch.manual_seed(0)
    sizes = dict(num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100)
    return BertModel(BertConfig(hidden_size=hidden, **sizes)).eval()

def gpt():
    torch.manual_seed(0)
    sizes = dict(n_embd=32, n_layer=2, n_head=2, vocab_size=100, bos_token_id=1, eos_token_id=1)
    return GPT2LMHeadModel(GPT2Config(**sizes))

def conv():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.LSTM(4, 4))

def states():
    models = bert(), gpt(), conv(), Net(), conv().bfloat16(), torch.fx.symbolic_trace(conv()[:3])
    return [for_model(model).state(model) for model in models]
"""


def models():
    module = types.ModuleType("models_of_test_state")
    exec(_BERT.format(folder=str(__file__).rpartition("/")[0]), vars(module))
    return module


@pytest.mark.slow
def test_other_processes_find_the_same():
    pytest.importorskip("transformers")
    code = _BERT.format(folder=str(__file__).rpartition("/")[0]) + "\nprint('\\n'.join(map(str, states())))"
    found = []
    for seed in "12":
        ran = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        found.append(ran.stdout.split()[-6:])
    assert found[0] == found[1]
    assert "None" not in found[0]
    assert len(set(found[0])) == 6


def test_bert_is_answered_from_the_cache(tmp_path):
    pytest.importorskip("transformers")
    ids = torch.arange(40).reshape(8, 5)
    labels = {"odd": (ids % 2).numpy()}

    def ask(model):
        return inspect(model, labels, "correlation", ids, "encoder.layer.0.output", cache=tmp_path)

    first = ask(models().bert())
    model = models().bert()
    model(ids)  # a pass changes nothing
    assert ask(model).equals(first)
    assert len(list(tmp_path.glob("*.rows"))) == 1
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[::3] += 1
    assert not ask(model).value.equals(first.value)
    assert len(list(tmp_path.glob("*.rows"))) == 2


def test_bert_is_hashed_fast():
    pytest.importorskip("transformers")
    model = models().bert()
    state(model)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        state(model)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05


def test_parameters_of_estimators_are_never_taken_for_each_other(tmp_path):
    model = nn.Sequential(nn.Linear(6, 12))
    labels = {"sign": (X[:, 0] + 0.3 * X[:, 1] > 0).numpy()}
    for strength in (1e-6, 100.0):
        score = LogisticRegression(C=strength)
        cached = inspect(model, labels, score, X, "0", cache=tmp_path)
        assert cached.value.equals(inspect(model, labels, score, X, "0").value)
    assert not list(tmp_path.iterdir())


def test_named_scores_are_answered_from_the_cache(tmp_path):
    model = nn.Sequential(nn.Linear(6, 12))
    names = ["iou", "logistic_l2", "linear_f1", "norm", "std"]
    inspect(model, ODD, names, X, "0", cache=tmp_path)
    assert len(list(tmp_path.glob("*.rows"))) == 1
