"""The blocks of docs/frameworks.md for MXNet run against a real server, and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest
from docs_help import ROOT, run_blocks

import intus.backends.mxnet
from backends.served import server

MODULES = [one.name for one in pkgutil.iter_modules(intus.backends.mxnet.__path__, "intus.backends.mxnet.")]


def test_blocks_of_frameworks_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with server(tmp_path) as running:
        run_blocks(ROOT / "docs" / "frameworks.md", running.port, "mxnet")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
