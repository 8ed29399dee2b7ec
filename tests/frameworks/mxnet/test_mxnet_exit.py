"""The exit of a process that trained a model of MXNet."""

import pytest

from backends.exiting import assert_quiet_exit

CASES = {
    "gluon": """
import mxnet as mx
net = mx.gluon.nn.Dense(3)
net.initialize()
watch = probe(net, *WHERE, run="r")
watch.epoch = 1
with mx.autograd.record():
    loss = net(mx.nd.ones((5, 4))).sum()
loss.backward()
mx.nd.waitall()
""",
}


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "not removed"])
@pytest.mark.parametrize("name", CASES)
def test_exit_of_a_training_says_nothing(name, removed):
    """The model is a global, so it ends when the interpreter has cleared the modules whose code would run."""
    assert_quiet_exit(CASES[name] + "\nwatch.remove()" * removed)
