"""The texts of constants, compared with numpy's own and with what their dtype holds."""

import numpy as np
import pytest

from intus.core.shortest import shortest, shortest_in_text


def every_float16():
    """Return all finite numbers of float16."""
    numbers = np.arange(2**16, dtype=np.uint16).view(np.float16)
    return numbers[np.isfinite(numbers)]


def some_float32():
    """Return finite numbers of float32 of any magnitude, with the largest and the least ones."""
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    limits = np.finfo(np.float32)
    ends = np.array([limits.max, limits.min, limits.tiny, limits.smallest_subnormal, 0, -0.0], np.float32)
    return np.concatenate([bits[np.isfinite(bits)], ends])


def test_float32_has_the_text_of_numpy():
    numbers = some_float32()
    assert shortest(numbers) == [float(str(number)) for number in numbers]


@pytest.mark.parametrize("numbers", [every_float16(), some_float32()], ids=["float16", "float32"])
def test_texts_give_the_same_number(numbers):
    read = np.array([float(repr(number)) for number in shortest(numbers)])
    with np.errstate(over="raise"):
        np.testing.assert_array_equal(read.astype(numbers.dtype), numbers)


def test_whole_numbers_of_float16_are_exact():
    whole = [number for number in every_float16() if number == np.floor(number)]
    assert shortest(np.array(whole)) == [int(number) for number in whole]


@pytest.mark.parametrize("number", [0.1, 0.3, 1e-5, float(np.float32(0.3)), 1e300, np.inf])
def test_doubles_stay(number):
    assert shortest(np.float64(number)) == shortest(number) == number


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (repr(float(np.float32(0.3))), "0.3"),
        (f"({float(np.float32(1e-5))}, {float(np.float32(-0.1))})", "(1e-05, -0.1)"),
        (f"({np.pi}, 0.1, 1e-05, 1e300, 1.5e300, 0.5, 100.0, 7)",) * 2,
        ("cpu(0), v0.30000001192092896, 0.30000001192092896.1",) * 2,
    ],
)
def test_numbers_in_a_text(written, shown):
    assert shortest_in_text(written) == shown


def test_what_is_no_number_stays():
    assert shortest(np.array(["a", "0.30000001192092896"])) == ["a", "0.30000001192092896"]
    assert shortest(np.array([[1, 2]])) == [[1, 2]]
    assert np.isnan(shortest(np.float32("nan")))
