"""A training in each framework, plain or with a probe, as a process that runs block by block.

Started by ``benchmarks.frameworks`` in the environment of the framework. A block begins with a line on
standard input, and ends with the processor time of the process so far, with all its threads, on standard
output. Between blocks the process waits, so that another one can take its turn.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np

from intus import probe

#: Rows of a batch, features, width of the two hidden layers, and classes.
ROWS, FEATURES, WIDTH, CLASSES = 64, 64, 2048, 10

Rows = tuple[np.ndarray, np.ndarray]


class Pace:
    """Runs a training block by block, and sets the epochs of its probe.

    Args:
        steps: The number of steps in a block.
        epoch: The number of steps in an epoch.
        width: The width of the hidden layers.
        port: The port of the server for a probe; None for a training without one.
        blind: Whether the probe records nothing.
    """

    def __init__(self, steps: int, epoch: int, width: int, port: int | None, *, blind: bool) -> None:
        self.steps, self.epoch, self.width, self.port, self.blind = steps, epoch, width, port, blind
        self.watch: Any = None
        random = np.random.default_rng(0)
        self.data = random.normal(size=(ROWS * epoch, FEATURES)).astype(np.float32)
        self.labels = random.integers(0, CLASSES, ROWS * epoch)
        self._done = 0

    def probed(self, model: Any) -> AbstractContextManager[Any]:
        """Return a context in which the model is probed, if it is to be."""
        if self.port is None:
            return nullcontext()
        self.watch = probe(model, port=self.port, structure=not self.blind)
        if self.blind:
            for account in self.watch._tap.budget._accounts:
                account.saved = -math.inf
        return self.watch

    def alternated(self, own: Callable[..., Any], probed: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls ``probed``, and of a blind training ``own`` in every second block.

        So one process has both: where two lie in memory alone makes more of a difference than such a probe.
        """

        def step(*args: Any) -> Any:
            return (own if self.blind and self._done // self.steps % 2 else probed)(*args)

        return step

    def batches(self) -> Iterator[Rows]:
        """Yield batches, epoch by epoch, until the last block has ended."""
        for epoch in count():
            if self.watch is not None:
                self.watch.epoch = epoch
            for start in range(0, len(self.data), ROWS):
                yield self.data[start : start + ROWS], self.labels[start : start + ROWS]
                if not self.step_ended():
                    return

    def step_ended(self) -> bool:
        """Handle the end of a step; return False after the last block."""
        self._done += 1
        return self._done % self.steps != 0 or self.wait()

    def wait(self) -> bool:
        """End a block, and wait for the next; return False if there is none."""
        status = self.watch.status() if self.watch is not None else {}
        spent = self.watch._tap.budget.spent.processor if self.watch is not None else 0.0
        print(time.process_time(), status.get("passes", 0), status.get("skipped", 0), spent, flush=True)
        return sys.stdin.readline().strip() == "go"


def torch(pace: Pace) -> None:
    """Train with PyTorch."""
    import torch as framework

    framework.set_num_threads(1)
    framework.manual_seed(0)
    nn = framework.nn
    model = nn.Sequential(
        nn.Linear(FEATURES, pace.width),
        nn.ReLU(),
        nn.Linear(pace.width, pace.width),
        nn.ReLU(),
        nn.Linear(pace.width, CLASSES),
    )
    optimizer = framework.optim.SGD(model.parameters(), 0.01)
    with pace.probed(model):
        for x, y in pace.batches():
            loss = nn.functional.cross_entropy(model(framework.from_numpy(x)), framework.from_numpy(y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def session(pace: Pace) -> None:
    """Train in a Session of TensorFlow 1."""
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    tf.set_random_seed(0)
    x, y = tf.placeholder(tf.float32, [None, FEATURES]), tf.placeholder(tf.int64, [None])
    value: Any = x
    for number, (inputs, outputs) in enumerate(
        [(FEATURES, pace.width), (pace.width, pace.width), (pace.width, CLASSES)]
    ):
        with tf.name_scope(f"layer{number}"):
            weight = tf.Variable(tf.random.normal([inputs, outputs], stddev=inputs**-0.5))
            value = tf.matmul(value, weight) + tf.Variable(tf.zeros(outputs))
            value = value if outputs == CLASSES else tf.nn.relu(value)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=value))
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Session(config=config) as opened:
        opened.run(tf.global_variables_initializer())
        own = opened.run
        with pace.probed(opened):
            run = pace.alternated(own, opened.run)
            for images, labels in pace.batches():
                run([loss, step], {x: images, y: labels})


def _keras_model(pace: Pace) -> Any:
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((FEATURES,)),
            layers.Dense(pace.width),
            layers.ReLU(),
            layers.Dense(pace.width),
            layers.ReLU(),
            layers.Dense(CLASSES),
        ]
    )


def keras(pace: Pace) -> None:
    """Train with ``fit`` of Keras."""
    import keras as framework

    class Steps(framework.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if pace.watch is not None:
                pace.watch.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if not pace.step_ended():
                self.model.stop_training = True
                raise _EndError

    model = _keras_model(pace)
    loss = framework.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(framework.optimizers.SGD(0.01), loss, jit_compile=False)
    try:
        with pace.probed(model):
            given = {"batch_size": ROWS, "epochs": 10**6, "shuffle": False, "verbose": 0}
            model.fit(pace.data, pace.labels, callbacks=[Steps()], **given)
    except _EndError:
        pass


class _EndError(Exception):
    """Ends ``fit`` within an epoch."""


def loop(pace: Pace) -> None:
    """Train a ``tf.Module`` in a loop of one's own."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(0)

    class Dense(tf.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.weight = tf.Variable(tf.random.normal([inputs, outputs], stddev=inputs**-0.5))
            self.bias = tf.Variable(tf.zeros(outputs))

        def __call__(self, x: Any) -> Any:
            return x @ self.weight + self.bias

    class Net(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Dense(FEATURES, pace.width), Dense(pace.width, pace.width)
            self.last = Dense(pace.width, CLASSES)

        def __call__(self, x: Any) -> Any:
            return self.last(tf.nn.relu(self.second(tf.nn.relu(self.first(x)))))

    model = Net()

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(x))
            loss = tf.reduce_mean(losses)
        variables = model.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * gradient)
        return loss

    with pace.probed(model):
        for x, y in pace.batches():
            step(tf.constant(x), tf.constant(y))


def gluon(pace: Pace, *, hybridize: bool = False) -> None:
    """Train a block of Gluon."""
    import mxnet as mx
    from mxnet import autograd, nd
    from mxnet import gluon as framework

    mx.random.seed(0)
    model = framework.nn.HybridSequential()
    for width in (pace.width, pace.width):
        model.add(framework.nn.Dense(width), framework.nn.Activation("relu"))
    model.add(framework.nn.Dense(CLASSES))
    model.initialize(mx.init.Xavier())
    if hybridize:
        model.hybridize()
    trainer = framework.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.01})
    cross_entropy = framework.loss.SoftmaxCrossEntropyLoss()
    with pace.probed(model):
        for x, y in pace.batches():
            with autograd.record():
                loss = cross_entropy(model(nd.array(x)), nd.array(y))
            loss.backward()
            trainer.step(ROWS)
            loss.wait_to_read()


def hybrid(pace: Pace) -> None:
    """Train a hybridized block of Gluon."""
    gluon(pace, hybridize=True)


def module(pace: Pace) -> None:
    """Train a ``Module`` of MXNet."""
    import mxnet as mx
    from mxnet import nd

    mx.random.seed(0)
    value = mx.sym.Variable("data")
    for number, width in enumerate((pace.width, pace.width)):
        value = mx.sym.FullyConnected(value, num_hidden=width, name=f"fc{number}")
        value = mx.sym.Activation(value, act_type="relu", name=f"relu{number}")
    value = mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(value, num_hidden=CLASSES, name="head"), name="softmax"
    )
    model = mx.mod.Module(value, context=mx.cpu())
    model.bind([("data", (ROWS, FEATURES))], [("softmax_label", (ROWS,))])
    model.init_params(mx.init.Xavier())
    model.init_optimizer(optimizer_params={"learning_rate": 0.01})
    with pace.probed(model):
        for x, y in pace.batches():
            model.forward_backward(mx.io.DataBatch([nd.array(x)], [nd.array(y)]))
            model.update()
            model.get_outputs()[0].wait_to_read()


def nnx(pace: Pace) -> None:
    """Train a module of Flax NNX in a compiled step."""
    import optax
    from flax import nnx as framework

    class Net(framework.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            random = framework.Rngs(0)
            self.first = framework.Linear(FEATURES, pace.width, rngs=random)
            self.second = framework.Linear(pace.width, pace.width, rngs=random)
            self.last = framework.Linear(pace.width, CLASSES, rngs=random)

        def __call__(self, x: Any) -> Any:
            relu = framework.relu
            return self.last(relu(self.second(relu(self.first(x)))))

    @framework.jit  # type: ignore[untyped-decorator]
    def step(model: Net, optimizer: Any, x: Any, y: Any) -> Any:
        def loss(model: Net) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        value, gradients = framework.value_and_grad(loss)(model)
        optimizer.update(model, gradients)
        return value

    model = Net()
    optimizer = framework.Optimizer(model, optax.sgd(0.01), wrt=framework.Param)
    with pace.probed(model) as watch:
        run = pace.alternated(step, step if watch is None else watch.through(step))
        for x, y in pace.batches():
            run(model, optimizer, x, y).block_until_ready()


#: The trainings by name, and the packages they need.
TRAININGS: dict[str, tuple[Callable[[Pace], None], str]] = {
    "torch": (torch, "torch"),
    "session": (session, "tensorflow"),
    "keras": (keras, "keras"),
    "loop": (loop, "tensorflow"),
    "gluon": (gluon, "mxnet"),
    "hybrid": (hybrid, "mxnet"),
    "module": (module, "mxnet"),
    "nnx": (nnx, "flax"),
}


def main() -> None:
    """Run a training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TRAININGS)
    parser.add_argument("--steps", type=int, required=True, help="the number of steps in a block")
    parser.add_argument("--epoch", type=int, required=True, help="the number of steps in an epoch")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--port", type=int, help="the port of the server; without it nothing is probed")
    parser.add_argument("--blind", action="store_true", help="probe, but record nothing")
    given = parser.parse_args()
    pace = Pace(given.steps, given.epoch, given.width, given.port, blind=given.blind)
    train, package = TRAININGS[given.name]
    import_module(package)
    print(time.process_time(), 0, 0, 0, flush=True)
    sys.stdin.readline()
    train(pace)
    if pace.watch is not None:
        pace.watch._tap.sender.drain(10)
    print(time.process_time(), 0, 0, 0, flush=True)
    os._exit(0)  # some frameworks take long to end


if __name__ == "__main__":
    main()
