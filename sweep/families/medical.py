"""Small networks of ``monai`` for volumes and images."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ..architecture import Architecture

_SEG = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
#: By class: options, and the shape of the input
_MODELS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "UNet": ({**_SEG, "channels": (4, 8, 16), "strides": (2, 2), "num_res_units": 1}, (1, 1, 32, 32)),
    "BasicUNet": ({**_SEG, "features": (4, 4, 8, 8, 8, 4)}, (1, 1, 32, 32)),
    "BasicUNetPlusPlus": ({**_SEG, "features": (4, 4, 8, 8, 8, 4)}, (1, 1, 32, 32)),
    "AttentionUnet": ({**_SEG, "channels": (4, 8, 16), "strides": (2, 2)}, (1, 1, 32, 32)),
    "DynUNet": (
        {
            **_SEG,
            "kernel_size": [3, 3, 3],
            "strides": [1, 2, 2],
            "upsample_kernel_size": [2, 2],
            "filters": [4, 8, 16],
        },
        (1, 1, 32, 32),
    ),
    "UNETR": (
        {
            "in_channels": 1,
            "out_channels": 2,
            "img_size": 32,
            "feature_size": 4,
            "hidden_size": 24,
            "mlp_dim": 32,
            "num_heads": 2,
            "spatial_dims": 2,
        },
        (1, 1, 32, 32),
    ),
    "SwinUNETR": (
        {"in_channels": 1, "out_channels": 2, "feature_size": 12, "spatial_dims": 2},
        (1, 1, 64, 64),
    ),
    "SegResNet": ({**_SEG, "init_filters": 8}, (1, 1, 32, 32)),
    "SegResNetDS": ({**_SEG, "init_filters": 8}, (1, 1, 32, 32)),
    "SegResNetVAE": ({**_SEG, "init_filters": 8, "input_image_size": (32, 32)}, (1, 1, 32, 32)),
    "VNet": ({"spatial_dims": 2, "in_channels": 1, "out_channels": 2}, (1, 1, 32, 32)),
    "HighResNet": ({**_SEG}, (1, 1, 16, 16)),
    "DenseNet": ({**_SEG, "init_features": 8, "growth_rate": 4, "block_config": (2, 2)}, (1, 1, 32, 32)),
    "AutoEncoder": ({**_SEG, "channels": (4, 8), "strides": (2, 2)}, (1, 1, 16, 16)),
    "VarAutoEncoder": (
        {
            "spatial_dims": 2,
            "in_shape": (1, 16, 16),
            "out_channels": 1,
            "latent_size": 4,
            "channels": (4, 8),
            "strides": (2, 2),
        },
        (1, 1, 16, 16),
    ),
    "Generator": (
        {"latent_shape": (8,), "start_shape": (4, 4, 4), "channels": (4, 1), "strides": (2, 2)},
        (1, 8),
    ),
    "Discriminator": ({"in_shape": (1, 16, 16), "channels": (4, 8), "strides": (2, 2)}, (1, 1, 16, 16)),
    "Regressor": (
        {"in_shape": (1, 16, 16), "out_shape": (2,), "channels": (4, 8), "strides": (2, 2)},
        (1, 1, 16, 16),
    ),
    "MedNeXtS": ({"spatial_dims": 2, "in_channels": 1, "out_channels": 2}, (1, 1, 32, 32)),
    "ViT": (
        {
            "in_channels": 1,
            "img_size": (16, 16),
            "patch_size": (4, 4),
            "hidden_size": 16,
            "mlp_dim": 16,
            "num_layers": 2,
            "num_heads": 2,
            "spatial_dims": 2,
            "classification": True,
        },
        (1, 1, 16, 16),
    ),
    "ViTAutoEnc": (
        {
            "in_channels": 1,
            "img_size": (16, 16),
            "patch_size": (4, 4),
            "hidden_size": 16,
            "mlp_dim": 16,
            "num_layers": 2,
            "num_heads": 2,
            "spatial_dims": 2,
        },
        (1, 1, 16, 16),
    ),
    "VQVAE": (
        {
            **_SEG,
            "out_channels": 1,
            "channels": (8, 8),
            "num_res_channels": (8, 8),
            "num_res_layers": 1,
            "num_embeddings": 8,
            "embedding_dim": 8,
            "downsample_parameters": ((2, 4, 1, 1),) * 2,
            "upsample_parameters": ((2, 4, 1, 1, 0),) * 2,
        },
        (1, 1, 16, 16),
    ),
    "PatchDiscriminator": (
        {"spatial_dims": 2, "channels": 4, "in_channels": 1, "num_layers_d": 2},
        (1, 1, 32, 32),
    ),
    "GlobalNet": (
        {"image_size": [32, 32], "spatial_dims": 2, "in_channels": 1, "num_channel_initial": 4, "depth": 2},
        (1, 1, 32, 32),
    ),
    "LocalNet": (
        {"spatial_dims": 2, "in_channels": 1, "num_channel_initial": 4, "extract_levels": [0, 1]},
        (1, 1, 32, 32),
    ),
    "RegUNet": (
        {"spatial_dims": 2, "in_channels": 1, "num_channel_initial": 4, "depth": 2, "out_channels": 2},
        (1, 1, 32, 32),
    ),
    "FlexibleUNet": (
        {
            "in_channels": 1,
            "out_channels": 2,
            "backbone": "resnet10",
            "pretrained": False,
            "spatial_dims": 2,
            "decoder_channels": (32, 16, 8, 4, 4),
        },
        (1, 1, 32, 32),
    ),
}


def architectures() -> Iterator[Architecture]:
    """Yield one architecture per class, by name."""
    for name in sorted(_MODELS):
        yield Architecture("monai", name, partial(build, name))


def build(name: str) -> tuple[torch.nn.Module, Any]:
    """Return a small model of a class, and its input."""
    import monai.networks.nets as nets

    options, shape = _MODELS[name]
    return getattr(nets, name)(**options).eval(), torch.randn(shape)
