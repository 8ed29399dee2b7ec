"""One small member of each family of ``torchvision``: classification, segmentation, video, optical flow.

Detectors are skipped because they need operators of torchvision's binary, which may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ..architecture import Architecture, NotPlainError

_SKIPPED = ("detection", "quantization")
#: Families whose smallest model is known, to avoid building all of them.
_SMALLEST = {"regnet": "regnet_y_400mf"}


def architectures() -> Iterator[Architecture]:
    """Yield one architecture per family, by name."""
    import torchvision.models as models

    found: dict[str, list[str]] = {}
    for name in models.list_models():
        module = models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        if not module.startswith(_SKIPPED):
            found.setdefault(module, []).append(name)
    for family, members in sorted(found.items()):
        yield Architecture("torchvision", family, partial(build, family, members))


def build(family: str, members: list[str]) -> tuple[torch.nn.Module, Any]:
    """Return the model with the fewest parameters, and the smallest input that it accepts."""
    import torchvision.models as models

    def size(name: str) -> int:
        with torch.device("meta"):
            return sum(p.numel() for p in _made(models, name).parameters())

    model = _made(models, _SMALLEST.get(family) or min(members, key=size)).eval()
    for given in _given(family):
        try:
            with torch.no_grad():
                model(*given)
            return model, given
        except Exception:
            continue
    raise NotPlainError("none of the inputs fits")


def _made(models: Any, name: str) -> torch.nn.Module:
    options = {} if "/" in name or "raft" in name or "segmentation" in name else {"weights": None}
    if "deeplab" in name or "fcn" in name or "lraspp" in name:
        options = {"weights": None, "weights_backbone": None}
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = True
    return models.get_model(name, **options)  # type: ignore[no-any-return]


def _given(family: str) -> Iterator[tuple[torch.Tensor, ...]]:
    if family.startswith("optical_flow"):
        yield torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)
    elif family.startswith("video"):
        yield (torch.randn(1, 3, 16, 64, 64),)
        yield (torch.randn(1, 3, 16, 112, 112),)
        yield (torch.randn(1, 3, 16, 224, 224),)
    else:
        for side in (64, 96, 224, 299):
            yield (torch.randn(1, 3, side, side),)
