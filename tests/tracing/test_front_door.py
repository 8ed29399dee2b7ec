"""Calls of trace, view, validate and collect: which arguments the model receives, and which are options."""

import ast
import copy
import inspect
import pickle
import re
from collections import OrderedDict, namedtuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import BatchEncoding

import intus
from intus.backends import base
from intus.core.errors import AddressError, CaptureError, CodecError, InputError

x = torch.arange(6.0).reshape(2, 3)
VERBS = {"trace": intus.trace, "view": intus.view, "validate": intus.validate}


@pytest.fixture(params=VERBS)
def verb(request):
    return VERBS[request.param]


#: The arguments that ``Masked`` received in its last call; an attribute of the model would be restored.
RECEIVED = {}


class Masked(nn.Module):
    """Computes something else if it gets no mask."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, mask=None, scale=1):
        RECEIVED["last"] = (x, mask, scale)
        return self.linear(x) * scale if mask is None else x * 2


class Seeded(nn.Module):
    """Has parameters that are named like options of every function."""

    def forward(self, x, seed=1, depth=1, inputs=None):
        return x * seed


class Anything(nn.Module):
    def forward(self, x, **more):
        return x * more.get("factor", more.get("sed", 1))


# -- the model's arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [torch.zeros(1), 0, [], {}, torch.tensor(False), torch.tensor(1.0), (), x])
def test_second_argument_reaches_the_model(mask):
    model = Masked()
    plain = model(x, mask)
    t = intus.trace(model, x, mask)
    assert torch.equal(t.outputs[0].value, plain)
    assert RECEIVED["last"][1] is mask or RECEIVED["last"][1] == mask
    assert [op.type for op in t.ops] == ["mul"]
    assert "mul" in intus.view(model, x, mask).graph.types
    assert intus.validate(model, x, mask).checks[0].label == "mul_1_1"


def test_call_as_of_the_model(verb):
    model = Masked()
    by_name = {"x": x, "mask": None, "scale": 3}
    for args, kwargs in [((x, x), {}), ((x,), {"scale": 2}), ((), by_name), ((x, None, 2), {})]:
        model(*args, **kwargs)
        expected = RECEIVED["last"]
        verb(model, *args, **kwargs)
        assert all(a is b or a == b for a, b in zip(RECEIVED["last"], expected, strict=True))


#: What a caller may write for an argument, and must reach the model unchanged.
VALUES = st.one_of(
    st.just(x), st.none(), st.integers(), st.just([x]), st.just(torch.zeros(1)), st.just({}), st.just((x, x))
)
NAMES = st.sampled_from(["mask", "labels", "n", "args", "model", "self", "verb", "batches"])


@given(st.lists(VALUES, min_size=2, max_size=4), st.dictionaries(NAMES, VALUES, max_size=3))
@settings(deadline=None, max_examples=60)
def test_model_receives_what_its_own_call_receives(args, kwargs):
    received = []

    def model(*args, **kwargs):
        received.append((args, kwargs))
        return x + 1

    model(*args, **kwargs)
    intus.trace(model, *args, save="none", **kwargs)
    (plain_args, plain_kwargs), (traced_args, traced_kwargs) = received
    assert len(traced_args) == len(plain_args)
    assert all(a is b for a, b in zip(traced_args, plain_args, strict=True))
    assert traced_kwargs.keys() == plain_kwargs.keys()
    assert all(traced_kwargs[name] is plain_kwargs[name] for name in plain_kwargs)


@pytest.mark.parametrize(
    "alone",
    [{"x": x, "scale": 2}, OrderedDict(x=x, scale=2), BatchEncoding({"x": x, "scale": 2}), (x, None, 2)],
    ids=lambda alone: type(alone).__name__,
)
def test_mapping_or_tuple_alone(alone, verb):
    model = Masked()
    verb(model, alone)
    assert RECEIVED["last"] == (x, None, 2)


def test_mapping_alone_with_keywords():
    model = Masked()
    intus.trace(model, {"x": x}, scale=3)
    assert RECEIVED["last"][2] == 3
    intus.trace(model, (x,), kwargs={"scale": 4})
    assert RECEIVED["last"][2] == 4
    with pytest.raises(InputError, match=r"\['scale'\] are given both in the mapping"):
        intus.trace(model, {"x": x, "scale": 2}, scale=3)
    with pytest.raises(TypeError, match="multiple values for argument 'scale'"):
        intus.trace(model, (x, None, 2), scale=3)


def test_container_as_one_argument():
    pair = namedtuple("Pair", "a b")(x, x)
    assert torch.equal(intus.trace(lambda parts: parts[0] + parts[1], [x, x]).outputs[0].value, x * 2)
    assert torch.equal(intus.trace(lambda parts: parts[0] + parts[1], pair).outputs[0].value, x * 2)
    assert torch.equal(intus.trace(lambda parts: parts[0] + parts[1], ((x, x),)).outputs[0].value, x * 2)
    assert torch.equal(intus.trace(lambda parts: parts["a"] * 2, ({"a": x},)).outputs[0].value, x * 2)
    with pytest.raises(InputError, match=r"its key 3 is no name.*\(mapping,\)"):
        intus.trace(lambda parts: parts[3], {3: x})


def test_function_without_signature():
    assert torch.equal(intus.trace(torch.add, x, x, alpha=3).outputs[0].value, x * 4)


# -- options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 3])  # None is the default of the option
def test_name_of_option_and_parameter_is_refused(value, verb):
    with pytest.raises(
        InputError, match=rf"'seed' is an option of {verb.__name__} and a parameter of Seeded.forward"
    ) as error:
        verb(Seeded(), x, seed=value)
    assert "kwargs={'seed': …}" in str(error.value)
    assert "seed=… and kwargs={}" in str(error.value)


def test_kwargs_tell_option_and_parameter_apart():
    model = Seeded()
    for t, seed, factor in [
        (intus.trace(model, x, kwargs={"seed": 5}), None, 5),
        (intus.trace(model, x, seed=7, kwargs={}), 7, 1),
        (intus.trace(model, x, seed=7, kwargs={"seed": 5}), 7, 5),
        (intus.trace(model, {"x": x, "seed": 5}), None, 5),
        (intus.trace(model, x, 5), None, 5),
    ]:
        assert t.seed == seed
        assert torch.equal(t.outputs[0].value, x * factor)
    with pytest.raises(InputError, match=r"'kwargs' is an option of trace and a par.*kwargs=\{'kwargs': …\}"):
        intus.trace(lambda x, kwargs=None: x + 1, x, kwargs={"a": 1})
    with pytest.raises(
        InputError, match="kwargs must be a dict of the model's keyword arguments, got one Te"
    ):
        intus.trace(model, x, kwargs=x)
    with pytest.raises(InputError, match=r"\['mask'\] are given both in kwargs"):
        intus.trace(Masked(), x, mask=x, kwargs={"mask": x})
    with pytest.raises(InputError, match="'depth' is an option of view"):
        intus.view(model, x, depth=2)
    with pytest.raises(InputError, match="'seed' is an option of view"):
        intus.view(Masked(), x, seed=2, beside=model)


def test_misspelled_option(verb):
    neither = (
        rf"'sead' is neither an option of {verb.__name__} nor a parameter of Masked.forward. Did you mean"
    )
    with pytest.raises(InputError, match=neither + " 'seed'"):
        verb(Masked(), x, sead=1)
    with pytest.raises(InputError, match="Did you mean 'mask'"):
        verb(Masked(), x, masks=1)
    with pytest.raises(InputError, match=r"'inputs' is neither.*Masked.forward"):
        verb(Masked(), inputs=x)


def test_misspelled_option_with_a_model_that_takes_any_keyword():
    with pytest.raises(InputError, match=r"Anything.forward takes any keyword. Did you mean 'seed'.*kwargs="):
        intus.trace(Anything(), x, sed=3)
    assert torch.equal(intus.trace(Anything(), x, kwargs={"sed": 3}).outputs[0].value, x * 3)
    assert torch.equal(intus.trace(Anything(), x, factor=3).outputs[0].value, x * 3)


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, torch.jit.script], ids=lambda f: f.__name__)
def test_wrapped_model(wrap):
    class Net(nn.Module):
        def forward(self, x, seed: int = 1):
            return x * seed

    with pytest.raises(InputError, match="'seed' is an option of trace and a parameter"):
        intus.trace(wrap(Net()), x, seed=3)
    with pytest.raises(InputError, match="'sav' is neither"):
        intus.trace(wrap(Net()), x, sav="none")


def test_positional_only_parameter_is_no_clash():
    def model(x, seed, /):
        return x * seed

    assert intus.trace(model, x, 2, seed=3).seed == 3


def test_signatures_name_every_option():
    for function in (intus.trace, intus.view, intus.validate, intus.collect):
        parameters = inspect.signature(function).parameters
        kinds = [one.kind for one in parameters.values()]
        assert kinds[0] is inspect.Parameter.POSITIONAL_ONLY
        assert kinds[-1] is inspect.Parameter.VAR_KEYWORD
        assert all(f"{name}:" in function.__doc__ for name in parameters)


# -- collect ----------------------------------------------------------------------------------------------


def test_collect_passes_keywords_to_the_model(tmp_path):
    model, file = Masked(), tmp_path / "a.safetensors"
    acts = intus.collect(model, [x, {"x": x}, (x,)], ["output_1"], file, scale=3)
    assert torch.equal(acts["output_1"], torch.cat([model.linear(x) * 3] * 3))
    with pytest.raises(InputError, match=r"'inputs' is an option of collect and a parameter of Seeded"):
        intus.collect(Seeded(), [x], ["mul_1"], file, inputs=lambda batch: batch)
    acts = intus.collect(Seeded(), [x], ["mul_1"], file=file, seed=2, kwargs={"seed": 5})
    assert torch.equal(acts["mul_1"], x * 5)
    with pytest.raises(InputError, match=r"collect needs a module or a function to run, got a list of 1\."):
        intus.collect([x], model, ["linear"], file)
    with pytest.raises(InputError, match="'transfrom' is neither an option of collect"):
        intus.collect(model, [x], ["linear"], file, transfrom=None)


# -- wrong first arguments --------------------------------------------------------------------------------


def test_swapped_arguments(verb):
    net = nn.Conv2d(3, 64, 3)
    images = torch.randn(64, 3, 32, 32)
    with pytest.raises(InputError) as error:
        verb(images, net)
    assert str(error.value) == (
        f"{verb.__name__} needs a module or a function to run, got a Tensor of shape (64, 3, 32, 32). "
        f"The model comes first: write {verb.__name__}(conv2d, inputs)."
    )
    with pytest.raises(InputError, match=r"got a OrderedDict of 2\. Weights do not run: make the model"):
        verb(net.state_dict(), images)
    with pytest.raises(InputError, match="got None"):
        verb(None, images)


def test_path_as_model(tmp_path):
    for function in (intus.trace, intus.validate):
        with pytest.raises(InputError, match=r"got 'resnet50'.*load\(path\)"):
            function("resnet50", x)
    with pytest.raises(InputError, match="got a trace, whose pass ran already"):
        intus.validate(intus.trace(nn.ReLU(), x))
    path = tmp_path / "a.trace"
    intus.trace(nn.ReLU(), x).save(path)
    assert intus.view(path).graph.model == intus.view(str(path)).graph.model == "ReLU"
    torch.save(nn.ReLU().state_dict(), tmp_path / "m.pt")
    for function in (intus.view, intus.load):
        with pytest.raises(CodecError, match=r"m\.pt.*weights"):
            function(tmp_path / "m.pt")


def test_invalid_arguments_raise():
    with pytest.raises(InputError, match="on_error='ignore'"):
        intus.trace(nn.ReLU(), x, on_error="ignore")
    with pytest.raises(InputError, match="ReLU is a class"):
        intus.trace(nn.ReLU, x, inplace=True)


@pytest.mark.parametrize(
    ("args", "note"),
    [
        (((1, 3, 8, 8),), r"The tuple was passed as 4 numbers. .* write torch.randn\(1, 3, 8, 8\)"),
        (
            ((x, x, x, x),),
            r"The tuple was passed as 4 arguments. To pass it as one argument, write \(inputs,",
        ),
        (({"y": x},), r"The mapping was passed as keyword arguments. .* write \(inputs,\)"),
        (([x, x],), r"The list was passed as one argument. To pass its items as arguments, write \*inputs"),
    ],
    ids=["shape", "tuple", "mapping", "list"],
)
def test_note_how_a_container_was_passed(args, note):
    with pytest.raises(TypeError) as error:
        intus.trace(lambda x, mask: x + mask, *args)
    (text,) = error.value.__notes__
    assert re.search(note, text), text


def test_no_note_on_the_model_own_type_error():
    with pytest.raises(TypeError) as error:
        intus.trace(lambda x, y: x + "y", (x, x))
    assert "was passed as" not in error.value.__notes__[0]


def test_module_as_attribute():
    t = intus.trace(Masked(), x)
    with pytest.raises(AttributeError, match=r"no attribute 'linear'\. Write trace\['linear'\]"):
        _ = t.linear
    with pytest.raises(AttributeError, match=r"no attribute 'shape'\.$"):
        _ = t.shape
    assert not hasattr(t, "linear")
    assert copy.deepcopy(t)["linear"].label == pickle.loads(pickle.dumps(t))["linear"].label == "linear_1_1"


@pytest.mark.parametrize("name", ["x:2", "a[3]", "b:1[0]"])
def test_unescaped_name_suggests_the_escape(name):
    net = nn.Sequential(OrderedDict({name: nn.Linear(3, 3), "after": nn.ReLU()}))
    t = intus.trace(net, x)
    with pytest.raises(AddressError) as error:
        _ = t[name]
    suggested = re.search(r"Did you mean ('.*?')\?", str(error.value))[1]
    assert t[ast.literal_eval(suggested)].label == "linear_1_1"


class Open(nn.Module):
    def forward(*args, mask=None):
        return args[1] if mask is None else args[1] * mask


class Strict(nn.Module):
    def forward(self, /, x, *, seed=None):
        return x if seed is None else x + seed


def test_keywords_of_unusual_signatures():
    x = torch.ones(2)
    t = intus.trace(Open(), x, mask=torch.zeros(2))
    assert [op.label for op in t.inputs] == ["input_1", "input_2"]
    with pytest.raises(InputError, match=r"'seed' is an option of trace and a parameter of Strict\.forward"):
        intus.trace(Strict(), x, seed=1)
    assert torch.equal(intus.trace(Strict(), x, kwargs={"seed": 1})["output_1"].value, x + 1)


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad])
@pytest.mark.parametrize("verb", [intus.trace, intus.validate, intus.view, intus.why_nan])
def test_transform_of_a_trace_is_refused(verb, transform):
    model = torch.nn.Linear(4, 4)

    def inner(x):
        verb(model, x)
        return x.sum()

    with pytest.raises(CaptureError, match="cannot run inside vmap, grad or another transform"):
        transform(inner)(torch.randn(4))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of torch's compiler, on code of intus that it meets first
def test_compiled_function_with_a_trace_is_refused():
    model = torch.nn.Linear(4, 4)
    compiled = torch.compile(lambda x: intus.trace(model, x)["linear_1"].value, backend="eager")
    with pytest.raises(CaptureError, match=r"cannot run inside a function that torch.compile compiles"):
        compiled(torch.randn(2, 4))
    assert intus.trace(torch.compile(model, backend="eager"), torch.randn(2, 4)).ops


def test_model_of_a_framework_on_pytorch_is_its_frameworks(verb, monkeypatch):
    """Layers of Keras on PyTorch are modules of PyTorch too, whose names are others than Keras's."""

    class Layer(nn.Linear):
        pass

    class OnTorch:
        name = "keras"

        def owns(self, model):
            return isinstance(model, Layer)

        def trace(self, model, args, kwargs):
            raise CaptureError("Keras on torch cannot be traced.")

    Layer.__module__ = "keras.layers"
    monkeypatch.setitem(base._BACKENDS, "keras", OnTorch)
    sub = type("Net", (Layer,), {})
    with pytest.raises((CaptureError, InputError), match=r"Keras on torch cannot be traced|one of keras"):
        verb(sub(3, 2), x)
    assert intus.trace(nn.Linear(3, 2), x).framework == "torch"
