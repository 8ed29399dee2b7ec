"""Every model of ``timm`` by name, on an image of the smallest size that it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import zip_longest

import torch

from ..architecture import Architecture, NotPlainError, TooLargeError

_LARGEST, _CLASSES = 45_000_000, 10
_SIDES = (64, 96, 128, 160, 224, 256, 384)


def architectures() -> Iterator[Architecture]:
    """Yield one architecture per name of ``timm.list_models``: the first of each family, then the second …

    So a run that ends early has seen every family.
    """
    import timm

    found: dict[str, list[str]] = {}
    for name in timm.list_models():
        found.setdefault(timm.model_entrypoint(name).__module__, []).append(name)
    for names in zip_longest(*found.values()):
        yield from (Architecture("timm", name, partial(build, name)) for name in names if name)


def build(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a model with few classes and random weights, and an image of the smallest size that it accepts.

    Raises:
        TooLargeError: The model has too many parameters.
        NotPlainError: It accepts no image.
    """
    import timm

    with torch.device("meta"):
        size = sum(p.numel() for p in timm.create_model(name, num_classes=_CLASSES).parameters())
    if size > _LARGEST:
        raise TooLargeError(size, _LARGEST)
    problems: list[str] = []
    for resize in (True, False):
        model = None
        for side in _SIDES:
            try:
                if resize or model is None:
                    options = {"img_size": side} if resize else {}
                    model = timm.create_model(name, num_classes=_CLASSES, **options).eval()
            except TypeError as error:  # the size of this model is not an option
                problems.append(f"{side}: {str(error)[:60]}")
                break
            except Exception as error:
                problems.append(f"{side}: {type(error).__name__} {str(error)[:60]}")
                continue
            channels = model.default_cfg.get("input_size", (3,))[0]
            image = torch.randn(1, channels, side, side)
            try:
                with torch.no_grad():
                    model(image)
                return model, image
            except Exception as error:
                problems.append(f"{side}: {type(error).__name__} {str(error)[:60]}")
    raise NotPlainError(" / ".join(problems))
