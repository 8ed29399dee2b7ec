"""Models, hypotheses and a short form of queries."""

from __future__ import annotations

import numpy as np
import pytest

import intus

FROM = "FROM models M, units U, hypotheses H, inputs D WHERE M.mid = U.mid"


def edge(image):
    return np.diff(image[0], axis=1, append=0) < -0.4


@pytest.fixture(scope="session")
def ideas(digit) -> dict:
    """Return labels of pixels and labels of records."""
    return {"ink": lambda image: image[0] > 0.5, "edge": edge, "three": digit == 3, "even": digit % 2 == 0}


@pytest.fixture(scope="session")
def ask(checkpoints, ideas, images):
    """Return a function that asks three checkpoints of a CNN about digits."""

    def run(text, **more):
        given = {"models": checkpoints, "hypotheses": ideas, "data": images} | more
        return intus.query(text.replace("$FROM", FROM), **given)

    return run
