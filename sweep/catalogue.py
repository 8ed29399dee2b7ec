"""The catalogue of architectures."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from .architecture import Architecture

#: The modules of ``sweep.families`` and the package that each needs. A module is skipped without its package.
_FAMILIES = {
    "by_hand": "torch",
    "speech": "torch",
    "vision": "torchvision",
    "diffusion": "diffusers",
    "graphs": "torch_geometric",
    "medical": "monai",
    "hugging_face": "transformers",
    "images": "timm",
}


def catalogue() -> Iterator[Architecture]:
    """Yield every architecture, family by family."""
    for module, package in _FAMILIES.items():
        try:
            import_module(package)
        except ImportError:
            print(f"{package} is not installed: its architectures are skipped")
            continue
        yield from import_module(f"sweep.families.{module}").architectures()
