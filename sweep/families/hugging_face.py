"""Every model class of ``transformers`` that an auto class builds from a small configuration.

There are four families: the model types of ``AutoModel``; the classes of the other auto classes, with an
attention mask; those that generate, in a second call with the cache of a first one; and their ``generate``.

The default configuration of a type is made small by the names of its fields. If the model then does not run,
fewer fields are changed. The inputs are those of the arguments of ``forward`` that the kind of model needs.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ..architecture import Architecture, NotPlainError, TooLargeError

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
    (
        r"(mamba_)?n_?groups|n_group|topk_group|num_expert_group|first_k_dense_replace|num_nextn_predict_layers|pretraining_tp",
        1,
    ),
    (r"sliding_window|local_attention|attention_window_size|chunk_size", 4),
    (r"image_size|pretrain_image_size|crop_size", IMAGE),
    (r"patch_size|patch_stride", PATCH),
    (r"(\w*_)?state_size|mamba_d_state", 4),
)
#: The fields of state space models whose product is the size of their inner layer.
_STATE_SPACES = (
    ("num_heads", "head_dim", "expand"),
    ("mamba_n_heads", "mamba_d_head", "mamba_expand"),
    ("n_mamba_heads", "mamba_headdim", "mamba_expand"),
    ("mamba_num_heads", "mamba_head_dim", "expand"),
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
#: The auto classes whose models generate.
_GENERATING = re.compile(
    "MODEL_FOR_(CAUSAL_LM|SEQ_TO_SEQ_CAUSAL_LM|IMAGE_TEXT_TO_TEXT|MULTIMODAL_LM|SPEECH_SEQ_2_SEQ|TEXT_TO_WAVEFORM)_"
)


def architectures() -> Iterator[Architecture]:
    """Yield one architecture per model type, then those of the other classes, by name."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    for kind in sorted(MODEL_MAPPING_NAMES):
        yield Architecture("transformers", kind, partial(build, kind))
    found = classes()
    for name, (kind, _) in found.items():
        yield Architecture("transformers: classes, with a mask", name, partial(masked, kind, name))
    for name, (kind, generates) in found.items():
        if generates:
            yield Architecture("transformers: with a cache", name, partial(cached, kind, name))
            yield Architecture("transformers: generate", name, partial(generating, kind, name))


def classes() -> dict[str, tuple[str, bool]]:
    """Return the type of every class of an auto class but ``AutoModel``, and whether it generates."""
    from transformers.models.auto import modeling_auto

    types = {name for names in modeling_auto.MODEL_MAPPING_NAMES.values() for name in _tuple(names)}
    found: dict[str, tuple[str, bool]] = {}
    for mapping, kinds in sorted(vars(modeling_auto).items()):
        if re.fullmatch(r"MODEL_FOR_\w+_MAPPING_NAMES", mapping):
            for kind, names in kinds.items():
                for name in set(_tuple(names)) - types:
                    generates = bool(_GENERATING.match(mapping)) or found.get(name, (kind, False))[1]
                    found[name] = found.get(name, (kind, False))[0], generates
    return dict(sorted(found.items()))


def _tuple(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def build(kind: str, name: str = "") -> tuple[torch.nn.Module, dict[str, Any]]:
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
            model = made(config, name).eval()
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


def masked(kind: str, name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return a model and inputs with an attention mask that hides the end, if the model accepts one."""
    model, inputs = build(kind, name)
    if "attention_mask" not in inspect.signature(model.forward).parameters:
        return model, inputs
    for key in ("input_ids", "input_values", "input_features"):
        if key in inputs and inputs[key].ndim in (2, 3):
            value = inputs[key]
            sizes = (value.shape,) if key != "input_features" else ((1, value.shape[1]), (1, value.shape[2]))
            for size in sizes:
                mask = torch.ones(size, dtype=torch.long)
                mask[..., -max(mask.shape[-1] // 5, 1) :] = 0
                if _runs(model, {**inputs, "attention_mask": mask}):
                    return model, {**inputs, "attention_mask": mask}
    return model, inputs


def cached(kind: str, name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return a model and the inputs of its second call: one more token, and the cache of the first call."""
    model, inputs = build(kind, name)
    wanted = inspect.signature(model.forward).parameters
    with torch.no_grad():
        first = model(**inputs, use_cache=True)
    key = next((key for key in ("cache", "past_key_values", "cache_params") if getattr(first, key, None)), "")
    if not key:
        raise NotPlainError("it returns no cache")
    token = torch.tensor([[7]])
    following: dict[str, Any] = {key: getattr(first, key), "use_cache": True}
    if "decoder_input_ids" in wanted:
        following["decoder_input_ids"] = token
        following["encoder_outputs"] = (first.encoder_last_hidden_state,)
    else:
        following["input_ids"] = token
    length = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
    mask = torch.ones(1, length + ("decoder_input_ids" not in wanted), dtype=torch.long)
    for more in ({"attention_mask": mask}, {}, {"cache_position": torch.tensor([length])}):
        if set(more) <= set(wanted) and _runs(model, {**following, **more}):
            return model, {**following, **more}
    raise NotPlainError("it does not accept its own cache")


class Generating(torch.nn.Module):
    """A model whose ``generate`` is its forward pass: three tokens, always the most probable one."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        """Generate three tokens."""
        return self.model.generate(**inputs, max_new_tokens=3, do_sample=False)


def generating(kind: str, name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return a model that generates, and the beginning to continue."""
    model, inputs = build(kind, name)
    if not getattr(model, "can_generate", lambda: False)():
        raise NotPlainError("it does not generate")
    inputs.pop("decoder_input_ids", None)
    given = model.generation_config
    if given.decoder_start_token_id is None and given.bos_token_id is None:
        given.decoder_start_token_id = 1
    return Generating(model), inputs


def _runs(model: torch.nn.Module, inputs: dict[str, Any]) -> bool:
    """Return whether a model accepts inputs; a cache among them is copied."""
    try:
        with torch.no_grad():
            model(**copy.deepcopy(inputs))
        return True
    except Exception:
        return False


def small(kind: str, keep: str = "") -> Any:
    """Return a type's default configuration with small sizes, except in fields that match ``keep``."""
    from transformers import CONFIG_MAPPING

    cls = CONFIG_MAPPING[kind]
    return cls(**shrunk(cls().to_dict(), keep))


def shrunk(fields: dict[str, Any], keep: str) -> dict[str, Any]:
    """Return overrides for the fields of a configuration and of nested configurations."""
    found: dict[str, Any] = {}
    tokens = 0
    for heads, size, expand in _STATE_SPACES:
        if {heads, size, expand} <= set(fields):
            found[heads], found[size] = 32 * int(fields[expand]) // 16, 16
    for name, value in fields.items():
        if name in found:
            continue
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


def made(config: Any, name: str = "") -> torch.nn.Module:
    """Build the model of a configuration: that of ``AutoModel``, or the class of a name.

    Raises:
        NotPlainError: It is too large.
    """
    import transformers

    make = getattr(transformers, name) if name else transformers.AutoModel.from_config
    wanted = getattr(make, "config_class", None) or type(config)
    if not isinstance(config, wanted):  # the class of a part of this model
        config = next(part for part in vars(config).values() if isinstance(part, wanted))
    with torch.device("meta"):
        size = sum(p.numel() for p in make(config).parameters())
    if size > _LARGEST:
        raise TooLargeError(size, _LARGEST)
    return make(config)  # type: ignore[no-any-return]


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
    if "MultipleChoice" in type(model).__name__:
        yield {"input_ids": ids[:, None].repeat(1, 2, 1)}
    yield fits
    text = {name: fits[name] for name in ("input_ids", "decoder_input_ids", "bbox") if name in fits}
    if "input_ids" in fits:
        yield {"input_ids": ids}
        yield {
            "input_ids": torch.cat([ids, torch.tensor([[getattr(model.config, "eos_token_id", 0) or 0]])], 1)
        }
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
