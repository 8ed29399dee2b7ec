"""The contract of backends, for TensorFlow and Keras: the judge is TensorFlow on the same operations."""

from __future__ import annotations

from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf

from backends.contract import (
    CLASSES,
    FEATURES,
    BackendContract,
    Collect,
    Returning,
    Subject,
    TraceContract,
    Training,
    attach,
    batch,
    unchanged,
)
from intus.backends.base import for_model

tf1 = tf.compat.v1


class SessionSubject(Subject):
    name = "session"
    kinds = ("output", "grad_output")
    calls = dict.fromkeys(
        (
            *("first/MatMul", "first/BiasAdd", "first/Relu", "head/MatMul", "head/BiasAdd"),
            "loss/SparseSoftmaxCrossEntropyWithLogits/SparseSoftmaxCrossEntropyWithLogits",
        ),
        1,
    )

    def new(self):
        graph = tf.Graph()
        with graph.as_default():
            tf1.set_random_seed(1)
            x = tf1.placeholder(tf.float32, [None, FEATURES], "x")
            y = tf1.placeholder(tf.int64, [None], "y")
            hidden = self.layer(x, 8, "first", tf.nn.relu)
            logits = self.layer(hidden, CLASSES, "head", lambda z: z)
            with tf1.name_scope("loss"):
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
                loss = tf.reduce_mean(losses, name="mean")
            tf1.train.AdamOptimizer(0.01).minimize(loss, name="train")
            session = tf1.Session(graph=graph)
            session.run(tf1.global_variables_initializer())
        return session

    @staticmethod
    def layer(x, width, name, activation):
        with tf1.variable_scope(name):
            init = tf1.glorot_uniform_initializer(seed=1)
            weight = tf1.get_variable("weight", [x.shape[1], width], initializer=init)
            bias = tf1.get_variable("bias", [width], initializer=tf1.zeros_initializer())
            return activation(tf.nn.bias_add(tf.matmul(x, weight), bias))

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        losses = []

        def step(x, y):
            return model.run(["train", "loss/mean:0"], {"x:0": x, "y:0": y})[1]

        step = through(step)
        for number in range(steps):
            losses.append(step(*batch(number)))
            after(number)
        names = model.graph.get_collection("variables")
        return Training(model, losses, tf1.Session.run(model, names))

    def expected(self):
        session = self.new()
        x, y = batch(0)
        feeds = {"x:0": x, "y:0": y}
        outputs = [session.graph.get_tensor_by_name(f"{name}:0") for name in self.calls]
        with session.graph.as_default():
            gradients = tf1.gradients(session.graph.get_tensor_by_name("loss/mean:0"), outputs)
        found = {}
        for kind, tensors in (("output", outputs), ("grad_output", gradients)):
            for name, value in zip(self.calls, session.run(tensors, feeds), strict=True):
                found[kind, name] = value
        return found

    def evaluated(self):
        return self.new().run("head/BiasAdd:0", {"x:0": batch(0)[0]})

    def data(self):
        return {"x:0": batch(0)[0]}

    def footprint(self, model):
        return sorted(vars(model)), type(model), len(model.graph.get_operations())


def keras_net(name):
    keras.utils.set_random_seed(1)
    cell = keras.layers.Dense(8, name="cell")
    x = keras.Input((FEATURES,))
    h = keras.layers.Dense(8, name="first")(x)
    h = keras.layers.BatchNormalization(name="norm")(h)
    h = keras.layers.Activation("relu", name="act")(h)
    h = keras.layers.Dropout(0.3, name="drop", seed=3)(h)
    y = keras.Sequential([keras.layers.Dense(CLASSES, name="out")], name="head")(cell(cell(h)))
    return keras.Model(x, y, name=name)


class Twice(keras.Model):
    """A subclassed model with a layer that is called twice, and layers in a list."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = keras.layers.Dense(8), keras.layers.BatchNormalization()
        self.act, self.drop = keras.layers.Activation("relu"), keras.layers.Dropout(0.3, seed=3)
        self.cell, self.head = keras.layers.Dense(8), [keras.layers.Dense(CLASSES)]

    def call(self, x, training=False):
        x = self.drop(self.act(self.norm(self.first(x), training=training)), training=training)
        return self.head[0](self.cell(self.cell(x)))


def loss_of(y, logits):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, logits)


class KerasSubject(Subject):
    """A Keras model; its parts are called one by one for the values that are expected."""

    kinds = ("output", "input", "grad_output", "grad_input", "parameter")

    def __init__(self, name, make, how, outer=True):
        self.name, self.make, self.how = name, make, how
        names = ("", "first", "norm", "act", "drop", "cell", "cell", "head", "head.out")
        self.calls = dict(Counter(names if outer else [*names[:-2], "head.0"]))

    def new(self):
        keras.utils.set_random_seed(1)
        model = self.make()
        model(np.zeros((1, FEATURES), np.float32))
        model.compile(
            keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False, run_eagerly=self.how == "eager fit",
        )  # fmt: skip
        return model

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        keras.utils.set_random_seed(0)
        optimizer, losses = keras.optimizers.Adam(0.01), []

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            weights = model.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
            return loss

        if self.how == "loop":
            step = tf.function(step)
        elif "fit" in self.how:
            step = model.train_on_batch
        step = through(step)
        for number in range(steps):
            losses.append(np.asarray(step(*map(tf.constant, batch(number)))))
            after(number)
        return Training(model, losses, [one.numpy() for one in model.variables])

    def expected(self):
        model = self.new()
        x, y = map(tf.constant, batch(0))
        at = {one.address: one.module for one in for_model(model).operations(model)}
        head = ("head.out",) if "head" in self.calls else ("head.0",)
        with tf.GradientTape(persistent=True) as tape:
            ends, start = {}, x
            for name in ("first", "norm", "act", "drop", "cell", "cell:2", *head):
                layer = at[name.partition(":")[0]]
                more = {"training": True} if name in ("norm", "drop") else {}
                ends[name] = start, (start := layer(start, **more))
            ends[""] = x, start
            if "head" in self.calls:
                ends["head"] = ends["head.out"]
            loss = loss_of(y, start)
        found = {}
        for name, pair in ends.items():
            for kind, end in zip(("input", "output"), pair, strict=True):
                found[kind, name] = end.numpy()
                if end is not x:  # whose gradient no training computes
                    found[f"grad_{kind}", name] = tape.gradient(loss, end).numpy()
        return found | {("parameter", name): value for name, value in self.parameters(model).items()}

    def parameters(self, model):
        return {
            f"{one.address}.{variable.name}": variable.numpy()
            for one in for_model(model).operations(model)
            if one.address and not getattr(one.module, "layers", ())
            for variable in one.module.trainable_variables
        }

    def evaluated(self):
        return self.new()(batch(0)[0], training=False).numpy()

    def footprint(self, model):
        layers = [model, *model._flatten_layers(include_self=False)]
        functions = [getattr(model, f"{name}_function") for name in ("test", "predict")]
        return [(type(one), sorted(vars(one)), one.call.__qualname__) for one in layers], functions


class Affine(tf.Module):
    def __init__(self, inputs, width, seed):
        super().__init__()
        self.weight = tf.Variable(tf.random.stateless_normal([inputs, width], [seed, 1]) * 0.3)
        self.bias = tf.Variable(tf.zeros(width))

    def __call__(self, x):
        return tf.matmul(x, self.weight) + self.bias


class Blocks(tf.Module):
    """Modules in a list; ``cell`` is called as often as a loop that TensorFlow unrolls says."""

    def __init__(self):
        super().__init__()
        self.first, self.cell = Affine(FEATURES, 8, 1), Affine(8, 8, 2)
        self.heads = [Affine(8, CLASSES, 3)]

    def __call__(self, x):
        x = tf.nn.relu(self.first(x))
        return self.heads[0](self.cell(self.cell(x)))


class CompiledBlocks(Blocks):
    @tf.function
    def __call__(self, x):
        return Blocks.__call__(self, x)


class ModuleSubject(KerasSubject):
    """A ``tf.Module``, called within a function or, if it is one itself, eagerly."""

    def __init__(self, name, make):
        super().__init__(name, make, "loop")
        self.calls = {"": 1, "first": 1, "cell": 2, "heads.0": 1}
        self.kinds = KerasSubject.kinds

    def new(self):
        return self.make()

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        losses = []

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x))
            weights = model.trainable_variables
            for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(0.1 * gradient)
            return loss

        step = through(step)
        for number in range(steps):
            losses.append(step(*map(tf.constant, batch(number))).numpy())
            after(number)
        return Training(model, losses, [one.numpy() for one in model.variables])

    def expected(self):
        model = self.new()
        x, y = map(tf.constant, batch(0))
        with tf.GradientTape(persistent=True) as tape:
            first = model.first(x)
            hidden = tf.nn.relu(first)
            cell = model.cell(hidden)
            again = model.cell(cell)
            logits = model.heads[0](again)
            loss = loss_of(y, logits)
        ends = {"": (x, logits), "first": (x, first), "cell": (hidden, cell), "cell:2": (cell, again)}
        found = {}
        for name, pair in {**ends, "heads.0": (again, logits)}.items():
            for kind, end in zip(("input", "output"), pair, strict=True):
                found[kind, name] = end.numpy()
                if end is not x:
                    found[f"grad_{kind}", name] = tape.gradient(loss, end).numpy()
        return found | {("parameter", name): value for name, value in self.parameters(model).items()}

    def parameters(self, model):
        parts = {"first": model.first, "cell": model.cell, "heads.0": model.heads[0]}
        return {
            f"{at}.{of}": getattr(one, of).numpy() for at, one in parts.items() for of in ("weight", "bias")
        }

    def evaluated(self):
        return self.new()(batch(0)[0]).numpy()

    def footprint(self, model):
        return [(type(one), type(one).__call__, sorted(vars(one))) for one in (model, *model.submodules)]


class CompiledModuleSubject(ModuleSubject):
    """A module whose ``__call__`` is a ``tf.function``, outside of which its gradients are computed."""

    def __init__(self, name, make):
        super().__init__(name, make)
        self.kinds = ("output", "input", "parameter")

    def expected(self):
        return {key: value for key, value in super().expected().items() if key[0] in self.kinds}


SUBJECTS = [
    SessionSubject(),
    KerasSubject("functional, fit", lambda: keras_net("net"), "fit"),
    KerasSubject("subclassed, loop", Twice, "loop", outer=False),
    KerasSubject("subclassed, eager fit", Twice, "eager fit", outer=False),
    ModuleSubject("module", Blocks),
    CompiledModuleSubject("module of functions", CompiledBlocks),
]


class TestTensorFlowContract(BackendContract):
    @pytest.fixture(params=SUBJECTS, ids=lambda one: one.name)
    def subject(self, request):
        return request.param

    def test_functions_traced_after_removal_are_those_of_no_probe(self, subject):
        """They have the same operations in the same order, also of their branches."""
        if isinstance(subject, SessionSubject):
            return  # whose graph ``footprint`` counts

        def operations(model):
            def step(x, y):
                with tf.GradientTape() as tape:
                    loss = loss_of(y, model(x))
                return tape.gradient(loss, model.trainable_variables)

            function = tf.function(step)
            function(*map(tf.constant, batch(0)))  # get_concrete_function is for exports
            (concrete,) = function._list_all_concrete_functions()
            graph = concrete.graph
            inner = graph.as_graph_def().library.function
            return [op.type for op in graph.get_operations()], sum(len(one.node_def) for one in inner)

        plain, model, tap = operations(subject.new()), subject.new(), Collect()
        handle = attach(subject, model, tap)
        assert operations(model) != plain
        subject.train(model, 2)
        handle.remove()
        assert tap.errors == []
        assert operations(model) == plain


class KerasEnc(keras.Layer):
    call = Returning.enc


class KerasPair(keras.Layer):
    call = Returning.pair


class KerasReturning(keras.Model):
    call = Returning.net

    def __init__(self):
        super().__init__()
        self.enc, self.same, self.pair = KerasEnc(), keras.layers.Dropout(0.3), KerasPair()


class ModuleEnc(tf.Module):
    __call__ = Returning.enc


class ModuleSame(tf.Module):
    __call__ = Returning.same


class ModulePair(tf.Module):
    __call__ = Returning.pair


class ModuleReturning(tf.Module):
    __call__ = Returning.net

    def __init__(self):
        super().__init__()
        self.enc, self.same, self.pair = ModuleEnc(), ModuleSame(), ModulePair()


class TestTraceContract(TraceContract):
    @pytest.fixture(params=[KerasReturning, ModuleReturning])
    def net(self, request):
        return request.param()
