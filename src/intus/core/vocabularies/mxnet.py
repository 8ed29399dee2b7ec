"""The operations of MXNet 1.9, as symbols name them, without the underscore in front."""

from __future__ import annotations

import re

#: The names of operations that draw random numbers in every mode: some layers do so in training alone.
DRAWING = re.compile(
    r"""_*(random(?!_pdf) | sample | shuffle | (npx__)?image_random | contrib_dgl_csr_neighbor
    | npi_(random|uniform|normal|bernoulli|choice|multinomial|gamma|exponential|gumbel|logistic|pareto|powerd
    |rayleigh|weibull|shuffle))""",
    re.VERBOSE | re.IGNORECASE,
)
#: Operations on two arrays, which have several names in MXNet, and others with a number.
_BINARY = {
    **{name: name for name in ("add", "sub", "mul", "div", "maximum", "minimum", "hypot", "logical_and")},
    **{
        name: name for name in ("equal", "not_equal", "greater", "greater_equal", "logical_or", "logical_xor")
    },
    "equal": "eq",
    "lesser": "less",
    "lesser_equal": "less_equal",
    "minus": "sub",
    "mod": "fmod",
    "multiply": "mul",
    "plus": "add",
    "power": "pow",
    "rdiv": "div",
    "rminus": "sub",
    "rmod": "fmod",
    "rpower": "pow",
    "subtract": "sub",
    "true_divide": "div",
}
_UNARY = """
    abs ceil cos cosh erf erfinv exp expm1 floor log log10 log1p log2 logical_not negative relu round rsqrt
    sigmoid sign sin sinh softsign sqrt square tan tanh trunc reciprocal
"""
_SAME = """
    argmax argmin clip hard_sigmoid log_softmax max mean min norm one_hot prod softmax softmin squeeze sum
    take tile where zeros_like ones_like
"""
MXNET: dict[str, str] = {
    **{
        f"{kind}_{name}": common
        for name, common in _BINARY.items()
        for kind in ("elemwise", "broadcast", "npi")
    },
    **{f"{name}_scalar": common for name, common in _BINARY.items()},
    **{f"npi_{name}_scalar": common for name, common in _BINARY.items()},
    **{name: common for name, common in _BINARY.items() if name in ("maximum", "minimum", "hypot", "power")},
    **{f"{kind}{name}": name for name in _UNARY.split() for kind in ("", "npi_", "npx_")},
    **{name: name for name in _SAME.split()},
    **{f"np_{name}": name for name in ("sum", "max", "min", "prod")},
    # elementwise
    "Activation": "relu",
    "BlockGrad": "detach",
    "Cast": "to",
    "Dropout": "dropout",
    "LeakyReLU": "leaky_relu",
    "SoftmaxActivation": "softmax",
    "SoftmaxOutput": "softmax",
    "amp_cast": "to",
    "copy": "clone",
    "identity": "identity",
    # products
    "Convolution": "conv_by_layout",
    "Deconvolution": "conv_transpose_by_layout",
    "FullyConnected": "fully_connected",
    "RNN": "rnn_of_flat_weights",
    "batch_dot": "batch_dot",
    "dot": "dot_by_settings",
    # normalizations and pooling
    "BatchNorm": "batch_norm_by_axis",
    "GroupNorm": "group_norm",
    "InstanceNorm": "instance_normalization",
    "LayerNorm": "layer_normalization",
    "Pooling": "pool_by_layout",
    "npi_mean": "mean",
    # arranging
    "Concat": "concat",
    "Embedding": "embedding",
    "Flatten": "flatten",
    "Pad": "pad",
    "Reshape": "reshape",
    "SliceChannel": "split",
    "SwapAxis": "swapaxes",
    "broadcast_like": "expand_as",
    "broadcast_to": "expand",
    "expand_dims": "unsqueeze",
    "gather_nd": "gather_nd",
    "pick": "take_along_dim",
    "reverse": "flip",
    "rnn_param_concat": "cat",
    "slice": "narrow",
    "slice_axis": "narrow",
    "slice_like": "narrow",
    "stack": "stack",
    "transpose": "permute",
    # created
    "arange": "arange",
    "contrib_arange_like": "arange",
    "ones": "ones",
    "zeros": "zeros",
}
#: Operations whose ``act_type`` names the function that they compute.
WITH_FUNCTION = frozenset({"Activation", "LeakyReLU"})
#: The functions that ``act_type`` names otherwise than PyTorch and ONNX.
ACTIVATIONS = {"softrelu": "softplus", "leaky": "leaky_relu", "rrelu": "leaky_relu"}
