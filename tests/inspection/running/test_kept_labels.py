"""Labels in the cache: judged by calls of the function, and by the labels without a cache."""

from __future__ import annotations

import functools
import itertools
import os
import pathlib
import random
import re
import subprocess
import sys
import textwrap
import time

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import ndimage
from torch import nn

import intus
from intus import inspect
from intus.hypotheses import both, negate, regex

WORDS = ["the cat sat", "a dog", "the dogs sat on a mat", "cats"] * 20
IMAGES = np.random.default_rng(0).random((60, 1, 4, 4)).astype(np.float32)
LEVEL = 0.5
TABLE = {"level": [0.5]}
SEEN = []


class Chars(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(128, 5)

    def forward(self, codes):
        return self.embed(codes)


def codes(texts):
    return torch.tensor([[ord(c) for c in text.ljust(24, "~")] for text in texts])


@functools.cache
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1))


def ask(hypotheses, data=None, **options):
    """Inspect a model of texts or of images."""
    data = IMAGES if data is None else data
    if isinstance(data, list):
        return inspect(Chars(), hypotheses, "correlation", data, "embed", inputs=codes, batch=16, **options)
    return inspect(net(), hypotheses, "correlation", data, "0", batch=16, **options)


def calls(function, run):
    """Return how often Python calls a function while something runs."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call" and frame.f_code is function.__code__

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def bright(image):
    return image[0] > LEVEL


def is_long(text):
    return [float(len(text) > 6)] * len(text)


def test_function_is_not_called_again(tmp_path):
    assert calls(bright, lambda: ask(bright, cache=tmp_path)) == 60
    table = None

    def again():
        nonlocal table
        table = ask([bright, lambda image: image[0] < 0.1], cache=tmp_path)

    assert calls(bright, again) == 0
    first = ask([bright, lambda image: image[0] < 0.1])
    pd.testing.assert_frame_equal(table, first)
    assert calls(bright, lambda: ask(bright)) == 60


@pytest.mark.long
def test_another_process_reads_the_labels(tmp_path):
    """The order of sets and the addresses of objects differ between the processes."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            import numpy as np
            import torch
            from intus import inspect
            WORDS = {"a", "b", "c", "dd"}
            count = 0
            def known(text):
                return [float(c in WORDS) for c in text]
            def profile(frame, event, argument):
                global count
                count += event == "call" and frame.f_code is known.__code__
            sys.setprofile(profile)
            data = ["abcd", "bbxy", "cazz", "zzzz"] * 8
            def inputs(texts):
                return torch.tensor([[[ord(c) / 99.0] for c in text] for text in texts])
            torch.manual_seed(int(sys.argv[2]))
            model = torch.nn.Sequential(torch.nn.Linear(1, 3))
            inspect(model, known, "correlation", data, "0", inputs=inputs, cache=sys.argv[1])
            print(count)
            """
        )
    )
    found = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, str(script), str(tmp_path / "cache"), seed],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(int(run.stdout))
    assert found == [32, 0]


# -- what changes labels ------------------------------------------------------------------------------


def above(level):
    return lambda image: image[0] > level


def with_default(level):
    def by_default(image, level=level):
        return image[0] > level

    return by_default


def with_keyword(level):
    def by_keyword(image, *, level=level):
        return image[0] > level

    return by_keyword


class Above:
    scale = 1.0

    def __init__(self, level):
        self.level = {"inner": (level,)}

    def __call__(self, image):
        return image[0] > self.level["inner"][0] * self.scale

    def method(self, image):
        return self(image)


class Slotted:
    __slots__ = ("level",)

    def __init__(self, level):
        self.level = level

    def __call__(self, image):
        return image[0] > self.level


def compare(level, image):
    return image[0] > level


def threshold():
    return TABLE["level"][0]


def by_helper(image):
    return image[0] > threshold()


def of_batch(level):
    @intus.hypothesis("batch", batch=True)
    def labels(images):
        return {"a": images[:, 0] > level, "b": images[:, 0] < level}

    return labels


def with_array(level):
    levels = np.full((4, 4), level)
    return lambda image: image[0] > levels


def with_tensor(level):
    levels = torch.full((4, 4), level)
    return lambda image: torch.from_numpy(image[0]) > levels


MAKERS = {
    "closure": above,
    "default": with_default,
    "keyword": with_keyword,
    "object": Above,
    "slots": Slotted,
    "method": lambda level: Above(level).method,
    "partial": lambda level: functools.partial(compare, level),
    "batch": of_batch,
    "array": with_array,
    "tensor": with_tensor,
    "list": lambda level: lambda image, levels=[level]: image[0] > levels[0],
    "combined": lambda level: both(above(level), above(0.1)),
    "negated": lambda level: negate(above(level)),
    "of another function": lambda level: functools.partial(lambda f, image: f(image), above(level)),
}


@pytest.mark.long
@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(levels=st.lists(st.sampled_from([0.2, 0.35, 0.5, 0.8]), min_size=2, max_size=4))
def test_changed_function_is_called(maker, levels, tmp_path):
    for level in levels:
        made = MAKERS[maker](level)
        pd.testing.assert_frame_equal(ask({"h": made}, cache=tmp_path), ask({"h": made}))


def cached(hypothesis, folder, **options):
    """Return the values with a cache after those without are checked."""
    table = ask({"h": hypothesis}, cache=folder, **options)
    pd.testing.assert_frame_equal(table, ask({"h": hypothesis}, **options))
    return table.value.tolist()


def test_changed_globals_are_noticed(tmp_path, monkeypatch):
    before = cached(bright, tmp_path), cached(by_helper, tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "LEVEL", 0.8)
    monkeypatch.setitem(TABLE, "level", [0.8])
    after = cached(bright, tmp_path), cached(by_helper, tmp_path)
    assert after[0] != before[0]
    assert after[1] != before[1]
    monkeypatch.setattr(sys.modules[__name__], "threshold", lambda: 0.3)
    assert cached(by_helper, tmp_path) != after[1]
    before = cached(Above(0.5), tmp_path)
    monkeypatch.setattr(Above, "scale", 0.5)
    assert cached(Above(0.5), tmp_path) != before
    monkeypatch.setattr(Above, "__call__", lambda self, image: image[0] < 0.3)
    assert cached(Above(0.5), tmp_path) != before


def test_changed_code_of_the_same_name_is_noticed(tmp_path):
    found = []
    for sign in "<>":
        scope = {}
        exec(f"def h(image):\n    return image[0] {sign} 0.7", scope)
        found.append(cached(scope["h"], tmp_path))
    assert found[0] != found[1]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 59), pixel=st.integers(0, 15), reorder=st.booleans())
def test_changed_data_is_noticed(tmp_path, at, pixel, reorder):
    images = IMAGES[::-1].copy() if reorder else IMAGES.copy()
    images[at].reshape(-1)[pixel] = 1.5 - images[at].reshape(-1)[pixel]
    cached(bright, tmp_path)
    cached(bright, tmp_path, data=images)


def test_masked_records_are_told_apart(tmp_path):
    def counted(record):
        return float(np.ma.count(record))

    for hidden in (0.2, 0.5):
        data = [np.ma.array(image, mask=image < hidden) for image in IMAGES]
        asked = net(), counted, "correlation", data, "0"
        table = inspect(*asked, cache=tmp_path, inputs=np.stack)
        pd.testing.assert_frame_equal(table, inspect(*asked, inputs=np.stack))


def test_declared_kind_is_noticed(tmp_path):
    def digit(image):
        return int(image[0, 0, 0] * 4)

    found = []
    for kind in ("real", "categorical"):
        declared = intus.hypothesis("digit", kind=kind)(lambda image: digit(image))
        table = inspect(net(), declared, ["linear_f1", "linear_l2"], IMAGES, "0", cache=tmp_path)
        pd.testing.assert_frame_equal(
            table, inspect(net(), declared, ["linear_f1", "linear_l2"], IMAGES, "0")
        )
        found.append(table)
    assert found[0].value.tolist() != found[1].value.tolist()


# -- what cannot be known ------------------------------------------------------------------------------


def test_function_that_reads_a_file_is_called(tmp_path):
    file = tmp_path / "level.txt"

    def opened(image):
        with open(file) as stream:
            return image[0] > float(stream.read())

    def by_path(image):
        return image[0] > float(file.read_text())

    def by_numpy(image):
        return image[0] > np.loadtxt(str(file))

    def by_text(image, name=str(file)):
        return image[0] > float(pathlib.Path(name).read_text())

    for function in (opened, by_path, by_numpy, by_text):
        found = []
        for level in ("0.3", "0.7"):
            file.write_text(level)
            found.append(cached(function, tmp_path / "cache"))
        assert found[0] != found[1]


def test_random_numbers_and_the_clock_are_called(tmp_path):
    def by_numpy(image):
        return np.random.random(image[0].shape) > 0.5

    def by_torch(image):
        return torch.rand(4, 4) > 0.5

    def by_python(image):
        return [[random.random() > 0.5 for _ in range(4)] for _ in range(4)]

    def by_clock(image):
        return image[0] > time.time() % 1

    generator = np.random.default_rng(0)

    def by_generator(image):
        return generator.random((4, 4)) > 0.5

    for function in (by_numpy, by_torch, by_python, by_clock, by_generator):
        assert all(calls(function, lambda f=function: ask(f, cache=tmp_path)) == 60 for _ in range(2))


def test_function_of_another_package_is_called(tmp_path):
    def with_scipy(image):
        return ndimage.gaussian_filter(image[0], 1) > 0.5

    def with_import(image):
        from scipy.ndimage import gaussian_filter

        return gaussian_filter(image[0], 1) > 0.5

    for function in (with_scipy, with_import):
        assert all(calls(function, lambda f=function: ask(f, cache=tmp_path)) == 60 for _ in range(2))


def test_function_with_a_state_is_called(tmp_path):
    def with_counter(image):
        SEEN.append(1)
        return image[0] > len(SEEN) / 100

    counter = itertools.count()

    def with_iterator(image):
        return image[0] > next(counter) / 100

    for function in (with_counter, with_iterator):
        assert all(calls(function, lambda f=function: ask(f, cache=tmp_path)) == 60 for _ in range(2))
    SEEN.clear()


def test_function_that_changes_the_records(tmp_path):
    def changes(image):
        image[:] = 1 - image
        return image[0] > 0.7

    ask([changes, bright], cache=tmp_path)
    assert cached(bright, tmp_path) == ask({"h": bright}).value.tolist()
    cached(changes, tmp_path)


# -- all kinds of labels -------------------------------------------------------------------------------


def parse(text):
    return {"a": [c == "a" for c in text], "t": [float("nan") if c == " " else c == "t" for c in text]}


KINDS = {
    "sequences": is_long,
    "dict": parse,
    "not annotated": lambda text: None if len(text) < 6 else [float(c < "m") for c in text],
    "regex": regex("s.t", name="sat"),
    "negated": negate(regex("s.t", name="sat")),
    "one label": lambda text: len(text) > 6,
    "whole numbers": lambda text: [ord(c) for c in text],
    "pattern": functools.partial(
        lambda pattern, text: [bool(pattern.match(c)) for c in text], re.compile("[a-f]")
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_those_without_a_cache(kind, tmp_path):
    first = ask(KINDS[kind], WORDS, cache=tmp_path)
    files = list(tmp_path.glob("*.labels"))
    assert len(files) == 5
    for rows in tmp_path.glob("*.rows"):
        rows.unlink()
    again = ask(KINDS[kind], WORDS, cache=tmp_path)
    pd.testing.assert_frame_equal(first, again)
    pd.testing.assert_frame_equal(first, ask(KINDS[kind], WORDS))
    assert sorted(tmp_path.glob("*.labels")) == sorted(files)


def test_names_as_labels(tmp_path):
    def initial(text):
        return text[0] if text[0] != "a" else None

    def letters(text):
        return [c if c != " " else None for c in text]

    for function in (initial, letters):
        tables = [
            inspect(Chars(), function, "linear_f1", WORDS, "embed", inputs=codes, batch=16, cache=folder)
            for folder in (tmp_path, None)
        ]
        pd.testing.assert_frame_equal(*tables)
        for rows in tmp_path.glob("*.rows"):
            rows.unlink()
        again = inspect(
            Chars(), function, "linear_f1", WORDS, "embed", inputs=codes, batch=16, cache=tmp_path
        )
        pd.testing.assert_frame_equal(again, tables[0])
        assert np.isfinite(again.value).any()


def test_damaged_labels_are_computed_again(tmp_path):
    first = ask(bright, cache=tmp_path)
    for path in tmp_path.glob("*.labels"):
        path.write_bytes(path.read_bytes()[:30])
    with pytest.warns(UserWarning, match=r"labels cannot be read .* computed again"):
        again = ask(bright, cache=tmp_path)
    pd.testing.assert_frame_equal(first, again)


def test_labels_given_as_arrays_are_not_kept(tmp_path):
    ask({"h": IMAGES[:, 0] > 0.5}, cache=tmp_path)
    assert not list(tmp_path.glob("*.labels"))
