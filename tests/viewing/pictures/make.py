"""Remake the kept pictures, with src and tests/viewing on PYTHONPATH; then look at them."""

from __future__ import annotations

from pathlib import Path

from drafts import digits_cnn, gpt2, resnet

from intus.viewing.html import View

HERE = Path(__file__).parent

View(digits_cnn()).save(HERE / "digits.svg")
View(digits_cnn()).save(HERE / "digits.png", scale=1.0)
View(gpt2()).save(HERE / "gpt2-rolled.svg", rolled=True)
View(gpt2()).save(HERE / "gpt2-right-dark.svg", rolled=True, direction="right", dark=True)
View(resnet(), overlay="parameters", depth=1).save(HERE / "resnet-parameters.svg")
