"""Set up a process of the sweep: no downloads, one thread, a working torchvision."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import torch

#: Operators of torchvision's binary that its Python code refers to on import, or that detectors call.
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
)
_libraries: list[torch.library.Library] = []


def prepare() -> None:
    """Set up the process; call this before importing any library of models."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    _import_torchvision()


def _import_torchvision() -> None:
    """Import torchvision, even if it was built for CUDA and torch for the CPU.

    Such a torchvision cannot load its operators and fails to import because their names are missing. They are
    defined here. Those that detectors call run as Python: ``nms`` as written below, ``roi_align`` as
    torchvision's own reference. All models run then.
    """
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in _OPERATORS:
            library.define(operator)
        _libraries.append(library)  # the operators exist as long as the library
        import torchvision  # noqa: F401
        from torchvision.ops import boxes, roi_align

        reference = sys.modules["torchvision.ops.roi_align"]._roi_align  # type: ignore[attr-defined]
        library.impl("nms", _nms, "CPU")
        library.impl("roi_align", getattr(reference, "__wrapped__", reference), "CompositeImplicitAutograd")
        boxes._assert_has_ops = lambda: None
        vars(sys.modules[roi_align.__module__]).update(_has_ops=lambda: True, _assert_has_ops=lambda: None)
    except ImportError:
        pass


def _nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the indices of the boxes that overlap no box of a higher score by more than the threshold."""
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    waiting, kept = scores.argsort(descending=True, stable=True), list[torch.Tensor]()
    while len(waiting):
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[waiting, :2])
        high = torch.minimum(boxes[best, 2:], boxes[waiting, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        waiting = waiting[shared <= threshold * (area[best] + area[waiting] - shared)]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.long)
