"""Tell a causal mask that one pass states by a word from one that the other pass writes down.

``torch.export`` computes the mask of ``scaled_dot_product_attention(…, is_causal=True)`` and gives it to the
operation instead.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..pairing.regions import of_inputs
from ..values.elements import limit_of, plain

if TYPE_CHECKING:
    from ...results.trace import Trace

#: The names of the edge to an attention that is its mask: by keyword, or the fourth argument.
_MASK = ("attn_mask", "3")


def is_causal_mask(trace: Trace, row: int) -> bool:
    """Return whether the mask of an attention lets each position see itself and those before, on any inputs.

    So what it is computed from must not be the values of an input.

    Args:
        trace: The trace.
        row: The row of the attention.
    """
    given = dict(trace.graph.parents_by_argument(row))
    masks = [given[name] for name in _MASK if name in given]
    value = plain(trace.values.get(masks[0])) if len(masks) == 1 else None
    if value is None or value.array.ndim < 2 or masks[0] in of_inputs(trace.graph):
        return False
    mask = value.array
    is_seen = np.broadcast_to(np.tri(*mask.shape[-2:]) > 0, mask.shape)
    if mask.dtype == bool:
        return np.array_equal(mask, is_seen)
    hidden = mask[~is_seen]
    lowest = -limit_of(value.dtype) if value.is_float else math.nan
    return not mask[is_seen].any() and bool((hidden <= lowest).all())
