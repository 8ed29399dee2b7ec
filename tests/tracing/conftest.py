"""Fixtures for the tests of tracing."""

import pytest
from zoo_models import ZOO, make


@pytest.fixture(params=list(ZOO))
def zoo(request):
    """(model in eval mode, its input)."""
    return make(request.param)
