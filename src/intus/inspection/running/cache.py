"""Keep what was computed in a folder, by the hash of everything that it depends on."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import numpy

from ...backends.base import Operation, for_model
from ..reading import Behavior, Output
from ..results.part import Part
from ..results.store import decode_part, encode_part
from .content_hash import ContentHash, NotHashableError

_T = TypeVar("_T")
_AXES = "axes of the records"


class Cache:
    """A folder with the rows of models, the labels of hypotheses and, on request, the outputs of layers.

    A file is named by the hash of what it was computed from, so that nothing old is ever found for a new
    question. A folder that cannot be read or written is reported by one warning and then left alone.

    Args:
        folder: The folder, which is made if it does not exist; None for no cache.
        outputs: Whether to keep the outputs of layers too, as safetensors. They may take much space.
    """

    def __init__(self, folder: str | Path | None, outputs: bool = False) -> None:
        self.folder = None if folder is None else Path(folder)
        self.keeps_outputs = outputs and folder is not None

    def part(self, fingerprint: str, model: str, epoch: float) -> Part | None:
        """Return the rows of a model that were computed for the same question, or None."""
        return self.read(f"{fingerprint}.rows", lambda content: decode_part(content, model, epoch))

    def keep_part(self, fingerprint: str, part: Part) -> None:
        """Keep the rows of a model."""
        self.write(f"{fingerprint}.rows", lambda: encode_part(part))

    def outputs(self, key: str) -> dict[str, tuple[np.ndarray, int | None]] | None:
        """Return the outputs of layers that were kept under a key, each with its axis of records, or None."""

        def decode(content: bytes) -> dict[str, tuple[np.ndarray, int | None]]:
            arrays = numpy.load(content)
            axes = json.loads(bytes(arrays.pop(_AXES)))
            return {address: (arrays[address], axis) for address, axis in axes.items()}

        return self.read(f"{key}.safetensors", decode)

    def keep_outputs(self, key: str, outputs: Mapping[str, Output]) -> None:
        """Keep the outputs of layers under a key."""

        def encode() -> bytes:
            axes = json.dumps({address: output.batch_axis for address, output in outputs.items()}).encode()
            arrays = {address: np.ascontiguousarray(output.array) for address, output in outputs.items()}
            return bytes(numpy.save(arrays | {_AXES: np.frombuffer(axes, np.uint8)}))

        self.write(f"{key}.safetensors", encode)

    def read(self, name: str, decode: Callable[[bytes], _T]) -> _T | None:
        """Return the decoded content of a file; None if there is none or it is damaged."""
        if self.folder is None:
            return None
        path = self.folder / name
        try:
            return decode(path.read_bytes()) if path.exists() else None
        except Exception as error:  # whatever a damaged file makes the decoders raise
            self._warn(f"{name} cannot be read ({error}), so it is computed again.")
            return None

    def write(self, name: str, encode: Callable[[], bytes]) -> None:
        """Write a file whole; a folder that cannot be written is left alone from then on."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(encode())
            os.replace(file.name, self.folder / name)  # other processes see the whole file or none
        except OSError as error:
            self._warn(f"nothing can be kept there ({error}).")
            self.folder = None

    def _warn(self, what: str) -> None:
        warnings.warn(f"cache={str(self.folder)!r}: {what} The table is complete.", stacklevel=8)


class KeptOutputs:
    """The outputs of some layers of one model in a cache, by the hash of the model and of each block.

    Args:
        cache: The cache.
        start: The hash of the model and of what is read.
        operations: The operation of each address that a module returns.
    """

    def __init__(self, cache: Cache, start: ContentHash, operations: Mapping[str, Operation]) -> None:
        self._cache, self._start, self._operations = cache, start, operations

    @classmethod
    def of(cls, cache: Cache, model: Any, addresses: Sequence[str], behavior: Behavior) -> KeptOutputs | None:
        """Return the outputs of a model's layers; None if none are kept, or the model cannot be hashed."""
        if not cache.keeps_outputs:
            return None
        backend = for_model(model)
        state = backend.state(model)
        try:
            start = ContentHash().add(state, sorted(addresses), behavior.name, behavior.output)
        except NotHashableError:
            return None
        operations = {operation.address: operation for operation in backend.operations(model)}
        return None if state is None else cls(cache, start, operations)

    def reading(
        self, read: Callable[[Any, np.ndarray], dict[str, Output]]
    ) -> Callable[[Any, np.ndarray], dict[str, Output]]:
        """Return a function that reads outputs from the cache, or else by ``read`` and keeps them."""

        def kept(inputs: Any, numbers: np.ndarray) -> dict[str, Output]:
            try:
                key = copy(self._start).add(inputs, numbers).digest()
            except NotHashableError:
                return read(inputs, numbers)
            found = self._cache.outputs(key)
            if found is not None:
                return {address: Output(*part, self._operation(address)) for address, part in found.items()}
            outputs = read(inputs, numbers)
            self._cache.keep_outputs(key, outputs)
            return outputs

        return kept

    def _operation(self, address: str) -> Operation:
        module = address.partition(":")[0]
        return self._operations.get(module, Operation(address, "", None))
