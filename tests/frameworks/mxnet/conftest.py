"""MXNet 1.9.1 is older than Python 3.11 and numpy 1.23: warnings of its own code are no errors."""

import warnings

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings that the import and modules of MXNet cause."""
    config.addinivalue_line("filterwarnings", "ignore:.*:DeprecationWarning:mxnet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mxnet  # noqa: F401
