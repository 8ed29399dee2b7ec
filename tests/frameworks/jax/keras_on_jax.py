"""Train with Keras on JAX and a probe set; print what was recorded, for ``test_keras_on_jax``."""

from __future__ import annotations

import json
import sys

import keras
import numpy as np
from sklearn.datasets import load_digits

from backends.contract import Collect
from intus import probe
from intus.backends.base import for_model
from intus.callbacks import Keras
from intus.core.errors import InputError
from intus.monitoring.tap import ModelTap

digits = load_digits()
images, labels = (digits.data[:640] / 16).astype(np.float32), digits.target[:640]


def net():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(16, activation="relu", name="fc"), keras.layers.Dense(10, name="out")]
    model = keras.Sequential([keras.Input((64,)), *layers])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def fit(model, epochs, callbacks=()):
    options = {"epochs": epochs, "batch_size": 64, "shuffle": False, "verbose": 0}
    losses = model.fit(images, labels, callbacks=list(callbacks), **options).history["loss"]
    return [np.asarray(one).tobytes().hex() for one in (losses, *model.get_weights())]


recorded: dict[float, np.ndarray] = {}
own = ModelTap.on_tensor


def on_tensor(self, ticket, tensor):
    if tensor.address == "out":
        recorded[self.epoch] = tensor.copy(None, 0)
    own(self, ticket, tensor)


ModelTap.on_tensor = on_tensor
held_out = images[:100], {"digit": labels[:100]}
callback = Keras("127.0.0.1", 1, probe_set=held_out)
model = net()
bits = fit(model, 3, [callback])
assert bits == fit(net(), 3), "the training has other bits"
expected = {}
for epoch in range(4):  # epoch 0 is the untrained model
    plain = net()
    if epoch:
        fit(plain, epoch)
    expected[epoch] = keras.ops.convert_to_numpy(plain(images[:100], training=False))
errors = {epoch: float(np.abs(recorded[epoch] - expected[epoch]).max()) for epoch in recorded}

backend, tap = for_model(model), Collect()
handle = backend.attach(model, backend.operations(model), ("output",), tap)
model.predict(images[:64], verbose=0)
handle.remove()
refused = []
for kinds in (("grad_output",), ("parameter_grad",)):
    try:
        probe(model, "127.0.0.1", 1, kinds=kinds)
    except InputError as error:
        refused.append(str(error))
json.dump(
    {
        "backend": keras.backend.backend(),
        "errors": errors,
        "faults": callback.watch.status()["faults"],
        "passes": tap.passes,
        "reason": str(tap.errors[0]),
        "refused": refused,
        "torch": "torch" in sys.modules,
    },
    sys.stdout,
)
