"""The reasons that ``compare`` gives for Keras models and modules: of planted changes, and of right twins."""

import keras
import planted
import pytest
import tensorflow as tf
from planted_reasons import PlantedReasons, check_transposed_matrix_of_live_models

import intus


def keras_images(change, *, bias=True, stride=1, padding=1, dilation=1, groups=1, eps=1e-5):
    layers = keras.layers
    x = keras.Input((8, 8, 4))
    h = layers.ZeroPadding2D(padding, name="pad")(x) if padding else x
    settings = {"strides": stride, "dilation_rate": dilation, "groups": groups}
    h = layers.GlobalAveragePooling2D(name="pool")(layers.Conv2D(4, 3, name="conv", **settings)(h))
    h = layers.LayerNormalization(epsilon=eps, name="norm")(layers.Dense(4, use_bias=bias, name="fc")(h))
    return traced(keras.Model(x, layers.Dense(3, name="out")(h)), planted.images(last=True), change)


def keras_same(change, *, bias=True, stride=1, padding=1, dilation=1, groups=1, eps=1e-5):
    """Return the same with padding that is stated as a word, where a word can state it."""
    if stride != 1 or dilation != 1:
        return keras_images(
            change, bias=bias, stride=stride, padding=padding, dilation=dilation, groups=groups, eps=eps
        )
    layers = keras.layers
    x = keras.Input((8, 8, 4))
    h = layers.Conv2D(4, 3, groups=groups, padding="same" if padding else "valid", name="conv")(x)
    h = layers.Dense(4, use_bias=bias, name="fc")(layers.GlobalAveragePooling2D(name="pool")(h))
    h = layers.Dense(3, name="out")(layers.LayerNormalization(epsilon=eps, name="norm")(h))
    return traced(keras.Model(x, h), planted.images(last=True), change)


def keras_rows(other):
    layers = keras.layers
    x = keras.Input((4, 4))
    h = layers.Softmax(axis=1 if other else -1, name="softmax")(layers.Dense(4, name="fc")(x))
    return traced(keras.Model(x, layers.Dense(3, name="out")(h)), planted.rows())


def traced(model, x, change=""):
    w = planted.weights(change, last=True)
    for layer in model.layers:
        names = [f"{layer.name}.{kind}" for kind in ("weight", "bias")][: len(layer.get_weights())]
        layer.set_weights([w[name] for name in names])
    return intus.trace(model, x)


class Layer(tf.Module):
    def __init__(self, name, weights, run):
        super().__init__(name=name)
        for kind in ("weight", "bias"):
            if f"{name}.{kind}" in weights:
                setattr(self, kind, tf.Variable(weights[f"{name}.{kind}"]))
        self.run = run

    def __call__(self, x):
        return self.run(self, x)


def dense(layer, x):
    y = tf.linalg.matmul(x, layer.weight)
    return y + layer.bias if hasattr(layer, "bias") else y


class Images(tf.Module):
    def __init__(self, w, stride, padding, dilation, eps):
        super().__init__()

        def conv(layer, x):
            pads = [[0, 0], [padding] * 2, [padding] * 2, [0, 0]]
            return tf.nn.conv2d(x, layer.weight, stride, pads, dilations=dilation) + layer.bias

        def norm(layer, x):
            mean, variance = tf.nn.moments(x, [-1], keepdims=True)
            return tf.nn.batch_normalization(x, mean, variance, layer.bias, layer.weight, eps)

        self.conv, self.fc = Layer("conv", w, conv), Layer("fc", w, dense)
        self.norm, self.out = Layer("norm", w, norm), Layer("out", w, dense)

    def __call__(self, x):
        return self.out(self.norm(self.fc(tf.reduce_mean(self.conv(x), [1, 2]))))


class Rows(tf.Module):
    def __init__(self, w, axis):
        super().__init__()
        self.fc, self.out, self.axis = Layer("fc", w, dense), Layer("out", w, dense), axis

    def __call__(self, x):
        return self.out(tf.nn.softmax(self.fc(x), self.axis))


def module_images(change, *, bias=True, stride=1, padding=1, dilation=1, groups=1, eps=1e-5):
    w = planted.weights(change, last=True)
    if not bias:
        del w["fc.bias"]
    return intus.trace(Images(w, stride, padding, dilation, eps), tf.constant(planted.images(last=True)))


def module_rows(other):
    w = planted.weights(last=True)
    return intus.trace(Rows(w, 1 if other else -1), tf.constant(planted.rows()))


MODELS = {
    "Keras": (keras_images, keras_rows),
    "Keras with a word": (keras_same, keras_rows),
    "tf.Module": (module_images, module_rows),
}


@pytest.fixture(scope="module", params=MODELS)
def models(request):
    return MODELS[request.param]


class TestPlanted(PlantedReasons):
    """Test the networks of ``models``."""

    @pytest.fixture(autouse=True)
    def padding_is_stated_alike(self, request):
        """Skip the changes of which ``keras_same`` cannot state the padding as before."""
        case = request.node.callspec.params
        of = case["models"], case.get("pair")
        if of == ("Keras with a word", "own, own") and case["change"] in ("stride", "dilation"):
            pytest.skip("the padding of one side is stated otherwise")


@pytest.mark.parametrize("name", ["Keras", "tf.Module"])
def test_transposed_matrix_of_live_models_is_named(name):
    check_transposed_matrix_of_live_models(MODELS[name][0])
