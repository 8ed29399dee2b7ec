"""Units that are scored for some hypotheses only: ``units=[(layer, units, hypotheses)]``."""

import numpy as np
import pytest

from intus import inspect
from intus.core.errors import InputError


def test_units_are_scored_for_their_hypotheses_alone(model, images, digit):
    ideas = {"ink": lambda image: image[0] > 0.5, "three": digit == 3, "even": digit % 2}
    units = [("conv1", [0, 1], ["ink"]), ("conv1", [1, 4], ["three", "even"]), ("conv2", 3)]
    table = inspect(model, ideas, "correlation", images, units)
    found = set(table[["address", "unit", "target"]].itertuples(index=False, name=None))
    assert found == {
        *(("conv1", unit, "ink") for unit in (0, 1)),
        *(("conv1", unit, name) for unit in (1, 4) for name in ("three", "even")),
        *(("conv2", 3, name) for name in ideas),
    }
    assert len(table) == len(found)
    judge = inspect(model, ideas, "correlation", images, ["conv1", "conv2"])
    key = ["address", "unit", "target"]
    both = table.merge(judge, on=key)
    np.testing.assert_allclose(both.value_x, both.value_y, rtol=1e-12)


def test_rows_of_each_entry_of_units(checkpoints, images, digit):
    """The groups of a part tell joint scores of two sets of units of a layer apart."""
    units = [("conv1", [0, 1, 2]), ("conv1", [3, 4])]
    table = inspect(checkpoints[:2], {"digit": digit.astype(str)}, "linear_f1", images, units)
    parts = table.asked().parts
    assert sum(len(part.groups) for part in parts) == len(table)
    for part in parts:
        notes = {group: set(part.columns.note[part.groups == group]) for group in set(part.groups.tolist())}
        assert notes == {0: {"3 of 6 units"}, 1: {"2 of 6 units"}}


def test_unknown_hypothesis_of_units_is_refused(model, images, digit):
    with pytest.raises(InputError, match=r"names the hypothesis 'thre'\. Did you mean 'three'"):
        inspect(model, {"three": digit == 3}, "correlation", images, [("conv1", [0], ["thre"])])
    with pytest.raises(InputError, match="A third place is a list of the names of hypotheses"):
        inspect(model, {"three": digit == 3}, "correlation", images, [("conv1", [0], "three")])
