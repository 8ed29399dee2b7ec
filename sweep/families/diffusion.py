"""Small denoisers and autoencoders of ``diffusers``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ..architecture import Architecture

_BLOCKS = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}
_DOWN, _UP = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
_HEADS = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1}


def _r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def _step() -> torch.Tensor:
    return torch.tensor([7])


#: By class: options, and a function that makes the inputs
_MODELS: dict[str, tuple[dict[str, Any], Any]] = {
    "UNet2DModel": (
        {
            **_BLOCKS,
            "sample_size": 16,
            "down_block_types": _DOWN,
            "up_block_types": _UP,
            "attention_head_dim": 4,
        },
        lambda: (_r(1, 3, 16, 16), _step()),
    ),
    "UNet2DConditionModel": (
        {
            **_BLOCKS,
            "sample_size": 16,
            "cross_attention_dim": 16,
            "attention_head_dim": 4,
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        },
        lambda: (_r(1, 4, 16, 16), _step(), _r(1, 5, 16)),
    ),
    "UNet3DConditionModel": (
        {
            **_BLOCKS,
            "sample_size": 16,
            "cross_attention_dim": 16,
            "attention_head_dim": 4,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        lambda: (_r(1, 4, 4, 16, 16), _step(), _r(1, 5, 16)),
    ),
    "ControlNetModel": (
        {
            **_BLOCKS,
            "cross_attention_dim": 16,
            "attention_head_dim": 4,
            "conditioning_embedding_out_channels": (8, 16),
            "projection_class_embeddings_input_dim": None,
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        },
        lambda: (_r(1, 4, 16, 16), _step(), _r(1, 5, 16), _r(1, 3, 32, 32)),
    ),
    "AutoencoderKL": (
        {
            **_BLOCKS,
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
        },
        lambda: (_r(1, 3, 16, 16),),
    ),
    "AutoencoderTiny": (
        {
            "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8),
            "num_encoder_blocks": (1, 1),
            "num_decoder_blocks": (1, 1),
        },
        lambda: (_r(1, 3, 16, 16),),
    ),
    "AsymmetricAutoencoderKL": (
        {
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "down_block_out_channels": (8, 16),
            "norm_num_groups": 4,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "up_block_out_channels": (8, 16),
        },
        lambda: (_r(1, 3, 16, 16),),
    ),
    "VQModel": (
        {
            **_BLOCKS,
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "num_vq_embeddings": 16,
        },
        lambda: (_r(1, 3, 16, 16),),
    ),
    "AutoencoderOobleck": (
        {
            "encoder_hidden_size": 8,
            "downsampling_ratios": [2, 4],
            "decoder_channels": 8,
            "channel_multiples": [1, 2],
            "decoder_input_channels": 4,
        },
        lambda: (_r(1, 2, 64),),
    ),
    "DiTTransformer2DModel": (
        {
            **_HEADS,
            "in_channels": 4,
            "out_channels": 8,
            "norm_num_groups": 4,
            "sample_size": 8,
            "patch_size": 2,
            "num_embeds_ada_norm": 10,
        },
        lambda: {"hidden_states": _r(1, 4, 8, 8), "timestep": _step(), "class_labels": torch.tensor([1])},
    ),
    "PixArtTransformer2DModel": (
        {
            **_HEADS,
            "in_channels": 4,
            "out_channels": 8,
            "sample_size": 8,
            "patch_size": 2,
            "caption_channels": 16,
            "cross_attention_dim": 16,
            "use_additional_conditions": False,
        },
        lambda: {"hidden_states": _r(1, 4, 8, 8), "timestep": _step(), "encoder_hidden_states": _r(1, 5, 16)},
    ),
    "SD3Transformer2DModel": (
        {
            **_HEADS,
            "sample_size": 8,
            "in_channels": 4,
            "joint_attention_dim": 16,
            "caption_projection_dim": 16,
            "pooled_projection_dim": 16,
            "out_channels": 4,
        },
        lambda: {
            "hidden_states": _r(1, 4, 8, 8),
            "timestep": _step(),
            "encoder_hidden_states": _r(1, 5, 16),
            "pooled_projections": _r(1, 16),
        },
    ),
    "FluxTransformer2DModel": (
        {
            **_HEADS,
            "in_channels": 4,
            "num_single_layers": 1,
            "joint_attention_dim": 16,
            "pooled_projection_dim": 16,
            "axes_dims_rope": (2, 2, 4),
        },
        lambda: {
            "hidden_states": _r(1, 16, 4),
            "timestep": _r(1),
            "encoder_hidden_states": _r(1, 5, 16),
            "pooled_projections": _r(1, 16),
            "img_ids": torch.zeros(16, 3),
            "txt_ids": torch.zeros(5, 3),
        },
    ),
    "SanaTransformer2DModel": (
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_layers": 1,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 8,
            "cross_attention_dim": 16,
            "caption_channels": 16,
            "sample_size": 8,
        },
        lambda: {"hidden_states": _r(1, 4, 8, 8), "timestep": _step(), "encoder_hidden_states": _r(1, 5, 16)},
    ),
    "CogVideoXTransformer3DModel": (
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 4,
            "out_channels": 4,
            "time_embed_dim": 8,
            "text_embed_dim": 16,
            "num_layers": 1,
            "sample_width": 8,
            "sample_height": 8,
            "sample_frames": 8,
            "patch_size": 2,
            "temporal_compression_ratio": 4,
            "max_text_seq_length": 5,
        },
        lambda: {
            "hidden_states": _r(1, 2, 4, 8, 8),
            "timestep": _step(),
            "encoder_hidden_states": _r(1, 5, 16),
        },
    ),
    "LatteTransformer3DModel": (
        {
            **_HEADS,
            "in_channels": 4,
            "out_channels": 8,
            "cross_attention_dim": 16,
            "caption_channels": 16,
            "sample_size": 8,
            "patch_size": 2,
            "video_length": 2,
            "norm_type": "ada_norm_single",
            "attention_bias": True,
            "norm_elementwise_affine": False,
        },
        lambda: {
            "hidden_states": _r(1, 4, 2, 8, 8),
            "timestep": _step(),
            "encoder_hidden_states": _r(1, 5, 16),
        },
    ),
    "WanTransformer3DModel": (
        {
            "patch_size": (1, 2, 2),
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "in_channels": 4,
            "out_channels": 4,
            "text_dim": 16,
            "freq_dim": 16,
            "ffn_dim": 24,
            "num_layers": 1,
            "rope_max_seq_len": 32,
            "cross_attn_norm": True,
            "qk_norm": "rms_norm_across_heads",
        },
        lambda: {
            "hidden_states": _r(1, 4, 2, 8, 8),
            "timestep": _step(),
            "encoder_hidden_states": _r(1, 5, 16),
        },
    ),
    "PriorTransformer": (
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 1,
            "embedding_dim": 16,
            "num_embeddings": 5,
            "additional_embeddings": 4,
        },
        lambda: {
            "hidden_states": _r(1, 16),
            "timestep": _step(),
            "proj_embedding": _r(1, 16),
            "encoder_hidden_states": _r(1, 5, 16),
        },
    ),
    "Transformer2DModel": (
        {**_HEADS, "in_channels": 16, "norm_num_groups": 4},
        lambda: (_r(1, 16, 8, 8),),
    ),
    "TransformerTemporalModel": (
        {**_HEADS, "in_channels": 16, "norm_num_groups": 4},
        lambda: {"hidden_states": _r(4, 16, 4, 4), "num_frames": 4},
    ),
    "T2IAdapter": (
        {"channels": [8, 16], "num_res_blocks": 1, "downscale_factor": 8},
        lambda: (_r(1, 3, 32, 32),),
    ),
    "T5FilmDecoder": (
        {
            "input_dims": 8,
            "targets_length": 6,
            "d_model": 16,
            "num_layers": 1,
            "num_heads": 2,
            "d_kv": 8,
            "d_ff": 16,
        },
        lambda: ([(_r(1, 5, 16), torch.ones(1, 5))], _r(1, 6, 8), _r(1)),
    ),
}


def architectures() -> Iterator[Architecture]:
    """Yield one architecture per class, by name."""
    for name in sorted(_MODELS):
        yield Architecture("diffusers", name, partial(build, name))


def build(name: str) -> tuple[torch.nn.Module, Any]:
    """Return a small model of a class, and its inputs."""
    import diffusers

    options, given = _MODELS[name]
    return getattr(diffusers, name)(**options).eval(), given()
