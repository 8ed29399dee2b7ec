"""The exit of a process that trained a model of JAX."""

import pytest

from backends.exiting import assert_quiet_exit

CASES = {
    "linen": """
import jax, jax.numpy as jnp, flax.linen as nn
net, x = nn.Dense(3), jnp.ones((5, 4))
state = net.init(jax.random.key(0), x)
watch = probe(net, *WHERE, run="r")
watch.epoch = 1
watch.through(jax.jit(lambda state, x: net.apply(state, x).sum()))(state, x)
""",
    "nnx": """
import jax.numpy as jnp
from flax import nnx
net, x = nnx.Linear(4, 3, rngs=nnx.Rngs(0)), jnp.ones((5, 4))
watch = probe(net, *WHERE, run="r")
watch.epoch = 1
watch.through(nnx.jit(lambda net, x: net(x).sum()))(net, x)
""",
    "equinox": """
import equinox as eqx, jax, jax.numpy as jnp
net, x = eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0)), jnp.ones((5, 4))
watch = probe(net, *WHERE, run="r")
watch.epoch = 1
watch.through(eqx.filter_jit(lambda net, x: jax.vmap(net)(x).sum()))(net, x)
""",
}


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "not removed"])
@pytest.mark.parametrize("name", CASES)
def test_exit_of_a_training_says_nothing(name, removed):
    """The model is a global, so it ends when the interpreter has cleared the modules whose code would run."""
    assert_quiet_exit(CASES[name] + "\nwatch.remove()" * removed)
