"""Fixtures for the tests of tracing."""

import pytest
from zoo_models import ZOO, make


@pytest.fixture(params=list(ZOO))
def zoo(request):
    """Return each model of the zoo in eval mode, with its inputs."""
    return make(request.param)
