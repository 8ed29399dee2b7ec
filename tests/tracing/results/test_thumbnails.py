"""Thumbnails of saved values, against numpy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.tracing.results.value_summary import NO_NUMBER, NOTHING, TONES, summarize, thumbnail

ANY = st.one_of(st.floats(-1e6, 1e6, width=32), st.sampled_from([0.0, float("nan"), float("inf")]))


def rows_of(picture: dict) -> list[str]:
    pixels, columns = picture["pixels"], picture["columns"]
    return [pixels[i : i + columns] for i in range(0, len(pixels), columns)]


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float32, st.tuples(st.integers(2, 40), st.integers(2, 40)), elements=ANY))
def test_thumbnail_of_matrix(array: np.ndarray) -> None:
    picture = thumbnail(torch.from_numpy(array))
    assert picture is not None
    rows, columns = (-(-n // 32) for n in array.shape)
    shown = array[::rows, ::columns].astype(np.float64)
    sizes = np.abs(shown[np.isfinite(shown)])
    most = (np.quantile(sizes, 0.99) or sizes.max()) if sizes.size else 0.0
    assert picture["most"] == pytest.approx(most, rel=5e-3, abs=1e-30)
    found = np.array([list(line) for line in rows_of(picture)])
    assert found.shape == shown.shape
    assert ((found == NO_NUMBER) == ~np.isfinite(shown)).all()
    for character, number in zip(found.ravel(), shown.ravel(), strict=True):
        if np.isfinite(number):
            tone = np.clip(number / (most or 1), -1, 1) * 15
            assert abs(TONES.index(character) - 15 - tone) <= 0.51


def test_thumbnail_mosaic_of_channels() -> None:
    signs = torch.tensor([1.0, -1.0, 0.0, 1.0, 1.0])[:, None, None].expand(5, 2, 3)
    picture = thumbnail(signs[None])
    assert picture is not None
    assert picture["of"] == "[0, :4]"
    high, low, middle = TONES[-1] * 3, TONES[0] * 3, TONES[15] * 3
    upper, lower = high + NOTHING + low, middle + NOTHING + high
    assert rows_of(picture) == [upper, upper, NOTHING * 7, lower, lower]


def test_thumbnail_of_three_channels_is_an_image() -> None:
    image = torch.zeros(2, 3, 8, 100)
    image[0, 0] = 2.0  # red
    image[0, 1, :, 0] = 1.0
    picture = thumbnail(image)
    assert picture is not None
    assert (picture["of"], picture["most"], picture["columns"]) == ("[0]", None, 34)
    assert picture["pixels"][:6] == "uf0u00"
    assert len(picture["pixels"]) == 8 * 34 * 3


@pytest.mark.parametrize(
    ("value", "of"),
    [
        (torch.randn(1, 16, 768), "[0]"),
        (torch.randn(2, 4, 16, 16), "[0]"),
        (torch.randn(1, 8, 5, 5).bool(), "[0, :4]"),
        (torch.randn(4, 4, dtype=torch.complex64), ""),
        (torch.randn(4, 4).to(torch.float8_e4m3fn), ""),
        (torch.randint(0, 9, (2, 12)), ""),
    ],
)
def test_thumbnail_part_is_a_numpy_index(value: torch.Tensor, of: str) -> None:
    picture = thumbnail(value)
    assert picture is not None
    assert picture["of"] == of
    assert max(picture["columns"], len(rows_of(picture))) <= 33


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (7, 1, 1), (0, 4), (3, 0, 4), (0, 2, 2), (0, 1, 4, 4)])
def test_thumbnail_of_scalar_or_empty_is_none(shape: tuple[int, ...]) -> None:
    assert thumbnail(torch.zeros(shape)) is None


@pytest.mark.parametrize(
    ("shape", "of"),
    [((5,), ""), ((1, 5), "[0]"), ((5, 1), "[:, 0]"), ((3, 1, 5), "[0, 0]"), ((3, 5, 1), "[0, :, 0]")],
)
def test_thumbnail_of_row_is_a_strip_or_integers(shape: tuple[int, ...], of: str) -> None:
    numbers = torch.tensor([0.0, -2.0, 2.0, float("nan"), 1.0])
    value = torch.zeros(shape)
    value.reshape(-1)[:5] = numbers
    picture = thumbnail(value)
    assert picture == {"of": of, "columns": 5, "pixels": "f0u" + NO_NUMBER + "n", "most": 2.0}
    ids = torch.zeros(shape, dtype=torch.int64)
    ids.reshape(-1)[:5] = torch.tensor([101, -7, 0, 2**40, 5])
    found = thumbnail(ids)
    assert found is not None
    assert (found["of"], found["numbers"], found["pixels"]) == (of, "101, -7, 0, 1099511627776, 5", "")
    mask = thumbnail(numbers[:3] > 0)
    assert mask is not None
    assert mask["pixels"] == "ffu"


def test_thumbnail_of_long_row() -> None:
    long = thumbnail(torch.arange(1000.0))
    assert long is not None
    assert (long["columns"], len(long["pixels"])) == (125, 125)
    ids = thumbnail(torch.arange(17))
    assert ids is not None
    assert ids["numbers"] == ", ".join(map(str, range(16))) + ", …"


def test_summarize_includes_thumbnails() -> None:
    columns = summarize({2: torch.eye(3), 5: torch.tensor(4.0)})
    assert columns["picture"] == [thumbnail(torch.eye(3)), None]
    many = summarize(dict.fromkeys(range(2001), torch.eye(3)))  # the page must stay small
    assert set(many["picture"]) == {None}
