"""The reasons that ``compare`` gives for models of JAX: of planted changes, and of right twins."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import planted
import pytest
from flax import linen, nnx
from planted_reasons import PlantedReasons, check_transposed_matrix_of_live_models
from torch_help import run_with_torch

import intus
from intus.core.graph import INPUT
from intus.tracing.comparison.unseen.fixed import sources

KEY = jax.random.key(0)


class Images(nnx.Module):
    def __init__(self, *, bias=True, stride=1, padding=1, dilation=1, groups=1, eps=1e-5):
        rngs = nnx.Rngs(0)
        settings = {"strides": stride, "padding": padding, "kernel_dilation": dilation}
        self.conv = nnx.Conv(4, 4, (3, 3), feature_group_count=groups, rngs=rngs, **settings)
        self.fc, self.norm = (
            nnx.Linear(4, 4, use_bias=bias, rngs=rngs),
            nnx.LayerNorm(4, epsilon=eps, rngs=rngs),
        )
        self.out = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.out(self.norm(self.fc(self.conv(x).mean((1, 2)))))


class Rows(nnx.Module):
    def __init__(self, axis):
        rngs = nnx.Rngs(0)
        self.fc, self.out, self.axis = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs), axis

    def __call__(self, x):
        return self.out(jax.nn.softmax(self.fc(x), self.axis))


class LinenImages(linen.Module):
    bias: bool = True
    stride: int = 1
    padding: int = 1
    dilation: int = 1
    groups: int = 1
    eps: float = 1e-5

    @linen.compact
    def __call__(self, x):
        settings = {"strides": self.stride, "padding": self.padding, "kernel_dilation": self.dilation}
        h = linen.Conv(4, (3, 3), feature_group_count=self.groups, name="conv", **settings)(x).mean((1, 2))
        h = linen.Dense(4, use_bias=self.bias, name="fc")(h)
        return linen.Dense(3, name="out")(linen.LayerNorm(epsilon=self.eps, name="norm")(h))


class LinenRows(linen.Module):
    axis: int

    @linen.compact
    def __call__(self, x):
        return linen.Dense(3, name="out")(jax.nn.softmax(linen.Dense(4, name="fc")(x), self.axis))


class EquinoxImages(eqx.Module):
    conv: eqx.nn.Conv2d
    fc: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    out: eqx.nn.Linear

    def __init__(self, *, bias=True, stride=1, padding=1, dilation=1, groups=1, eps=1e-5):
        self.conv = eqx.nn.Conv2d(4, 4, 3, stride, padding, dilation, groups, key=KEY)
        self.fc, self.norm = eqx.nn.Linear(4, 4, use_bias=bias, key=KEY), eqx.nn.LayerNorm(4, eps=eps)
        self.out = eqx.nn.Linear(4, 3, key=KEY)

    def __call__(self, x):
        return self.out(self.norm(self.fc(self.conv(x).mean((1, 2)))))


class EquinoxRows(eqx.Module):
    fc: eqx.nn.Linear
    out: eqx.nn.Linear
    axis: int = eqx.field(static=True)

    def __init__(self, axis):
        self.fc, self.out, self.axis = eqx.nn.Linear(4, 4, key=KEY), eqx.nn.Linear(4, 3, key=KEY), axis

    def __call__(self, x):
        return jax.vmap(self.out)(jax.nn.softmax(jax.vmap(self.fc)(x), self.axis))


def own_weights(change=""):
    """Yield the layer of each weight, and the name and the values that Flax gives it."""
    for name, value in planted.weights(change, last=True).items():
        layer, kind = name.split(".")
        yield (
            layer,
            "bias" if kind == "bias" else "scale" if layer == "norm" else "kernel",
            jnp.asarray(value),
        )


def filled(model, change=""):
    for layer, kind, value in own_weights(change):
        if getattr(getattr(model, layer, None), kind, None) is not None:
            getattr(getattr(model, layer), kind)[...] = value
    return model


def nnx_images(change, **settings):
    return intus.trace(filled(Images(**settings), change), jnp.asarray(planted.images(last=True)))


def nnx_rows(other):
    return intus.trace(filled(Rows(1 if other else -1)), jnp.asarray(planted.rows()))


def bound(model, x, change=""):
    values = {}
    for layer, kind, value in own_weights(change):
        values.setdefault(layer, {})[kind] = value
    named = jax.eval_shape(model.init, KEY, x)["params"]
    return model.bind(
        {"params": {layer: {kind: values[layer][kind] for kind in named[layer]} for layer in named}}
    )


def linen_images(change, **settings):
    x = jnp.asarray(planted.images(last=True))
    return intus.trace(bound(LinenImages(**settings), x, change), x)


def linen_rows(other):
    x = jnp.asarray(planted.rows())
    return intus.trace(bound(LinenRows(1 if other else -1), x), x)


def of_equinox(model, x, change=""):
    for name, value in planted.weights(change).items():
        layer, kind = name.split(".")
        old = getattr(getattr(model, layer, None), kind, None)
        if old is not None:
            new = jnp.asarray(value).reshape(old.shape)
            model = eqx.tree_at(lambda one, at=(layer, kind): getattr(getattr(one, at[0]), at[1]), model, new)
    return intus.trace(model, jnp.asarray(x[0]))


def equinox_images(change, **settings):
    return of_equinox(EquinoxImages(**settings), planted.images(), change)


def equinox_rows(other):
    return of_equinox(EquinoxRows(0 if other else -1), planted.rows())


MODELS = {
    "NNX": (nnx_images, nnx_rows),
    "Linen": (linen_images, linen_rows),
    "Equinox": (equinox_images, equinox_rows),
}


@pytest.fixture(scope="module", params=MODELS)
def models(request):
    return MODELS[request.param]


class TestPlanted(PlantedReasons):
    """Test the networks of ``models``."""


@pytest.mark.parametrize("name", MODELS)
def test_transposed_matrix_of_live_models_is_named(name):
    check_transposed_matrix_of_live_models(MODELS[name][0])


UP = """
import json, sys, numpy as np, torch, planted, planted_twins

other, stride = planted.read(sys.argv[1], "up"), int(sys.argv[3])
up = torch.nn.ConvTranspose2d(4, 4, 3, stride=stride)
w = planted.weights(sys.argv[2])
with torch.no_grad():
    up.weight.copy_(torch.tensor(w["conv.weight"]))
    up.bias.copy_(torch.tensor(w["conv.bias"]) + float(sys.argv[4]))
own = planted_twins.intus.trace(torch.nn.Sequential(up), torch.tensor(planted.images()))
print(json.dumps(planted_twins.both_orders(own, other)))
"""
UP_CHANGES = {
    "none": ("", 2, 0.0, None),
    "bias": ("", 2, 0.1, r".*bias of a and .*bias of b differ by .* of their norm"),
    "filter": ("one filter of the kernel", 2, 0.0, r".*(weight|kernel) of a and .* of b differ by 0\.037 .*"),
    "turned": ("kernel with height and width swapped", 2, 0.0, r".* of a and .* of b differ by 1\.3 .*"),
    "stride": ("", 1, 0.0, r"stride is (\(1, 1\) in a, \(2, 2\)|\(2, 2\) in a, \(1, 1\)) in b"),
}


@pytest.mark.parametrize("name", UP_CHANGES)
def test_transposed_convolution_whose_kernel_torch_flips_has_the_reason_alone(name, tmp_path):
    change, stride, bias, pattern = UP_CHANGES[name]
    settings = {"strides": 2, "padding": "VALID", "rngs": nnx.Rngs(0)}
    model = nnx.Sequential(nnx.ConvTranspose(4, 4, (3, 3), **settings))
    kernel = planted.weights()["conv.weight"].transpose(2, 3, 0, 1)[::-1, ::-1]
    model.layers[0].kernel[...] = jnp.asarray(kernel)
    model.layers[0].bias[...] = jnp.asarray(planted.weights()["conv.bias"])
    planted.write(tmp_path, "up", intus.trace(model, jnp.asarray(planted.images(last=True))))
    for said in run_with_torch(UP, tmp_path, change, stride, bias):
        if pattern is None:
            planted.check_twin(said)
            continue
        why = [one for one in said["why"] if not one.startswith("a runs ")]
        assert len(why) == 1, said["why"]
        assert re.fullmatch(pattern, why[0]), why


class Normed(nnx.Module):
    def __init__(self, eps):
        self.norm = nnx.LayerNorm(8, epsilon=eps, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return jnp.tanh(self.norm(x))


class EquinoxNormed(eqx.Module):
    norm: eqx.nn.LayerNorm

    def __init__(self, eps):
        self.norm = eqx.nn.LayerNorm(8, eps=eps)

    def __call__(self, x):
        return jnp.tanh(self.norm(x))


def test_eps_of_a_norm_that_computes_its_variance_in_another_way_is_the_reason():
    x = jax.random.normal(KEY, (8,))
    one, right, wrong = (
        intus.trace(model, x) for model in (Normed(1e-5), EquinoxNormed(1e-5), EquinoxNormed(1e-3))
    )
    assert intus.compare(one, right).attrs["first"] is None
    for a, b, values in ((one, wrong, ("1e-05", "0.001")), (wrong, one, ("0.001", "1e-05"))):
        first = intus.compare(a, b).attrs["first"]
        assert first["module"] == "norm"
        (why,) = [reason for reason in first["why"] if reason.startswith("its constants are ")]
        assert re.search(r"are {} \(.*\) in a, {} \(.*\) in b".format(*values), why), why
        assert not [reason for reason in first["why"] if "shape" in reason], first


class Joined(eqx.Module):
    turn: int

    def __call__(self, x):
        return jnp.concatenate([jnp.sin(x), jnp.exp(x)][:: self.turn], 0)


def test_order_of_joined_arrays_is_the_reason():
    x = jax.random.normal(KEY, (4, 8))
    first = intus.compare(*(intus.trace(Joined(turn), x) for turn in (1, -1))).attrs["first"]
    assert first["a"].startswith("concatenate_1"), first
    assert first["why"][0].startswith("its inputs are in another order: "), first


class Copied(eqx.Module):
    def __call__(self, x):
        return jnp.array(x, copy=True) * 2


def test_copy_depends_on_what_it_copies():
    """Check that a copy returns its argument, unlike ``copy_`` of PyTorch, which writes over it."""
    graph = intus.trace(Copied(), jax.random.normal(KEY, (4, 8))).graph
    assert not {"copy", "copy_p"}.isdisjoint(graph.types)
    assert sources(graph)[-1] == frozenset(graph.rows_of(INPUT))
