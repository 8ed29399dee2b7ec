"""Set up a process of the sweep: no downloads, one thread, a working torchvision."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import torch

#: Operators of torchvision's binary that its Python code refers to on import.
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
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

    Such a torchvision cannot load its operators and fails to import because their names are missing. Once the
    names are defined, all models that do not use these operators run.
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
    except ImportError:
        pass
