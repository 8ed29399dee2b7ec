"""Every way to write the ``__call__`` of a ``tf.Module``: the judge is TensorFlow, without a probe."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from backends.contract import Collect
from intus import trace
from intus.backends.base import for_model
from intus.backends.tensorflow import calls, modules
from intus.core.errors import AddressError, CaptureError

X = tf.reshape(tf.range(8.0), (2, 4)) / 8


class Affine(tf.Module):
    def __init__(self):
        super().__init__()
        self.k = tf.Variable(tf.eye(4) * 1.1)

    def product(self, x, factor=1.0):
        return tf.nn.relu(x @ self.k) * factor


class Plain(Affine):
    def __call__(self, x):
        return self.product(x)


class Scoped(Affine):
    @tf.Module.with_name_scope
    def __call__(self, x):
        return self.product(x)


class Compiled(Affine):
    @tf.function
    def __call__(self, x):
        return self.product(x)


class Signed(Affine):
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def __call__(self, x):
        return self.product(x)


class Xla(Affine):
    @tf.function(jit_compile=True)
    def __call__(self, x):
        return self.product(x)


class WithoutAutograph(Affine):
    @tf.function(autograph=False)
    def __call__(self, x):
        return self.product(x)


class Partial(Affine):
    __call__ = functools.partialmethod(Affine.product, factor=2.0)


class Static(Affine):
    __call__ = staticmethod(tf.function(lambda x: x * 2.0))


def logged(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


class Decorated(Affine):
    @logged
    @tf.function
    def __call__(self, x):
        return self.product(x)


class Branch(Affine):
    @tf.function
    def __call__(self, x):
        y = self.product(x)
        if tf.reduce_sum(y) > 0:
            y = y * 2.0
        return y


class Loop(Affine):
    @tf.function
    def __call__(self, x):
        y = x @ self.k
        for _ in tf.range(3):
            y = tf.nn.relu(y @ self.k)
        return y


class Bound:
    def __get__(self, module, owner):
        return functools.partial(module.product)


class Descriptor(Affine):
    __call__ = Bound()


class OneBranch(Affine):
    """A branch of Python, which AutoGraph refuses: in eager code nothing may be rewritten."""

    def __call__(self, x):
        y = self.product(x)
        if tf.reduce_sum(y) > 0:
            z = y * 2.0
        return z


class Outer(tf.Module):
    def __init__(self, part):
        super().__init__()
        self.first, self.part = Plain(), part

    def __call__(self, x):
        return self.part(self.first(x)) + 1


EVERY = [Plain, Scoped, Compiled, Signed, Xla, WithoutAutograph, Partial, Static, Decorated, Branch, Loop]


def trained(model, in_function):
    """Return the losses, gradients and variables of a training, as bits."""
    variables = model.trainable_variables

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x) ** 2)
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.01 * gradient)
        return loss, *gradients

    if in_function:
        step = tf.function(step)
    found = [one.numpy().tobytes() for _ in range(3) for one in step(X)]
    return found + [one.numpy().tobytes() for one in model.variables]


def observed(model, kinds=("output", "input", "grad_output", "grad_input", "parameter")):
    backend, tap = for_model(model), Collect()
    return backend.attach(model, backend.operations(model), kinds, tap), tap


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("cls", [*EVERY, Descriptor, OneBranch], ids=lambda one: one.__name__)
def test_training_of_a_part_is_that_of_no_probe(cls, in_function):
    if cls is OneBranch and in_function:
        return  # TensorFlow refuses it
    model = Outer(cls())
    plain = trained(Outer(cls()), in_function)
    handle, tap = observed(model)
    assert trained(model, in_function) == plain
    handle.remove()
    assert tap.errors == []
    assert [type(model), type(model.part)] == [Outer, cls]
    seen = tap.seen[0]
    fresh = Outer(cls())
    np.testing.assert_array_equal(seen["output", "part"], fresh.part(fresh.first(X)))
    with tf.GradientTape() as tape:
        tape.watch(inner := fresh.part(fresh.first(X)))
        loss = tf.reduce_sum((inner + 1) ** 2)
    np.testing.assert_array_equal(seen["grad_output", "part"], tape.gradient(loss, inner))


@pytest.mark.parametrize(
    "cls", [Compiled, Signed, WithoutAutograph, Branch, Loop], ids=lambda one: one.__name__
)
def test_training_of_a_model_that_is_a_function_is_that_of_no_probe(cls):
    model = cls()
    handle, tap = observed(model, ("output", "input", "parameter"))
    assert trained(model, False) == trained(cls(), False)
    handle.remove()
    assert tap.errors == []
    np.testing.assert_array_equal(tap.seen[0]["output", ""], cls()(X))


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("cls", [*EVERY, Descriptor], ids=lambda one: one.__name__)
def test_trace_returns_what_the_model_does(cls, outer):
    model = Outer(cls()) if outer else cls()
    expected = model(X).numpy()
    traced = trace(model, X)
    np.testing.assert_array_equal(traced.outputs[0].value, expected)
    np.testing.assert_array_equal(model(X), expected)
    if outer:
        assert {"first", "part"} <= set(traced.modules)


def test_trace_of_control_flow_has_its_operations():
    assert {op.type for op in trace(Branch(), X).ops} >= {"MatMul", "Greater", "StatelessIf"}
    looped = trace(Outer(Loop()), X)
    assert "While" in {op.type for op in looped.ops}


def test_trace_is_refused_with_the_words_of_autograph():
    with pytest.raises(CaptureError, match="'z' must also be initialized in the else branch"):
        trace(OneBranch(), X)


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("place", ["begin", "enter", "exit", "end", "start", "_deliver", "convert"])
def test_errors_of_our_own_never_reach_the_training(monkeypatch, place, in_function):
    def fail(*_args, **_kwargs):
        raise RuntimeError("of our own")

    if place == "convert":
        monkeypatch.setattr(modules, "_converted", fail)
    elif place == "start":
        monkeypatch.setattr(calls, "_modes", None)
    else:
        monkeypatch.setattr(calls.CallObserver, place, fail)
    model = Outer(Compiled())
    handle, tap = observed(model)
    assert trained(model, in_function) == trained(Outer(Compiled()), in_function)
    handle.remove()
    assert tap.errors


class Fourier(Affine):
    def __call__(self, x, name=None):
        waves = tf.signal.fft(tf.cast(self.product(x), tf.complex64))
        return tf.math.real(tf.signal.ifft(waves)), waves, tf.strings.as_string(x)


@pytest.mark.parametrize("save", ["all", "none", "output_2"])
def test_complex_values_are_saved_and_texts_have_a_reason(save):
    model = Fourier()
    real, waves, _ = model(X)
    traced = trace(model, X, save=save)
    assert "FFT" in {op.type for op in traced.ops}
    one, two, three = traced.outputs
    if save != "none":
        np.testing.assert_array_equal(two.value, waves)
        assert two.value.dtype == np.complex64
    if save == "all":
        np.testing.assert_array_equal(one.value, real)
        with pytest.raises(
            AddressError, match="was not stored: it has the dtype string, which holds no numb"
        ):
            three.value  # noqa: B018


class Momentum(tf.Module):
    """A module whose call writes to a trainable variable, as a momentum encoder does."""

    def __init__(self):
        super().__init__()
        self.query, self.key = tf.Variable(tf.ones((4, 2))), tf.Variable(tf.zeros((4, 2)))

    def __call__(self, x):
        self.key.assign(0.9 * self.key + 0.1 * self.query)
        return x @ self.query + x @ self.key


def test_evaluation_restores_variables_that_a_call_writes():
    model = Momentum()
    with for_model(model).evaluation(model) as run:
        run(tf.ones((3, 4)))
    assert not model.key.numpy().any()
    model(tf.ones((3, 4)))
    assert model.key.numpy().all()


def test_lengths_that_depend_on_the_data():
    """A trace has the shape and the size of every value that was computed, of an output too."""

    class Masked(tf.Module):
        def __call__(self, x):
            return tf.boolean_mask(x, x[:, 0] > 0) * 2.0

    rows = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
    traced = trace(Masked(), tf.constant(rows))
    assert traced.outputs[0].shape == rows[rows[:, 0] > 0].shape
    computed = [op for op in traced if op.value is not None]
    assert len(computed) > 4
    for op in computed:
        value = np.asarray(op.value)
        assert (op.shape, op.nbytes) == (value.shape, value.nbytes), op.label
