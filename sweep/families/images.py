"""One small member of each family of ``timm`` (a module of its ``models``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ..architecture import Architecture, NotPlainError

_SMALL = (
    "test_",
    "atto",
    "femto",
    "pico",
    "nano",
    "zero",
    "xxs",
    "tiny",
    "_ti",
    "xs",
    "mini",
    "small",
    "_s",
    "18",
    "b0",
    "050",
)
_LARGEST = 40_000_000


def architectures() -> Iterator[Architecture]:
    """Yield one architecture per family, by name."""
    for family, members in sorted(families().items()):
        yield Architecture("timm", family, partial(build, members))


def families() -> dict[str, list[str]]:
    """Return the models of each family, first those whose names suggest that they are small."""
    import timm

    found: dict[str, list[str]] = {}
    for name in timm.list_models():
        found.setdefault(timm.model_entrypoint(name).__module__.rpartition(".")[2], []).append(name)
    return {family: sorted(members, key=_rank) for family, members in found.items()}


def _rank(name: str) -> tuple[int, int]:
    hints = [number for number, hint in enumerate(_SMALL) if hint in name]
    return (min(hints, default=len(_SMALL)), len(name))


def build(members: list[str]) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return the first model that is small enough, and an image of the smallest size that it accepts."""
    import timm

    problems: list[str] = []
    for name in members[:6]:
        with torch.device("meta"):
            size = sum(p.numel() for p in timm.create_model(name).parameters())
        if size > _LARGEST:
            problems.append(f"{name} has {size / 1e6:.0f} million parameters")
            continue
        for options in ({"img_size": 64}, {}):
            for side in (64, 96, 160, 224, 256):
                try:
                    model = timm.create_model(name, **options).eval()
                    image = torch.randn(1, 3, side, side)
                    with torch.no_grad():
                        model(image)
                    return model, image
                except Exception as error:
                    problems.append(f"{name} {side}: {type(error).__name__} {str(error)[:60]}")
    raise NotPlainError(" / ".join(problems))
