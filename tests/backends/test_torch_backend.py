"""The PyTorch backend: captured tensors equal the model's, and the model is unchanged."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from backends import contract
from intus.backends.base import for_model
from intus.backends.torch import TorchBackend
from intus.backends.torch.captured_tensor import main_tensor, to_numpy
from intus.core.nested import leaves
from intus.core.record import KINDS

BACKEND = TorchBackend()


def tensors(value):
    return leaves(value, torch.Tensor)


class Collect:
    """A tap that copies everything."""

    def __init__(self, wants=lambda operation: True):
        self.seen, self.order, self.errors, self.offered = {}, [], [], []
        self.predicate = wants

    def on_forward_start(self, inputs):
        self.inputs_shapes = [tensor.shape for tensor in tensors(inputs)]
        self.order.append("begins")

    def wants(self, operation):
        self.offered.append(operation.address)
        return operation.address if self.predicate(operation) else None

    def on_tensor(self, ticket, seen):
        self.seen.setdefault((seen.kind, seen.address), []).append(seen.copy(None, 0))
        self.order.append(seen.address)

    def on_forward_end(self, output):
        self.output_shapes = [tensor.shape for tensor in tensors(output)]
        self.order.append("ends")

    def on_error(self, error):
        self.errors.append(error)


def attach(model, kinds=KINDS, tap=None):
    tap = tap or Collect()
    return tap, BACKEND.attach(model, BACKEND.operations(model), kinds, tap)


class Cnn(nn.Module):
    """Convolution, batch norm, in-place ReLU and dropout on 8 x 8 images."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Dropout(0.3)
        )
        self.heads = nn.ModuleList([nn.Linear(6 * 36, 10)])

    def forward(self, x):
        return self.heads[0](self.features(x).flatten(1))


def snapshot(model):
    """Return everything that attaching could change."""
    state = {name: {k: copy.copy(v) for k, v in vars(m).items()} for name, m in model.named_modules()}
    tensors_ = {
        name: (p._backward_hooks, p._post_accumulate_grad_hooks, dict(vars(p)))
        for name, p in model.named_parameters()
    }
    return state, tensors_


def assert_untouched(model, before):
    state, tensors_ = snapshot(model)
    for name, attributes in state.items():
        assert list(attributes) == list(before[0][name])
        for key, value in attributes.items():
            if "hooks" in key:
                assert value == before[0][name][key], (name, key)
    assert tensors_ == before[1]


def test_operations_are_modules_with_forward():
    operations = BACKEND.operations(Cnn())
    assert [op.address for op in operations] == [
        "", "features", "features.0", "features.1", "features.2", "features.3", "heads.0",
    ]  # fmt: skip
    assert operations[2].type == "Conv2d"


def test_special_characters_of_names_are_escaped():
    model = nn.Sequential()
    model.layers = nn.ModuleDict({"a:b": nn.Linear(1, 1)})
    assert BACKEND.operations(model)[1].address == "layers.a\\:b"


def test_arrays_are_values_before_inplace_writes():
    torch.manual_seed(0)
    model = Cnn().eval()
    x = torch.randn(4, 1, 8, 8)
    conv = model.features[0](x)
    norm = model.features[1](conv)
    expected = model(x).detach().numpy()
    tap, handle = attach(model, ("input", "output"))
    model(x)
    handle.remove()
    assert not tap.errors
    assert np.array_equal(tap.seen["output", "features.0"][0], conv.detach().numpy())
    assert np.array_equal(tap.seen["output", "features.1"][0], norm.detach().numpy())
    assert np.array_equal(tap.seen["input", "features.2"][0], norm.detach().numpy())
    assert np.array_equal(tap.seen["output", "features.2"][0], F.relu(norm).detach().numpy())
    assert np.array_equal(tap.seen["output", ""][0], expected)
    assert tap.order[0] == "begins"
    assert tap.order[-1] == "ends"
    assert (tap.inputs_shapes, tap.output_shapes) == ([x.shape], [(4, 10)])


def test_gradients_equal_autograd():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))
    x = torch.randn(7, 5, requires_grad=True)
    hidden = model[0](x)
    kept = hidden.clone().relu()
    loss = model[2](kept).square().sum()
    wanted = torch.autograd.grad(loss, [x, hidden, kept, *model.parameters()])

    before = snapshot(model)
    tap, handle = attach(model)
    model(x).square().sum().backward()
    handle.remove()
    assert not tap.errors
    for key, gradient in zip(
        [
            ("grad_input", "0"), ("grad_output", "0"), ("grad_output", "1"),
            ("parameter_grad", "0.weight"), ("parameter_grad", "0.bias"),
            ("parameter_grad", "2.weight"), ("parameter_grad", "2.bias"),
        ],
        wanted,
        strict=True,
    ):  # fmt: skip
        (got,) = tap.seen[key]
        assert np.array_equal(got, gradient.numpy()), key
    assert np.array_equal(tap.seen["grad_input", "2"][0], tap.seen["grad_output", "1"][0])
    assert np.array_equal(tap.seen["parameter", "0.weight"][0], model[0].weight.detach().numpy())
    assert_untouched(model, before)
    assert x._backward_hooks is None


def test_reused_input_keeps_one_hook():
    model = nn.Sequential(nn.Identity(), nn.Linear(3, 2))
    x = torch.randn(4, 3, requires_grad=True)
    tap, handle = attach(model, ("grad_output",))
    for _ in range(5):
        model(x).sum().backward()
    assert len(tap.seen["grad_output", "0"]) == 5
    assert len(x._backward_hooks) == 1
    handle.remove()
    assert x._backward_hooks is None


@pytest.mark.parametrize("kinds", [("output",), KINDS])
def test_training_is_bitwise_identical(kinds):
    from sklearn.datasets import load_digits

    images = torch.tensor(load_digits().images[:256], dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(load_digits().target[:256])

    def train(probed):
        torch.manual_seed(1)
        model = Cnn()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        tap, handle = attach(model, kinds) if probed else (None, None)
        for _ in range(2):
            for start in range(0, 256, 64):
                optimizer.zero_grad()
                F.cross_entropy(model(images[start : start + 64]), labels[start : start + 64]).backward()
                optimizer.step()
        if handle:
            handle.remove()
            assert not tap.errors
            assert len(tap.seen["output", "features.0"]) == 8
        return model.state_dict(), torch.get_rng_state()

    plain, plain_rng = train(False)
    probed, probed_rng = train(True)
    assert all(torch.equal(plain[name], probed[name]) for name in plain)
    assert torch.equal(plain_rng, probed_rng)


def test_remove_restores_model():
    model = Cnn()
    before = snapshot(model)
    _, handle = attach(model)
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    handle.remove()
    handle.remove()
    assert_untouched(model, before)


def test_exception_in_forward_ends_pass_and_restores_model():
    model = Cnn()
    before = snapshot(model)
    tap, handle = attach(model)
    with pytest.raises(RuntimeError, match="shape"):
        model(torch.randn(2, 1, 9, 9))
    assert tap.order[-1] == "ends"
    assert tap.output_shapes == []
    tap.order.clear()
    model(torch.randn(2, 1, 8, 8))
    assert tap.order[0] == "begins"
    assert "heads.0:2" not in tap.order
    handle.remove()
    assert_untouched(model, before)


def test_failed_attach_restores_model():
    model = Cnn()
    before = snapshot(model)
    operations = [*BACKEND.operations(model), BACKEND.operations(model)[0]._replace(module="no module")]
    with pytest.raises(AttributeError):
        BACKEND.attach(model, operations, KINDS, Collect())
    assert_untouched(model, before)


def test_user_hooks_are_kept():
    model = Cnn()
    seen = []
    model.features.register_forward_hook(lambda *args: seen.append(1))
    _, handle = attach(model)
    handle.remove()
    model(torch.randn(2, 1, 8, 8))
    assert seen == [1]


@pytest.mark.parametrize("copier", ["pickle", "deepcopy", "save"])
def test_copies_of_probed_model_are_not_probed(copier):
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(inplace=True))
    tap, handle = attach(model)
    x = torch.randn(2, 1, 8, 8)
    if copier == "pickle":
        data = pickle.dumps(model)
        assert b"intus" not in data
        twin = pickle.loads(data)
    elif copier == "deepcopy":
        twin = copy.deepcopy(model)
    else:
        torch.save(model, file := io.BytesIO())
        file.seek(0)
        twin = torch.load(file, weights_only=False)
    twin.double()(x.double()).sum().backward()
    assert not tap.order
    assert torch.equal(model(x), twin.float()(x))
    assert tap.order
    handle.remove()


@pytest.mark.long
def test_saved_probed_model_loads_without_intus(tmp_path):
    model = nn.Linear(2, 2)
    _, handle = attach(model)
    torch.save(model, tmp_path / "model.pt")
    handle.remove()
    code = (
        "import sys, torch; sys.modules['intus'] = None\n"
        "model = torch.load(sys.argv[1], weights_only=False)\n"
        "print(tuple(model(torch.ones(3, 2)).shape))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model.pt"], check=True, capture_output=True, text=True
    )
    assert out.stdout.strip() == "(3, 2)"


def test_repeated_module_calls_have_own_addresses():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(self.fc(x))

    model = Twice()
    tap, handle = attach(model, ("output", "input", "grad_output", "parameter"))
    x = torch.randn(2, 3)
    for _ in range(2):  # the count restarts in every pass
        model(x).sum().backward()
    handle.remove()
    first = model.fc(x).detach().numpy()
    assert np.array_equal(tap.seen["output", "fc"][0], first)
    assert np.array_equal(tap.seen["input", "fc:2"][0], first)
    assert {address for _, address in tap.seen} == {"", "fc", "fc:2", "fc.weight", "fc.bias"}
    assert len(tap.seen["grad_output", "fc:2"]) == 2
    assert len(tap.seen["parameter", "fc.weight"]) == 2


def test_tied_parameters_are_captured_once():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    tap, handle = attach(model, ("parameter", "parameter_grad"))
    model(torch.randn(2, 3)).sum().backward()
    handle.remove()
    assert {address for _, address in tap.seen} == {"0.weight", "0.bias", "1.bias"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_captures_each_module_once(reentrant):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))

        def forward(self, x):
            return checkpoint(self.body, x, use_reentrant=reentrant)

    model = Checkpointed()
    tap, handle = attach(model, ("output",))
    model(torch.randn(2, 3, requires_grad=True)).sum().backward()
    checkpoint(model, torch.randn(2, 3, requires_grad=True), use_reentrant=reentrant).sum().backward()
    handle.remove()
    assert tap.order.count("begins") == 2
    assert {len(arrays) for arrays in tap.seen.values()} == {2}
    assert ("output", "body.0:2") not in tap.seen


def test_unwanted_operations_touch_no_tensor():
    class Watched(torch.Tensor):
        touched: list[str] = []  # noqa: RUF012

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.touched.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs)

    model = nn.Sequential(nn.Identity(), nn.Identity())
    x = torch.ones(2, 3, requires_grad=True).as_subclass(Watched)
    tap, handle = attach(model, KINDS, Collect(lambda operation: False))
    Watched.touched.clear()
    model(x)
    handle.remove()
    assert tap.offered == ["", "0", "1"]
    assert Watched.touched == []
    assert not tap.seen


def test_exceptions_of_tap_reach_on_error_only():
    class Broken(Collect):
        def on_tensor(self, ticket, seen):
            raise ZeroDivisionError(seen.address)

        def on_forward_start(self, inputs):
            raise KeyError("begins")

    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    tap, handle = attach(model, KINDS, Broken())
    model(torch.ones(1, 2)).sum().backward()
    handle.remove()
    assert isinstance(tap.errors[0], KeyError)
    assert sum(isinstance(error, ZeroDivisionError) for error in tap.errors) >= 4


def test_modules_outside_model_call_are_not_captured():
    model = Cnn()
    tap, handle = attach(model)
    model.features(torch.randn(2, 1, 8, 8)).sum().backward()
    handle.remove()
    assert not tap.order


def test_attachment_keeps_no_references():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    _tap, handle = attach(model, KINDS, Collect())
    gc.collect()
    gc.disable()
    try:
        x = torch.randn(2, 3)
        output = model(x)
        refs = [weakref.ref(x), weakref.ref(output), weakref.ref(model[0]), weakref.ref(model)]
        output.sum().backward()
        del x, output
        assert [ref() for ref in refs[:2]] == [None, None]
        del model
        assert [ref() for ref in refs] == [None] * 4
    finally:
        gc.enable()
    handle.remove()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool])
def test_to_numpy_copies_real_dtypes(dtype):
    tensor = torch.tensor([[0.0, 1.0], [1.0, 0.5]]).to(dtype)
    array = to_numpy(tensor)
    assert array.tolist() == tensor.float().tolist()
    assert array.dtype == (np.float32 if dtype is torch.bfloat16 else str(dtype).removeprefix("torch."))
    tensor.zero_()
    assert array.any()


def test_to_numpy_selects_rows_and_is_contiguous():
    tensor = torch.arange(24.0).reshape(4, 3, 2).transpose(0, 1)
    array = to_numpy(tensor, 2, 1)
    assert array.shape == (3, 2, 2)
    assert array.flags.c_contiguous
    assert array.base is None
    assert np.array_equal(array, tensor[:, :2].numpy())


def test_to_numpy_refuses_complex():
    with pytest.raises(TypeError, match="complex"):
        to_numpy(torch.ones(2, dtype=torch.complex64))


def test_main_tensor_of_nested_outputs():
    @dataclass
    class Output:
        loss: torch.Tensor
        logits: torch.Tensor
        cache: object = None

    loss, logits = torch.tensor(1.0), torch.ones(2, 3)
    pair = namedtuple("pair", "a b")(loss, logits)
    for value in [(loss, [logits]), OrderedDict(loss=loss, logits=logits), Output(loss, logits), pair]:
        assert [id(t) for t in tensors(value)] == [id(loss), id(logits)]
        index, tensor = main_tensor(value)
        assert (index, tensor is logits) == (1, True)
    assert main_tensor(loss)[0] == 0
    assert main_tensor((None, "text", 3)) is None


def test_torch_function_recorder_sees_only_model_operations():
    from torch.overrides import TorchFunctionMode

    class Recorder(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    model, x = Cnn(), torch.randn(2, 1, 8, 8)
    with Recorder() as plain:
        model(x).sum().backward()
    _, handle = attach(model)
    with Recorder() as probed:
        model(x).sum().backward()
    handle.remove()
    assert "conv2d" in plain.names
    assert plain.names == probed.names


def test_compiled_model_output_is_unchanged():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    x = torch.randn(2, 3)
    expected = model(x)
    _, handle = attach(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), expected)
    handle.remove()
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_transformers_models(kind):
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 50}
    if kind == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=16, **sizes)
        model = transformers.GPT2LMHeadModel(config).eval()
        block = "transformer.h.1.mlp.c_fc"
    else:
        config = transformers.BertConfig(
            num_hidden_layers=2, num_attention_heads=2, hidden_size=16, intermediate_size=32, **sizes
        )
        model = transformers.BertForMaskedLM(config).eval()
        block = "bert.encoder.layer.1.intermediate.dense"
    ids = torch.randint(0, 50, (3, 7))
    plain = model(input_ids=ids, labels=ids)
    before = snapshot(model)
    tap, handle = attach(model, ("output", "input", "grad_output", "parameter_grad"))
    probed = model(input_ids=ids, labels=ids)
    probed.loss.backward()
    handle.remove()
    assert not tap.errors
    assert torch.equal(plain.logits, probed.logits)
    assert np.array_equal(tap.seen["output", ""][0], plain.logits.detach().numpy())
    assert np.array_equal(tap.seen["input", ""][0], ids.numpy())
    assert tap.seen["output", block][0].shape[:2] == (3, 7)
    assert tap.seen["grad_output", block][0].shape == tap.seen["output", block][0].shape
    weight = dict(model.named_parameters())[f"{block}.weight"]
    assert np.array_equal(tap.seen["parameter_grad", f"{block}.weight"][0], weight.grad.numpy())
    assert_untouched(model, before)


@pytest.mark.parametrize("kind", ["grad_output", "grad_input"])
def test_gradients_of_two_backward_passes(kind):
    """Each has an address of its own, so that the rows of one address are those of the batch once."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    backend, tap = for_model(model), contract.Collect()
    handle = backend.attach(model, backend.operations(model), (kind,), tap)
    x = torch.randn(5, 4)
    y = model(x)
    y.sum().backward(retain_graph=True)
    (y**2).sum().backward()
    handle.remove()
    assert tap.errors == []
    hidden = model[1](model[0](x)).detach().requires_grad_()
    after = model[2](hidden)
    end = (after,) if kind == "grad_output" else (hidden,)
    for address, loss in (("2", after.sum()), ("2:2", (after**2).sum())):
        (expected,) = torch.autograd.grad(loss, end, retain_graph=True)
        torch.testing.assert_close(torch.from_numpy(tap.seen[0][kind, address]), expected)
    addresses = {"2", "1", "0", ""} if kind == "grad_output" else {"2", "1"}
    assert {address for _, address in tap.seen[0]} == {*addresses, *(f"{one}:2" for one in addresses)}


def test_gradients_of_two_backward_passes_through_two_calls():
    """A number that would name another call names no gradient."""
    cell = nn.Linear(4, 4)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x):
            return self.cell(self.cell(x))

    model, tap = Twice(), contract.Collect()
    backend = for_model(model)
    handle = backend.attach(model, backend.operations(model), ("grad_output",), tap)
    y = model(torch.randn(5, 4))
    y.sum().backward(retain_graph=True)
    (y**2).sum().backward()
    handle.remove()
    assert {address for _, address in tap.seen[0]} == {"", ":2", "cell", "cell:2"}
    assert "'cell' was called several times, and several gradients" in str(tap.errors[0])
