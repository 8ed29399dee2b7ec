"""The blocks of docs/frameworks.md for JAX run against a real server, and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy
import pytest
from docs_help import ROOT, run_blocks

import intus.backends.jax
from intus.serving.run import Server

MODULES = [one.name for one in pkgutil.iter_modules(intus.backends.jax.__path__, "intus.backends.jax.")]


def test_blocks_of_frameworks_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Server(database=tmp_path / "docs.db", port=0) as server:
        run_blocks(ROOT / "docs" / "frameworks.md", server.port, "jax")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, extraglobs={"np": numpy}).failed == 0
