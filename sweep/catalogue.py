"""Everything that is swept, family by family."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from .architecture import Architecture

#: Modules of ``sweep.families`` with the package each needs; one that is not installed is left out.
_FAMILIES = {
    "by_hand": "torch",
    "images": "timm",
    "vision": "torchvision",
    "diffusion": "diffusers",
    "graphs": "torch_geometric",
    "medical": "monai",
    "hugging_face": "transformers",
}


def catalogue() -> Iterator[Architecture]:
    """Every architecture, in order of family and name."""
    for module, package in _FAMILIES.items():
        try:
            import_module(package)
        except ImportError:
            print(f"{package} is not installed: its architectures are left out")
            continue
        yield from import_module(f"sweep.families.{module}").architectures()
