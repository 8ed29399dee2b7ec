"""The primitives of JAX, as jaxprs name them."""

from __future__ import annotations

#: Primitives that PyTorch calls by the same name.
_SAME = """
    abs acos acosh add asin asinh atan atan2 atanh ceil cos cosh digamma div eq erf erfc exp exp2 expm1 floor
    ge gt imag le lgamma log log1p lt mul ne neg not pow real round rsqrt sign sin sinh sqrt square sub tan
    tanh argmax argmin cumsum cumprod cummax cummin sort split squeeze reshape pad identity
"""
#: Primitives that draw random numbers, and those that make the state from which others draw.
DRAWING = frozenset(
    {"random_bits", "random_gamma", "rng_bit_generator", "rng_uniform"}
    | {"philox2x32", "philox4x32", "threefry2x32", "threefry4x32"}
)
KEYS = frozenset(
    {"random_clone", "random_fold_in", "random_seed", "random_split", "random_unwrap", "random_wrap"}
)
JAX: dict[str, str] = {
    **{name: name for name in _SAME.split()},
    # elementwise
    "add_any": "add",
    "and": "logical_and",
    "cbrt": "sqrt",
    "clamp": "clamp",
    "convert_element_type": "to",
    "copy": "clone",
    "copy_p": "clone",
    "erf_inv": "erfinv",
    "integer_pow": "pow",
    "is_finite": "isfinite",
    "logistic": "sigmoid",
    "max": "maximum",
    "min": "minimum",
    "or": "logical_or",
    "reduce_precision": "to",
    "rem": "fmod",
    "select_n": "where",
    "shift_left": "lshift",
    "shift_right_arithmetic": "rshift",
    "shift_right_logical": "rshift",
    "stop_gradient": "detach",
    "xor": "logical_xor",
    # reductions
    "reduce_and": "all",
    "reduce_max": "amax",
    "reduce_min": "amin",
    "reduce_or": "any",
    "reduce_prod": "prod",
    "reduce_sum": "sum",
    "reduce_window_max": "pool_by_window",
    "reduce_window_min": "pool_by_window",
    "reduce_window_sum": "pool_by_window",
    # products
    "conv_general_dilated": "conv_general_dilated",
    "dot_general": "dot_general",
    # arranging
    "broadcast_in_dim": "broadcast_in_dim",
    "concatenate": "concatenate",
    "dynamic_slice": "narrow",
    "dynamic_update_slice": "concatenate",
    "expand_dims": "unsqueeze",
    "gather": "gather_slices",
    "rev": "flip",
    "scatter": "scatter",
    "scatter-add": "scatter",
    "slice": "narrow",
    "transpose": "permute",
    # created
    "iota": "arange",
    **dict.fromkeys(DRAWING | KEYS, "rand"),
}
