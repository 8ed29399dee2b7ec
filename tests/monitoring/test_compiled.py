"""Models that run compiled code train identically: their first pass is not traced."""

from __future__ import annotations

import functools
import types

import pytest
import torch
from torch import nn

from intus.backends.torch import session
from intus.monitoring import flush, probe
from intus.tracing.compiled import reaches_compiled

HOST = "127.0.0.1"
RAN: list[str] = []


def backend(graph, inputs):
    """Run a compiled graph unchanged, and record that it ran."""

    def run(*args):
        RAN.append("compiled")
        return graph(*args)

    return run


def plain(x):
    return torch.sin(x) + 1


fast = torch.compile(plain, backend=backend)
ops = types.ModuleType("ops")
ops.inner = types.ModuleType("ops.inner")
ops.inner.fast = fast


@torch.compiler.disable
def never_compiled(x):
    return x * 2


def by_name(module, x):
    return fast(x)


def by_module(module, x):
    return ops.inner.fast(x)


def by_helper(module, x):
    def deeper(x):
        return by_name(None, x)

    return next(deeper(one) for one in (x,))


def by_default(module, x, f=fast):
    return f(x)


def by_attribute(module, x):
    return module.table["f"][0](x)


def by_closure(f):
    return lambda module, x: f(x)


def by_none(module, x):
    return never_compiled(plain(x))


class Ops:
    """An object that is not a module, and calls a function."""

    def __init__(self, f):
        self.f = f

    def __call__(self, x):
        return self.f(x)

    @staticmethod
    def steady(x):
        return fast(x)


def net(how, f=fast):
    forward = functools.wraps(how)(lambda self, x: how(self, self.linear(x)))
    model = type("Net", (nn.Module,), {"forward": forward})()
    model.linear = nn.Linear(3, 2).requires_grad_(
        False
    )  # otherwise dynamo warns about its own use of gradients
    model.table = {"f": (f,)}
    return model


REACHABLE = [
    (by_name, plain), (by_module, plain), (by_helper, plain), (by_default, plain), (by_attribute, fast),
    (by_closure(fast), plain), (by_closure(functools.partial(fast)), plain), (by_attribute, Ops(fast)),
    (by_closure(Ops.steady), plain), (by_closure(Ops(plain)), plain),
]  # fmt: skip


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    RAN.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(("how", "f"), REACHABLE)
def test_compiled_code_stays_compiled_in_probed_pass(server, how, f):
    model = net(how, f)
    expected = model(torch.ones(1, 3))
    compiled = len(RAN)
    RAN.clear()
    torch._dynamo.reset()
    with probe(model, HOST, server.port) as watch:
        assert torch.equal(model(torch.ones(1, 3)), expected)
        assert len(RAN) == compiled
    assert watch.status()["recorded"] == 2
    assert flush(HOST, server.port)
    graphs = [path for path, _ in server.got if path.startswith("/graph")]
    assert not [
        path for path in graphs if path.endswith("model=Net")
    ]  # others are of tests that had the port


def test_graph_is_recorded_if_nothing_compiled_is_reachable(server):
    """``plain`` was compiled elsewhere, and ``never_compiled`` is excluded from compilation."""
    model = net(by_none, plain)
    with probe(model, HOST, server.port):
        model(torch.ones(1, 3))
    assert flush(HOST, server.port)
    assert [path for path, _ in server.got if path.startswith("/graph") and path.endswith("model=Net")]


def test_compiled_models_reach_compiled():
    model = net(by_none, plain)
    assert not reaches_compiled(model)
    assert reaches_compiled(torch.compile(model, backend="eager"))
    outer = nn.Sequential(model)
    model.compile(backend="eager")
    assert reaches_compiled(outer)


def test_search_does_not_access_attributes_of_objects():
    class Touchy:
        def __getattribute__(self, name):
            raise AssertionError(f"asked for {name}")

    assert not reaches_compiled(net(by_none, Touchy()))


def test_search_limit_counts_as_compiled(monkeypatch):
    model = net(by_none, plain)
    model.table["many"] = [[k] for k in range(100)]
    assert not reaches_compiled(model)
    monkeypatch.setattr("intus.tracing.compiled.MOST", 100)
    assert reaches_compiled(model)


def test_calls_in_the_capture_of_a_graph_are_left_alone(server, monkeypatch):
    """Nothing can be read while a CUDA graph is captured, and to try would break it."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with probe(model, HOST, server.port, budget=1000, kinds=("output", "grad_output")) as watch:
        model(torch.ones(2, 4)).sum().backward()
        recorded = watch.status()["recorded"]
        monkeypatch.setattr(session, "is_capturing", lambda: True)
        model(torch.ones(2, 4)).sum().backward()
        assert watch.status()["recorded"] == recorded > 0
        monkeypatch.undo()
        model(torch.ones(2, 4)).sum().backward()
    assert watch.status()["recorded"] == 2 * recorded
    assert watch.status()["troubles"] == 0
