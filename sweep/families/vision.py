"""Every model of ``torchvision``: images, segmentation, detection, video, optical flow, quantization."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from ..architecture import Architecture, NotPlainError, TooLargeError

_LARGEST, _CLASSES = 150_000_000, 10
#: Options of those builders that have or pass on an argument of this name, to keep detectors small.
_OPTIONS: dict[str, Any] = {
    "weights": None,
    "weights_backbone": None,
    "num_classes": _CLASSES,
    "quantize": True,
    "init_weights": True,
}
_DETECTION = {"min_size": 64, "max_size": 96, "rpn_post_nms_top_n_test": 12, "box_detections_per_img": 4}


def architectures() -> Iterator[Architecture]:
    """Yield one architecture per name of ``torchvision.models.list_models``."""
    import torchvision.models as models

    for name in models.list_models():
        module = models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        kind = module.partition(".")[0] if "." in module else ""
        yield Architecture("torchvision", f"{kind}: {name}" if kind else name, partial(build, name, kind))


def build(name: str, kind: str) -> tuple[torch.nn.Module, Any]:
    """Return a model with random weights, and the smallest input that it accepts.

    Raises:
        TooLargeError: The model has too many parameters.
        NotPlainError: None of the inputs fits.
    """
    if kind != "quantization":
        try:
            with torch.device("meta"):
                model = _made(name, kind)
        except NotImplementedError:  # RegNet computes its widths with tensors
            model = _made(name, kind)
        size = sum(p.numel() for p in model.parameters())
        if size > _LARGEST:
            raise TooLargeError(size, _LARGEST)
    model, problems = _made(name, kind).eval(), []
    for given in _given(kind):
        try:
            with torch.no_grad():
                model(*given)
            return model, given
        except Exception as error:
            problems.append(f"{type(error).__name__}: {str(error)[:60]}")
    raise NotPlainError(" / ".join(problems))


def _made(name: str, kind: str) -> torch.nn.Module:
    import torchvision.models as models

    wanted = inspect.signature(models.get_model_builder(name)).parameters
    options = {key: value for key, value in _OPTIONS.items() if key in wanted}
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = True
    if "rcnn" in name:
        options.update(_DETECTION)
    elif kind == "detection" and "ssd" not in name:
        options.update(min_size=64, max_size=96)
    elif "raft" not in name and kind not in ("segmentation", "detection"):
        options["num_classes"] = _CLASSES
    mvit = models.video.mvit  # the builders set the size of the clips, which would take gigabytes
    with patch.object(mvit, "MViT", partial(_small_clips, mvit.MViT)):
        return models.get_model(name, **options)  # type: ignore[no-any-return]


def _small_clips(cls: Any, **options: Any) -> torch.nn.Module:
    return cls(**{**options, "spatial_size": (64, 64), "temporal_size": 4})  # type: ignore[no-any-return]


def _given(kind: str) -> Iterator[tuple[Any, ...]]:
    if kind == "optical_flow":
        yield torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)
    elif kind == "detection":
        yield ([torch.rand(3, 64, 96)],)
    elif kind == "video":
        for shape in ((4, 64, 64), (16, 64, 64), (16, 112, 112), (16, 224, 224)):
            yield (torch.randn(1, 3, *shape),)
    else:
        for side in (64, 96, 128, 224, 299):
            yield (
                (torch.randn(2, 3, side, side),)
                if kind == "segmentation"
                else (torch.randn(1, 3, side, side),)
            )
