"""Each question of the examples is asked in at most ten lines."""

from __future__ import annotations

import ast
import importlib
import inspect

import pytest

from intus.examples.run import QUESTIONS


@pytest.mark.parametrize("name", QUESTIONS)
def test_question_has_at_most_ten_lines(name):
    module = importlib.import_module(f"intus.examples.inspecting.{name}")
    questions = {key: value for key, value in vars(module).items() if key.split("_")[0] == "ask"}
    assert questions
    for key, question in questions.items():
        function = ast.parse(inspect.getsource(question)).body[0]
        function.body = function.body[1:]  # without its docstring
        assert "inspect(" in ast.unparse(function), key
        assert inspect.getsource(question).count("\n") - 1 <= 10, key
