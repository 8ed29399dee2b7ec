"""What a process of the sweep needs first: nothing downloaded, one thread, torchvision at all."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import torch

#: Operators of torchvision's binary that its Python half refers to when it is imported.
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[torch.library.Library] = []


def prepare() -> None:
    """Set the process up; call it before any library of models is imported."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    _import_torchvision()


def _import_torchvision() -> None:
    """torchvision built for CUDA cannot load its operators beside a torch for the CPU, and fails in its own
    import for want of their names. Given the names, all its models that use plain torch run."""
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in _OPERATORS:
            library.define(operator)
        _kept.append(library)  # the operators live as long as it does
        import torchvision  # noqa: F401
    except ImportError:
        pass
