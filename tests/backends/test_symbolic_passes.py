"""Tracers, exporters and modes of torch see a probed model as if it were not probed."""

from __future__ import annotations

import copy
import io
import re
from functools import partial

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

from backends.test_torch_backend import Collect, attach
from intus.core.record import KINDS

pytestmark = [
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch.jit, torch.ao
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Net(nn.Module):
    """A network with a container, a block of its own, a convolution and a buffer that training writes."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4 * 16, 3)

    def forward(self, images):
        return self.head(self.body(images).flatten(1))


class Wrapper(nn.Module):
    """A model of which the probed one is a part."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images):
        return self.inner(images) * 2


X = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def net():
    torch.manual_seed(0)
    return Net().eval()


def unnumbered(graph):
    """Return the text of a graph without the numbers that torch gives to classes of one name."""
    return re.sub(r"___torch_mangle_\d+\.", "", str(graph))


def jit_trace(model):
    traced = torch.jit.trace(model, X)
    return unnumbered(traced.inlined_graph), unnumbered(traced.graph), traced(X)


def jit_trace_of_training(model):
    return unnumbered(torch.jit.trace(model.train(), X, check_trace=False).inlined_graph)


def jit_file(model):
    torch.jit.save(torch.jit.trace(model, X), file := io.BytesIO())
    file.seek(0)
    read = torch.jit.load(file)
    return unnumbered(read.inlined_graph), unnumbered(read.code), list(read.state_dict().items())


def fx_graph(model):
    traced = fx.symbolic_trace(model)
    return traced.code, traced(X)


def fx_graph_of_parts(model):
    """Trace through containers, which runs their hooks with proxies."""

    class Through(fx.Tracer):
        def is_leaf_module(self, module, name):
            return not isinstance(module, nn.Sequential | Net)

    return str(Through().trace(model))


def proxy_graph(model, mode="real", *, early=False):
    return make_fx(model, tracing_mode=mode, pre_dispatch=early, _allow_non_fake_inputs=True)(X).code


def exported(model, *, strict=False):
    program = torch.export.export(model, (X,), strict=strict)
    return str(program.graph), str(program.graph_signature), program.module()(X)


def aot(model):
    from torch._functorch.aot_autograd import aot_module_simplified  # the ops that compilers get

    graphs = []

    def compiler(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    torch.compile(model, backend=partial(aot_module_simplified, fw_compiler=compiler))(X)
    torch._dynamo.reset()
    return graphs


def fake(model):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        out = model(mode.from_tensor(X))
    return tuple(out.shape), out.dtype


def on_meta(model):
    return tuple(copy.deepcopy(model).to("meta")(X.to("meta")).shape)


def quantized(model):
    prepared = torch.ao.quantization.prepare(
        nn.Sequential(torch.ao.quantization.QuantStub(), model.body, torch.ao.quantization.DeQuantStub())
    )
    return prepared(X)


def quantized_graph(model):
    from torch.ao.quantization import quantize_fx

    found = quantize_fx.prepare_fx(model, torch.ao.quantization.get_default_qconfig_mapping(), (X,))
    return found.code, found(X)


#: What runs the model without being a pass of it: none counts.
TRACERS = {
    "jit.trace": jit_trace,
    "jit.trace in training": jit_trace_of_training,
    "jit.trace of a wrapper": lambda model: jit_trace(Wrapper(model).eval()),
    "jit.trace of a part": lambda model: jit_trace(model.body),
    "the file of jit.trace": jit_file,
    "fx": fx_graph,
    "fx of a wrapper": lambda model: fx_graph(Wrapper(model)),
    "fx through containers": fx_graph_of_parts,
    "make_fx": proxy_graph,
    "make_fx of fake tensors": partial(proxy_graph, mode="fake"),
    "make_fx of symbolic shapes": partial(proxy_graph, mode="symbolic"),
    "make_fx before dispatch": partial(proxy_graph, early=True),
    "export": exported,
    "export by the compiler": partial(exported, strict=True),
    "aot": aot,
    "FakeTensorMode": fake,
    "a copy on meta": on_meta,
    "a copy": lambda model: copy.deepcopy(model)(X),
    "dynamic quantization": lambda model: torch.ao.quantization.quantize_dynamic(model, {nn.Linear})(X),
    "quantization": quantized,
    "quantization of a graph": quantized_graph,
}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("is_called", [False, True], ids=["before the first call", "after it"])
@pytest.mark.parametrize("name", TRACERS)
def test_tracers_see_no_probe_and_count_as_no_pass(name, is_called):
    """The judge is what torch makes of the same model without a probe: text of graphs, bytes, values.

    Before, ``torch.jit.trace`` failed with an internal assertion of torch.
    """
    plain, model = net(), net()
    tap, handle = attach(model)
    for one in (plain, model) if is_called else ():
        one(X)
    before = list(tap.order), {key: len(arrays) for key, arrays in tap.seen.items()}
    assert same(TRACERS[name](plain), TRACERS[name](model))
    assert before == (tap.order, {key: len(arrays) for key, arrays in tap.seen.items()})
    assert not tap.errors
    model.zero_grad()
    model(X).sum().backward()
    assert tap.order.count("begins") == tap.order.count("ends") == 1 + is_called
    assert np.array_equal(tap.seen["output", "head"][-1], plain(X).detach().numpy())
    handle.remove()


class Operations(TorchDispatchMode):
    """Notes each operation of the thread."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def trained(model, probed, modes):
    """Train a model for two steps inside of a mode, and return it with what the mode has seen."""
    tap, handle = attach(model) if probed else (None, None)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    with modes as mode:
        for _ in range(2):
            optimizer.zero_grad()
            model(X).square().sum().backward()
            optimizer.step()
    if handle is not None:
        handle.remove()
        assert not tap.errors
        assert {kind for kind, _ in tap.seen} == set(KINDS)
    return mode


def test_dispatch_modes_see_only_operations_of_the_model():
    """Before, they saw the copies of the probe, among them views and slices."""
    found = [trained(net().train(), probed, Operations()).names for probed in (False, True)]
    assert "aten.convolution.default" in found[0]
    assert found[0] == found[1]


def test_counted_operations_are_those_of_the_model():
    counts = [
        trained(net().train(), probed, FlopCounterMode(display=False)).get_flop_counts()
        for probed in (False, True)
    ]
    assert counts[0]["Global"]
    assert counts[0] == counts[1]


class Checkpointed(nn.Module):
    """Saves each product of matrices, and computes the rest again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 6), nn.Tanh(), nn.Linear(6, 1)
        )

    def forward(self, x):
        saved = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.detach.default]
        contexts = partial(create_selective_checkpoint_contexts, saved)
        return checkpoint(self.layers, x, use_reentrant=False, context_fn=contexts)


class Projecting(Collect):
    """A tap that also computes on the device, as of layers that are projected."""

    def on_tensor(self, ticket, seen):
        super().on_tensor(ticket, seen)
        if seen.project is not None and seen.shape and len(seen.shape) == 2:
            seen.project(None, 0)


def test_selective_checkpoints_save_no_product_of_the_probe():
    """The saved results are taken in order, so one of the probe would take the place of one of the model."""
    gradients = []
    for probed in (False, True):
        torch.manual_seed(0)
        model, x = Checkpointed(), torch.randn(7, 6)
        tap, handle = attach(model, tap=Projecting()) if probed else (None, None)
        model(x).sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
        if handle is not None:
            handle.remove()
            assert not tap.errors
            assert ("output", "layers.2") in tap.seen
    assert same(*gradients)


def test_jit_script_says_what_to_do():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    scripted = torch.jit.script(model.eval())
    _, handle = attach(model)
    with pytest.raises(AttributeError, match=r"intus\.probe\. Script the model before probe\(\) or after"):
        torch.jit.script(model)
    handle.remove()
    assert same(torch.jit.script(model)(X), scripted(X))


def test_pass_inside_of_no_mode_is_recorded_while_another_thread_traces():
    """A mode is one of its thread."""
    from concurrent.futures import ThreadPoolExecutor

    model = net()
    tap, handle = attach(model)
    with ThreadPoolExecutor(1) as other, FakeTensorMode(allow_non_fake_inputs=True):
        model(X)
        assert not tap.order
        other.submit(model, X).result()
    assert tap.order.count("begins") == 1
    handle.remove()
