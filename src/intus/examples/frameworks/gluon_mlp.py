"""A multilayer perceptron in MXNet's Gluon."""

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

from intus import flush, probe, register_targets
from intus.examples.frameworks.problem import batches, start


class Net(gluon.HybridBlock):  # type: ignore[misc]
    """Two layers with a ReLU between them."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.hidden, self.act = gluon.nn.Dense(32, in_units=64), gluon.nn.Activation("relu")
            self.head = gluon.nn.Dense(10, in_units=32)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        """Return the logits."""
        return self.head(self.act(self.hidden(x)))


def train(problem: str, host: str, port: int, epochs: int, run: str) -> list[float]:
    """Train in Gluon, and return the loss of each step."""
    data = np.load(problem)
    images, labels = nd.array(data["images"]), nd.array(data["labels"])
    model = Net()
    model.initialize(mx.init.Zero())
    for layer, weight, bias in ((model.hidden, "w1", "b1"), (model.head, "w2", "b2")):
        layer.weight.set_data(nd.array(data[weight].T))
        layer.bias.set_data(nd.array(data[bias]))
    model.hybridize()
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.1})
    cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()

    register_targets(host, port, name="digit", targets=data["labels"], model_pattern="^gluon$")
    losses, kinds = [], ("output", "grad_output")
    with probe(model, host, port, name="gluon", run=run, kinds=kinds, block=True) as watch:
        for watch.epoch in range(1, epochs + 1):
            for items in batches(watch.epoch, len(images)):
                watch.items = items
                with autograd.record():
                    loss = cross_entropy(model(images[items]), labels[items])
                loss.backward()
                trainer.step(len(items))
                losses.append(float(loss.mean().asscalar()))
            print(f"gluon, epoch {watch.epoch}: loss {losses[-1]:.3f}", flush=True)
    flush(host, port)
    return losses


if __name__ == "__main__":
    start(train)
