"""Directions and dictionaries: units computed from all units of a layer, beside a random baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...backends.base import for_model
from ...core.errors import InputError
from .saelens import Relu, load

#: ``encode(rows)`` returns the features of rows, (rows, width) to (rows, features).
Encode = Callable[[np.ndarray], np.ndarray]


class Basis(Protocol):
    """Units computed from all units of a layer."""

    @property
    def name(self) -> str:
        """Their name in addresses, such as ``directions`` in ``layer2 (directions)``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each unit; empty if they have none."""

    @property
    def random(self) -> bool:
        """True if they are a random baseline."""

    def features(self, rows: np.ndarray, address: str) -> np.ndarray:
        """Return the units of rows, (rows, width) to (rows, units); raises InputError for another width."""

    def randomized(self, seed: int) -> Basis:
        """Return the random baseline."""


class Directions:
    """Directions in the space of a layer as units, such as the weights of a probe.

    Unit ``i`` is the product of the layer's output with row ``i`` of the matrix. ``inspect`` always scores
    them beside random directions: the same matrix, rotated at random, so that its norms and angles are kept.

    Args:
        matrix: The directions, (directions, width): one row per direction, one entry per unit of the layer.
            An array or a tensor.
        names: A name for each direction, shown in ``note``. Default: none.
        name: What they are called in the table: ``layer2 (directions)``. Default: ``"directions"``.

    Raises:
        InputError: If the matrix is no finite matrix, or there is not one name per direction.

    Example:
        >>> Directions(np.eye(3)[:2], names=["x", "y"])
        <2 directions of width 3>
    """

    random = False

    def __init__(self, matrix: Any, names: Sequence[str] = (), *, name: str = "directions") -> None:
        self.matrix = _matrix(matrix, "The matrix of Directions")
        self.name, self.names = name, _names(names, len(self.matrix), "directions")

    def features(self, rows: np.ndarray, address: str) -> np.ndarray:
        """Return the products of rows with the directions, (rows, width) to (rows, directions)."""
        count, width = self.matrix.shape
        if rows.shape[1] != width:
            turned = " It fits transposed: write Directions(matrix.T)." if rows.shape[1] == count else ""
            raise InputError(
                f"The directions for {address!r} have {width} entries each, but the layer has "
                f"{rows.shape[1]} units.{turned}"
            )
        return np.asarray(rows @ self.matrix.T)

    def randomized(self, seed: int) -> Directions:
        """Return the same directions after a random rotation."""
        turned = Directions(self.matrix @ _rotation(self.matrix.shape[1], seed), name=f"random {self.name}")
        turned.random = True
        return turned

    def __repr__(self) -> str:
        return f"<{len(self.matrix)} directions of width {self.matrix.shape[1]}>"


class Dictionary:
    """The features of a dictionary, such as a sparse autoencoder (SAE) or a PCA, as units of a layer.

    ``inspect`` always scores them beside a random dictionary: the same encoder after a random rotation of its
    input about its center, so that norms, biases, thresholds and the angles between features are kept.

    Args:
        encoder: A matrix (width, features), for the features ``relu((x - center) @ encoder + bias)``; or a
            function of rows (rows, width) that returns (rows, features); or an object with a method
            ``encode`` (a torch module) or ``transform`` (a PCA of scikit-learn).
        decoder: The matrix (features, width) that reconstructs the layer's output. Default: none.
        bias: The bias of an encoder that is a matrix, (features,). Default: 0.
        center: What is subtracted from the layer's output before the encoder, and added by the decoder,
            (width,). Default: 0; of a PCA its ``mean_``.
        names: A name for each feature, shown in ``note``. Default: none.
        name: What they are called in the table: ``layer2 (dictionary)``. Default: ``"dictionary"``.

    Raises:
        InputError: If the encoder is none of these, or the shapes do not fit each other.

    Example:
        >>> sae = Dictionary(np.eye(3)[:, :2], np.eye(3)[:2])
        >>> sae.features(np.array([[1.0, -2.0, 5.0]]), "layer2").tolist()
        [[1.0, 0.0]]

    References:
        Cunningham, Ewart, Riggs, Huben and Sharkey (2023), "Sparse Autoencoders Find Highly Interpretable
        Features in Language Models".
    """

    random = False

    def __init__(
        self,
        encoder: Any,
        decoder: Any = None,
        *,
        bias: Any = None,
        center: Any = None,
        names: Sequence[str] = (),
        name: str = "dictionary",
    ) -> None:
        self.width: int | None = None
        self.count: int | None = None
        self._rotation: np.ndarray | None = None
        self._seed = 0
        self.decoder = None if decoder is None else _matrix(decoder, "The decoder of Dictionary")
        methods = hasattr(encoder, "encode") or hasattr(encoder, "transform")
        if isinstance(encoder, str | bytes) or not (callable(encoder) or methods):
            weights = _matrix(encoder, "The encoder of Dictionary")
            self.width, self.count = weights.shape
            encoder = Relu(weights, _vector(bias, self.count, "bias"))
        elif bias is not None:
            raise InputError("bias= is that of an encoder that is a matrix. Leave it out.")
        elif hasattr(encoder, "transform") and not hasattr(encoder, "encode"):
            self.width = getattr(encoder, "n_features_in_", None)
            self.decoder = getattr(encoder, "components_", None) if decoder is None else self.decoder
            if center is None and getattr(encoder, "mean_", None) is not None:
                center = np.asarray(encoder.mean_, np.float64)
                encoder = _Centered(encoder.transform, center)
            else:
                encoder = encoder.transform
        elif hasattr(encoder, "encode"):
            encoder = _EncodeMethod(encoder)
        self._encode: Encode = encoder
        if self.decoder is not None:
            features, width = self.decoder.shape
            if self.count not in (None, features) or self.width not in (None, width):
                raise InputError(
                    f"The encoder of Dictionary has shape ({self.width}, {self.count}), so its "
                    f"decoder must have shape ({self.count}, {self.width}), got {self.decoder.shape}."
                )
            self.count, self.width = features, width
        self.center = None if center is None else _vector(center, self.width, "center")
        self._offset = self.center  # what the decoder adds
        self.name, self._named = name, tuple(names)
        if self.count is not None:
            _names(names, self.count, "features")

    @classmethod
    def load(cls, path: str | Path, *, name: str = "dictionary") -> Dictionary:
        """Load an SAE that SAELens saved, without SAELens.

        The architectures are standard, gated, jumprelu and topk.

        Args:
            path: The folder with ``cfg.json`` and ``sae_weights.safetensors``, or the latter file.
            name: What its features are called in the table. Default: ``"dictionary"``.

        Raises:
            InputError: If the files are missing or damaged, or use an option that is not known here.
        """
        encode, decoder, offset, centered = load(Path(path))
        sae = cls(encode, decoder, center=offset if centered else None, name=name)
        sae._offset = offset
        return sae

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features; empty if they have none."""
        return self._named

    def features(self, rows: np.ndarray, address: str) -> np.ndarray:
        """Return the features of rows, (rows, width) to (rows, features)."""
        if self.width is not None and rows.shape[1] != self.width:
            raise InputError(
                f"The dictionary for {address!r} has width {self.width}, but the layer has {rows.shape[1]} "
                "units."
            )
        rows = rows if self.center is None else rows - self.center
        if self._rotation is None and self.random:
            self._rotation = _rotation(rows.shape[1], self._seed)
        rows = rows if self._rotation is None else rows @ self._rotation
        try:
            found = np.asarray(self._encode(rows))
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"The encoder of the dictionary failed for {address!r} of {rows.shape[1]} units: {error}"
            ) from error
        if found.ndim != 2 or len(found) != len(rows) or self.count not in (None, found.shape[1]):
            raise InputError(
                f"The encoder of the dictionary for {address!r} must return {len(rows)} rows of "
                f"{self.count or 'its'} features, got shape {found.shape}."
            )
        self.count = found.shape[1]
        _names(self._named, self.count, "features")
        return found

    def reconstruct(self, features: np.ndarray) -> np.ndarray:
        """Return the layer's output that the decoder makes of features, (rows, features) to (rows, width).

        Raises:
            InputError: If there is no decoder.
        """
        if self.decoder is None:
            raise InputError("This dictionary has no decoder. Pass decoder= to Dictionary.")
        rows = features @ self.decoder
        return np.asarray(rows if self._offset is None else rows + self._offset)

    def randomized(self, seed: int) -> Dictionary:
        """Return the same dictionary after a random rotation of its input about its center."""
        turned = Dictionary.__new__(Dictionary)
        turned.__dict__ |= self.__dict__
        turned.random, turned.name, turned._named, turned._seed = True, f"random {self.name}", (), seed
        turned.decoder = None
        return turned

    def __repr__(self) -> str:
        return f"<Dictionary of {self.count or '?'} features of width {self.width or '?'}>"


@dataclass(frozen=True, slots=True, eq=False)
class _Centered:
    """A transform that subtracts its center itself, as a function of rows that are centered already."""

    transform: Encode
    center: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return self.transform(rows + self.center)


@dataclass(frozen=True, slots=True, eq=False)
class _EncodeMethod:
    """``module.encode`` as a function of arrays; a model of a known framework receives its tensors."""

    module: Any

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        try:
            backend = for_model(self.module)
        except InputError:
            return np.asarray(_array(self.module.encode(rows)))
        with backend.evaluation(self.module):
            return np.asarray(_array(self.module.encode(backend.inputs(self.module, rows))))


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _matrix(given: Any, what: str) -> np.ndarray:
    try:
        matrix = np.asarray(_array(given), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be a matrix of numbers, got a {type(given).__name__}.") from None
    if matrix.ndim != 2 or not matrix.size:
        raise InputError(f"{what} must be a matrix, got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise InputError(f"{what} has entries that are NaN or infinite.")
    return matrix


def _vector(given: Any, length: int | None, what: str) -> np.ndarray:
    if given is None:
        return np.zeros(length or 1)
    vector = np.asarray(_array(given), dtype=np.float64)
    if vector.ndim != 1 or length not in (None, len(vector)):
        raise InputError(f"{what} must have shape ({length},), got {vector.shape}.")
    return vector


def _names(names: Sequence[str], count: int, what: str) -> tuple[str, ...]:
    if isinstance(names, str) or (len(names) and len(names) != count):
        raise InputError(f"names must have one name for each of the {count} {what}, got {names!r}.")
    return tuple(map(str, names))


def _rotation(width: int, seed: int) -> np.ndarray:
    """Return a random orthogonal matrix, uniformly distributed (Haar), of this width."""
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))
    return np.asarray(q * np.sign(np.diag(r)))
