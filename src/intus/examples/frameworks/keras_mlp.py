"""A multilayer perceptron in Keras."""

import keras
import numpy as np

from intus import flush, probe, register_targets
from intus.examples.frameworks.problem import batches, start


def train(problem: str, host: str, port: int, epochs: int, run: str) -> list[float]:
    """Train in Keras, and return the loss of each step."""
    data = np.load(problem)
    images, labels = data["images"], data["labels"]
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((64,)),
            layers.Dense(32, name="hidden"),
            layers.ReLU(name="act"),
            layers.Dense(10, name="head"),
        ]
    )
    model.set_weights([data[name] for name in ("w1", "b1", "w2", "b2")])
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    register_targets(host, port, name="digit", targets=labels, model_pattern="^keras$")
    losses = []
    with probe(model, host, port, name="keras", run=run, block=True) as watch:
        for watch.epoch in range(1, epochs + 1):
            for items in batches(watch.epoch, len(images)):
                watch.items = items
                model.reset_metrics()  # otherwise Keras returns the mean of all steps so far
                losses.append(float(model.train_on_batch(images[items], labels[items])))
            print(f"keras, epoch {watch.epoch}: loss {losses[-1]:.3f}", flush=True)
    flush(host, port)
    return losses


if __name__ == "__main__":
    start(train)
