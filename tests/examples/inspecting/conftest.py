"""Runs an example of ``inspect`` once for all its tests."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas
import pytest
import torch

from intus.cli import main


class Example(NamedTuple):
    """The text that an example printed, and the folder of its files."""

    folder: Path
    text: str

    def table(self, name: str) -> pandas.DataFrame:
        return pandas.read_csv(self.folder / f"{name}.csv")

    def pictures(self) -> dict[str, int]:
        """The sizes of the pictures in bytes, by name."""
        return {file.stem: file.stat().st_size for file in self.folder.glob("*.png")}


@pytest.fixture(scope="module")
def run_example(tmp_path_factory) -> Callable[..., Example]:
    def run(name: str, *arguments: str) -> Example:
        torch.set_num_threads(1)
        folder = tmp_path_factory.mktemp(name)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert main(["examples", name, "--folder", str(folder), *arguments]) == 0
        return Example(folder, printed.getvalue())

    return run
