"""The sentences of the page are those of the log."""

from __future__ import annotations

import pytest

from intus.monitoring.warn_once import WarningLog


@pytest.mark.parametrize(
    ("text", "args", "sentence"),
    [
        ("intus: %s was never called.", ("net",), "net was never called."),
        ("intus: the rows of %s come in random order.", ("net",), "The rows of net come in random order."),
        ("intus: %s", ("the server refused it.",), "The server refused it."),
    ],
)
def test_a_name_keeps_its_letters(text, args, sentence):
    troubles = WarningLog()
    troubles.warn_once(text, *args)
    assert troubles.faults() == [sentence]
    assert [one["text"] for one in troubles.take_news()] == [sentence]
