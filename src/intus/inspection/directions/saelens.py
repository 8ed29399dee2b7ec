"""Read sparse autoencoders that SAELens saved: a safetensors file of weights and a JSON file of options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from ...core.errors import InputError

_WEIGHTS, _OPTIONS = "sae_weights.safetensors", "cfg.json"
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_NEEDED = {
    "standard": ("W_enc", "b_enc", "W_dec", "b_dec"),
    "topk": ("W_enc", "b_enc", "W_dec", "b_dec"),
    "jumprelu": ("W_enc", "b_enc", "W_dec", "b_dec", "threshold"),
    "gated": ("W_enc", "b_gate", "b_mag", "r_mag", "W_dec", "b_dec"),
}
#: Options that change what the encoder computes, and the values that are known here.
_KNOWN: dict[str, tuple[Any, ...]] = {
    "normalize_activations": ("none", None, False),
    "reshape_activations": ("none", None),
    "hook_head_index": (None,),
}


def load(path: Path) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray, np.ndarray, bool]:
    """Return the encoder and the decoder of an SAE.

    Args:
        path: The folder that SAELens wrote, or the file of weights in it.

    Returns:
        The encoder, (rows, width) to (rows, features); the decoder (features, width); what the decoder adds,
        (width,); and whether that must be subtracted from the rows before the encoder.

    Raises:
        InputError: If a file is missing or damaged, or an option is not known here.
    """
    if not path.exists():
        raise InputError(f"There is no file or folder {str(path)!r}. Give the folder that SAELens wrote.")
    folder = path if path.is_dir() else path.parent
    file = folder / _WEIGHTS if path.is_dir() else path
    options, weights = _options(folder / _OPTIONS), _weights(file)
    architecture = options.get("architecture", "standard")
    activation = options.get("activation_fn_str", options.get("activation_fn", "relu"))
    if architecture == "standard" and activation == "topk":
        architecture = "topk"
    if architecture not in _NEEDED:
        raise InputError(
            f"{str(folder)!r} is an SAE of the architecture {architecture!r}. Known are "
            f"{', '.join(_NEEDED)}. For another load it with SAELens and pass Dictionary(sae)."
        )
    for name, known in _KNOWN.items():
        value = options.get(name)
        if value not in known:
            raise InputError(
                f"{str(folder)!r} was trained with {name}={value!r}, which is not known here. Load it with "
                "SAELens and pass Dictionary(sae)."
            )
    if architecture == "topk" and options.get("rescale_acts_by_decoder_norm"):
        norms = np.linalg.norm(weights["W_dec"], axis=1)
        if not np.allclose(norms, 1, atol=1e-3):
            raise InputError(
                f"{str(folder)!r} was saved in training (rescale_acts_by_decoder_norm). Save it with "
                "save_inference_model."
            )
    if activation not in ("relu", "topk"):
        raise InputError(f"{str(folder)!r} has activation_fn={activation!r}. Known are relu and topk.")
    if missing := [name for name in _NEEDED[architecture] if name not in weights]:
        raise InputError(f"{str(file)!r} lacks {missing[0]!r}, which a {architecture} SAE has.")
    centered = bool(options.get("apply_b_dec_to_input", True))
    return _encoder(architecture, weights, options, folder), weights["W_dec"], weights["b_dec"], centered


@dataclass(frozen=True, slots=True, eq=False)
class Relu:
    """The encoder of a standard SAE."""

    weights: np.ndarray
    bias: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the features of centered rows."""
        return np.asarray(np.maximum(rows @ self.weights + self.bias, 0))


@dataclass(frozen=True, slots=True, eq=False)
class JumpRelu:
    """The encoder of a JumpReLU SAE: features below their threshold are 0."""

    weights: np.ndarray
    bias: np.ndarray
    threshold: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the features of centered rows."""
        before = rows @ self.weights + self.bias
        return np.asarray(np.maximum(before, 0) * (before > self.threshold))


@dataclass(frozen=True, slots=True, eq=False)
class TopK:
    """The encoder of a TopK SAE: of each row, the k largest features remain."""

    weights: np.ndarray
    bias: np.ndarray
    k: int

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the features of centered rows."""
        before = rows @ self.weights + self.bias
        chosen = np.argpartition(before, -self.k, axis=1)[:, -self.k :]
        out = np.zeros_like(before)
        np.put_along_axis(out, chosen, np.maximum(np.take_along_axis(before, chosen, 1), 0), 1)
        return np.asarray(out)


@dataclass(frozen=True, slots=True, eq=False)
class Gated:
    """The encoder of a gated SAE, whose gate and magnitude share their weights up to a scale."""

    weights: np.ndarray
    gate: np.ndarray
    magnitude: np.ndarray
    scale: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the features of centered rows."""
        before = rows @ self.weights
        return np.asarray((before + self.gate > 0) * np.maximum(before * self.scale + self.magnitude, 0))


def _encoder(
    architecture: str, weights: Mapping[str, np.ndarray], options: Mapping[str, Any], folder: Path
) -> Callable[[np.ndarray], np.ndarray]:
    encode = weights["W_enc"]
    if architecture == "gated":
        return Gated(encode, weights["b_gate"], weights["b_mag"], np.exp(weights["r_mag"]))
    if architecture == "jumprelu":
        return JumpRelu(encode, weights["b_enc"], weights["threshold"])
    if architecture == "topk":
        k = options.get("k", (options.get("activation_fn_kwargs") or {}).get("k"))
        if not isinstance(k, int) or not 0 < k <= encode.shape[1]:
            raise InputError(
                f"{str(folder / _OPTIONS)!r} has k={k!r}. A topk SAE of {encode.shape[1]} features needs a k "
                f"from 1 to {encode.shape[1]}."
            )
        return TopK(encode, weights["b_enc"], k)
    return Relu(encode, weights["b_enc"])


def _options(file: Path) -> dict[str, Any]:
    try:
        options = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"There is no {file.name} in {str(file.parent)!r}. SAELens writes it.") from None
    except ValueError as error:
        raise InputError(f"{str(file)!r} is damaged: {error}.") from None
    if not isinstance(options, dict):
        raise InputError(f"{str(file)!r} holds no options, but a {type(options).__name__}.")
    return options


def _weights(file: Path) -> dict[str, np.ndarray]:
    """Return all tensors as float64."""
    if not file.is_file():
        raise InputError(f"There is no file {str(file)!r}.")
    try:
        return {name: _array(tensor) for name, tensor in deserialize(file.read_bytes())}  # type: ignore[no-untyped-call]
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{str(file)!r} cannot be read: {error}") from None


def _array(tensor: Mapping[str, Any]) -> np.ndarray:
    """Return a tensor of a file as float64; raises ValueError for another type than floats."""
    kind, data = tensor["dtype"], tensor["data"]
    if kind == "BF16":  # the upper half of a float32; numpy has no such type
        array = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    elif kind in _FLOATS:
        array = np.frombuffer(data, _FLOATS[kind])
    else:
        raise ValueError(f"it has numbers of type {kind}; known are {', '.join([*_FLOATS, 'BF16'])}")
    return array.reshape(tensor["shape"]).astype(np.float64)
