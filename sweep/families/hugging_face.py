"""Every model type of ``transformers`` that ``AutoModel`` builds from a small configuration.

The default configuration of a type is made small by the names of its fields. If the model then does not run,
fewer fields are changed. The inputs are those of the arguments of ``forward`` that the kind of model needs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ..architecture import Architecture, NotPlainError

VOCABULARY, IMAGE, PATCH, LENGTH = 128, 32, 8, 6
#: Patterns of field names and values; the first match counts.
_SMALL: tuple[tuple[str, int], ...] = (
    (r"vocab_size|vocab_size_per_layer_input|entity_vocab_size", VOCABULARY),
    (r"qk_rope_head_dim|hidden_size_per_layer_input|index_head_dim", 8),
    (r"qk_head_dim", 24),
    (r"(\w+_)?head_dim|d_kv|attention_head_size|kv_lora_rank|q_lora_rank|head_size|kv_channels", 16),
    (
        r"(\w*_)?(hidden_size|d_model|n_embd|embed_dim|projection_dim|hidden_dim|embedding_size|word_embed_proj_dim)",
        32,
    ),
    (r"dim|emb_dim|d_embed|out_hidden_size|lm_dim|embedding_dim|q_hidden_size", 32),
    (r"(\w*_)?(intermediate_size|ffn_dim|ffn_hidden_size|d_ff|n_inner|mlp_dim|d_inner|ffn_size)", 48),
    (
        r"(num_)?(\w*_)?(num_)?(hidden_layers|n_layers?|num_layers|layers|depth)|num_(\w+_)?layers|num_blocks",
        2,
    ),
    (
        r"(\w*_)?(attention_heads|num_heads|n_heads?|key_value_heads|num_kv_heads|num_heads_kv|multi_query_group_num)",
        2,
    ),
    (r"index_topk|num_queries|image_seq_length", 4),
    (
        r"max_position_embeddings|n_positions|max_source_positions|max_target_positions|max_seq_len|max_sequence_length|seq_length|block_size",
        64,
    ),
    (r"num_(local_|routed_)?experts|n_routed_experts|moe_num_experts|num_moe_experts", 4),
    (r"num_experts_per_tok(en)?|moe_topk|moe_top_k|num_selected_experts|top_k_experts", 2),
    (r"n_group|topk_group|num_expert_group|first_k_dense_replace|num_nextn_predict_layers|pretraining_tp", 1),
    (r"sliding_window|local_attention|attention_window_size|chunk_size", 4),
    (r"image_size|pretrain_image_size|crop_size", IMAGE),
    (r"patch_size|patch_stride", PATCH),
    (r"(\w*_)?state_size|mamba_d_state", 4),
)
#: Patterns of fields to leave unchanged, one tuple per attempt.
_MILDER = (
    (),
    (r"head_dim|qk_|kv_lora|q_lora|head_size|kv_channels",),
    (r"patch_size|patch_stride|image_size|crop_size",),
    (r"hidden_dim|dim$|embedding_size|projection_dim",),
    (r"layers|depth",),
    (r".*patch.*|.*dim.*|.*image.*|.*layers.*|.*depth.*",),
)
_LARGEST = 30_000_000


def architectures() -> Iterator[Architecture]:
    """Yield one architecture per model type, by name."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    for kind in sorted(MODEL_MAPPING_NAMES):
        yield Architecture("transformers", kind, partial(build, kind))


def build(kind: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return the model of the first attempt that runs, and the first inputs that it accepts."""
    problems: list[str] = []
    tried: list[str] = []
    for keep in _MILDER:
        try:
            config = small(kind, "|".join(keep))
            text = str(config.to_dict())
            if text in tried:
                continue
            tried.append(text)
            model = made(config).eval()
        except Exception as error:
            problems.append(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
            continue
        for inputs in inputs_of(model):
            try:
                with torch.no_grad():
                    model(**inputs)
                return model, inputs
            except Exception as error:
                problems.append(
                    f"{sorted(inputs)} {type(error).__name__}: {' '.join(str(error).split())[:160]}"
                )
    raise NotPlainError(" / ".join(problems))


def small(kind: str, keep: str = "") -> Any:
    """Return a type's default configuration with small sizes, except in fields that match ``keep``."""
    from transformers import CONFIG_MAPPING

    cls = CONFIG_MAPPING[kind]
    return cls(**shrunk(cls().to_dict(), keep))


def shrunk(fields: dict[str, Any], keep: str) -> dict[str, Any]:
    """Return overrides for the fields of a configuration and of nested configurations."""
    found: dict[str, Any] = {}
    tokens = 0
    for name, value in fields.items():
        if isinstance(value, dict) and "model_type" in value:
            found[name] = {**shrunk(value, keep), "model_type": value["model_type"]}
        elif re.fullmatch(r"\w*token_(id|index)", name):
            if isinstance(value, int) and value >= VOCABULARY:
                tokens += 1
                found[name] = VOCABULARY - tokens
            elif isinstance(value, list):
                found[name] = [VOCABULARY - 30]
        elif keep and re.search(keep, name):
            continue
        elif type(value) is int and value > 0:
            small = next((size for pattern, size in _SMALL if re.fullmatch(pattern, name)), None)
            if small is not None:
                found[name] = min(value, small)
        elif isinstance(value, list | tuple) and value and all(type(v) is int for v in value):
            if name in ("depths", "layers", "num_layers", "stage_num_blocks", "num_blocks"):
                found[name] = type(value)(min(v, 2) for v in value)
            elif name in ("image_size", "crop_size"):
                found[name] = type(value)(IMAGE for _ in value)
    return found


def made(config: Any) -> torch.nn.Module:
    """Build the model of a configuration.

    Raises:
        NotPlainError: It is too large.
    """
    from transformers import AutoModel

    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModel.from_config(config).parameters())
    if size > _LARGEST:
        raise NotPlainError(f"{size / 1e6:.0f} million parameters after making it small")
    return AutoModel.from_config(config)  # type: ignore[no-any-return]


def inputs_of(model: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Yield inputs that may fit: first all that ``forward`` takes, then those of one kind of model."""
    wanted = set(inspect.signature(model.forward).parameters)
    if "args" in wanted or wanted <= {"kwargs"}:
        wanted |= {"input_ids", "pixel_values"}
    ids = torch.arange(1, LENGTH + 1)[None] * 7 % 60 + 1
    size = _image_size(model.config)
    channels = getattr(model.config, "num_channels", 3) or 3
    image = torch.randn(1, channels if isinstance(channels, int) else 3, size, size)
    mels = getattr(model.config, "num_mel_bins", None) or getattr(model.config, "feature_size", None) or 80
    sound = torch.randn(1, 2000)
    frames = getattr(model.config, "max_source_positions", 32) * 2
    given = {
        "input_ids": ids,
        "decoder_input_ids": ids[:, :4],
        "bbox": torch.ones(1, LENGTH, 4, dtype=torch.long),
        "pixel_values": image,
        "input_values": sound,
        "input_features": torch.randn(1, mels, frames),
    }
    fits = {name: value for name, value in given.items() if name in wanted}
    yield fits
    text = {name: fits[name] for name in ("input_ids", "decoder_input_ids", "bbox") if name in fits}
    if "input_ids" in fits:
        yield {"input_ids": ids}
        yield {**text, "attention_mask": torch.ones_like(ids)}
        yield {"input_ids": ids[:, :4], "pixel_values": image}
    if "pixel_values" in wanted:
        yield {"pixel_values": image}
        yield {"pixel_values": torch.randn(1, 3, 64, 64)}
        yield {"pixel_values": torch.randn(1, 3, 224, 224)}
        yield {"pixel_values": torch.randn(1, 2, 3, size, size)}
        yield {"pixel_values": torch.randn(1, 16, 3, size, size)}
    if "pixel_values_videos" in wanted:
        yield {"pixel_values_videos": torch.randn(1, 4, 3, size, size)}
    if "input_values" in wanted:
        yield {"input_values": sound}
        yield {"input_values": torch.randn(1, 1, 4800)}
        yield {"input_values": torch.randn(1, 1024, 128)}
    for name in ("input_features", "audio_values", "audio_features"):
        if name in wanted:
            for shape in ((1, mels, frames), (1, 64, mels), (1, 1, 64, mels)):
                yield {
                    name: torch.randn(shape),
                    **({"decoder_input_ids": ids} if "decoder_input_ids" in wanted else {}),
                }
    if "decoder_input_ids" in wanted:
        yield {"decoder_input_ids": ids}
    if "past_values" in wanted:
        yield from _series(model.config)


def _image_size(config: Any) -> int:
    for candidate in (
        config,
        getattr(config, "vision_config", None),
        getattr(config, "backbone_config", None),
    ):
        size = getattr(candidate, "image_size", None)
        if isinstance(size, int):
            return size
        if isinstance(size, list | tuple) and size:
            return int(size[0])
    return IMAGE


def _series(config: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Yield inputs of time series models."""
    length = getattr(config, "context_length", 0) or 32
    past = length + max(getattr(config, "lags_sequence", None) or [0])
    channels = getattr(config, "num_input_channels", 1)
    yield {"past_values": torch.randn(1, length, channels)}
    features = getattr(config, "num_time_features", 0)
    ahead = getattr(config, "prediction_length", 4) or 4
    yield {
        "past_values": torch.randn(1, past),
        "past_time_features": torch.randn(1, past, features),
        "past_observed_mask": torch.ones(1, past),
        "future_values": torch.randn(1, ahead),
        "future_time_features": torch.randn(1, ahead, features),
    }
    yield {"past_values": torch.randn(1, length)}
