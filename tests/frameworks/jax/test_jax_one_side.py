"""``compare`` of NNX with PyTorch, with an operation of one side between modules; see ``one_side``."""

import jax.numpy as jnp
import one_side
import pytest
from flax import nnx

import intus


class Block(nnx.Module):
    def __init__(self, planted):
        rngs = nnx.Rngs(0)
        self.norm, self.up = nnx.LayerNorm(8, rngs=rngs), nnx.Linear(8, 8, use_bias=False, rngs=rngs)
        self.planted = planted

    def __call__(self, x):
        h = self.norm(one_side.before(self.planted, "norm", x))
        return x + self.up(one_side.before(self.planted, "up", h))


class Net(nnx.Module):
    def __init__(self, *planted):
        rngs = nnx.Rngs(0)
        self.embed, self.block = nnx.Linear(6, 8, use_bias=False, rngs=rngs), Block(planted)
        self.last, self.planted = nnx.LayerNorm(8, rngs=rngs), planted
        for name, value in one_side.weights().items():
            layer = self.embed if name == "embed" else self.block.up
            layer.kernel[...] = jnp.asarray(value.T)

    def __call__(self, x):
        h = self.block(one_side.before(self.planted, "block", self.embed(x)))
        return self.last(one_side.before(self.planted, "last", h))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    x = jnp.asarray(one_side.X)
    return one_side.compared(tmp_path_factory.mktemp("one"), lambda *planted: intus.trace(Net(*planted), x))


def test_right_twins_agree(compared):
    one_side.check_right(compared)


@pytest.mark.parametrize("case", one_side.CASES)
def test_operation_of_one_side_has_no_partner_and_is_named(compared, case):
    one_side.check_named(compared, case)
