"""The exit of a process that trained a model of TensorFlow."""

import pytest

from backends.exiting import assert_quiet_exit

CASES = {
    "keras": """
import keras, tensorflow as tf
net = keras.Sequential([keras.layers.Dense(3)])
net.build((None, 4))
watch = probe(net, *WHERE, run="r")
watch.epoch = 1
net(tf.ones((5, 4)))
""",
}


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "not removed"])
@pytest.mark.parametrize("name", CASES)
def test_exit_of_a_training_says_nothing(name, removed):
    """The model is a global, so it ends when the interpreter has cleared the modules whose code would run."""
    assert_quiet_exit(CASES[name] + "\nwatch.remove()" * removed)
