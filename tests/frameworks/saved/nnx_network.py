"""A network of NNX, whose trace on some images is saved in ``nnx.trace``.

To write it again, run ``python nnx_network.py`` in this folder, with JAX and Flax installed. Passes of other
frameworks with the same weights are compared with it.
"""

from pathlib import Path

import numpy as np

TRACE = Path(__file__).parent / "nnx.trace"


def images():
    return np.random.RandomState(0).randn(3, 8, 8, 2).astype("float32")


def weights():
    """Return the weights by the names that NNX gives them."""
    random = np.random.RandomState(1)

    def array(*shape, scale=0.3):
        return (random.randn(*shape) * scale).astype("float32")

    return {
        "conv.kernel": array(3, 3, 2, 4),
        "conv.bias": array(4),
        "bn.mean": array(4),
        "bn.var": 1 + np.abs(array(4)),
        "fc.kernel": array(64, 8),
        "fc.bias": array(8),
        "o.kernel": array(8, 3),
        "o.bias": array(3),
    }


def network():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self):
            rngs = nnx.Rngs(0)
            self.conv = nnx.Conv(2, 4, (3, 3), strides=2, rngs=rngs)
            self.bn = nnx.BatchNorm(4, use_running_average=True, rngs=rngs)
            self.ln = nnx.LayerNorm(64, rngs=rngs)
            self.fc, self.o = nnx.Linear(64, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, x):
            h = nnx.relu(self.bn(self.conv(x)))
            h = self.ln(h.reshape(h.shape[0], -1))
            return self.o(nnx.gelu(self.fc(h), approximate=False))

    net = Net()
    for address, value in weights().items():
        module, name = address.split(".")
        getattr(getattr(net, module), name)[...] = value
    return net


if __name__ == "__main__":
    import intus

    intus.trace(network(), images()).save(TRACE)
