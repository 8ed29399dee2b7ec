"""Names that differ between versions of transformers."""

from __future__ import annotations

import inspect

from transformers import GPT2LMHeadModel

#: The argument and the output for the keys and values of earlier tokens.
CACHE = "cache" if "cache" in inspect.signature(GPT2LMHeadModel.forward).parameters else "past_key_values"
