"""A multilayer perceptron in Flax NNX, on JAX."""

from typing import Any

import numpy as np
import optax
from flax import nnx

from intus import flush, probe, register_targets
from intus.examples.frameworks.problem import batches, start


class Net(nnx.Module):  # type: ignore[misc]
    """Two layers with a ReLU between them."""

    def __init__(self, data: Any) -> None:
        self.hidden, self.head = nnx.Linear(64, 32, rngs=nnx.Rngs(0)), nnx.Linear(32, 10, rngs=nnx.Rngs(0))
        for layer, weight, bias in ((self.hidden, "w1", "b1"), (self.head, "w2", "b2")):
            layer.kernel, layer.bias = nnx.Param(data[weight]), nnx.Param(data[bias])

    def __call__(self, x: Any) -> Any:
        """Return the logits."""
        return self.head(nnx.relu(self.hidden(x)))


@nnx.jit  # type: ignore[untyped-decorator]
def step(model: Net, optimizer: Any, x: Any, y: Any) -> Any:
    """Train on one batch, and return its loss."""

    def loss(model: Net) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


def train(problem: str, host: str, port: int, epochs: int, run: str) -> list[float]:
    """Train in NNX, and return the loss of each step."""
    data = np.load(problem)
    images, labels = data["images"], data["labels"]
    model = Net(data)
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    register_targets(host, port, name="digit", targets=labels, model_pattern="^nnx$")
    losses, kinds = [], ("output", "grad_output")
    with probe(model, host, port, name="nnx", run=run, kinds=kinds, block=True) as watch:
        watched = watch.through(step)
        for watch.epoch in range(1, epochs + 1):
            for items in batches(watch.epoch, len(images)):
                watch.items = items
                losses.append(float(watched(model, optimizer, images[items], labels[items])))
            print(f"nnx, epoch {watch.epoch}: loss {losses[-1]:.3f}", flush=True)
    flush(host, port)
    return losses


if __name__ == "__main__":
    start(train)
