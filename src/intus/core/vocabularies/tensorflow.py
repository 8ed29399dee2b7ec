"""The operations of TensorFlow, as its graphs name them."""

from __future__ import annotations

import re

#: The names of operations that draw random numbers, or make the state from which others draw.
DRAWING = re.compile(
    r"""(?!RandomGammaGrad).*(Random | TruncatedNormal | Multinomial | CandidateSampler)
    | Stateful(Uniform|StandardNormal) | Rng | XlaRng | NonDeterministicInts
    | (Stateless)?SampleDistortedBoundingBox | StatelessShuffle""",
    re.VERBOSE,
)
#: Operations whose name is the common one, but for capitals.
_SAME = """
    Abs Acos Acosh Asin Asinh Atan Atan2 Atanh Ceil Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 Floor
    Gelu Greater Less Lgamma Log Log1p Maximum Minimum Mul Neg Pow Reciprocal Relu Relu6 Round
    Rsqrt Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Square Squeeze Sub Tan Tanh
    All Any Cumprod Cumsum Max Mean Min Prod Sum
    Cast Concat Fill Gather Identity Pack Pad Reshape Shape Slice Split Tile
"""
_COMMON = {"Gather": "gather_slices", "Pack": "stack", "Slice": "narrow", "Split": "split"}
TENSORFLOW: dict[str, str] = {
    **{name: _COMMON.get(name, name.lower()) for name in _SAME.split()},
    # elementwise
    "Add": "add",
    "AddN": "add",
    "AddV2": "add",
    "BiasAdd": "add_to_channels",
    "BiasAddV1": "add_to_channels",
    "ClipByValue": "clip",
    "Div": "div",
    "DivNoNan": "div",
    "Equal": "eq",
    "FloorDiv": "floordiv",
    "FloorMod": "remainder",
    "GreaterEqual": "greater_equal",
    "LeakyRelu": "leaky_relu",
    "IsFinite": "isfinite",
    "IsNan": "isnan",
    "LessEqual": "less_equal",
    "LogSoftmax": "log_softmax",
    "LogicalAnd": "logical_and",
    "LogicalNot": "logical_not",
    "LogicalOr": "logical_or",
    "NotEqual": "not_equal",
    "PreventGradient": "detach",
    "RealDiv": "div",
    "Select": "where",
    "SelectV2": "where",
    "SquaredDifference": "squared_difference",
    "StopGradient": "detach",
    "Xdivy": "div",
    # reductions
    "ArgMax": "argmax",
    "ArgMin": "argmin",
    # products
    "BatchMatMul": "matmul_by_settings",
    "BatchMatMulV2": "matmul_by_settings",
    "BatchMatMulV3": "matmul_by_settings",
    "Conv2D": "conv_to_last",
    "Conv2DBackpropInput": "conv_transpose_to_last",
    "Conv3D": "conv_to_last",
    "Conv3DBackpropInputV2": "conv_transpose_to_last",
    "DepthwiseConv2dNative": "conv_of_each_channel",
    "Einsum": "einsum_by_settings",
    "MatMul": "matmul_by_settings",
    # normalizations and pooling
    "AvgPool": "pool_to_last",
    "AvgPool3D": "pool_to_last",
    "FusedBatchNormV2": "batch_norm_to_last",
    "FusedBatchNormV3": "batch_norm_to_last",
    "MaxPool": "pool_to_last",
    "MaxPool3D": "pool_to_last",
    # arranging
    "BatchToSpaceND": "view",
    "BroadcastTo": "expand",
    "ConcatV2": "concat",
    "EnsureShape": "identity",
    "ExpandDims": "unsqueeze",
    "GatherNd": "gather_nd",
    "GatherV2": "gather_slices",
    "MirrorPad": "pad",
    "PadV2": "pad",
    "ResourceGather": "embedding",
    "ReverseV2": "flip",
    "SpaceToBatchND": "view",
    "SplitV": "split",
    "StridedSlice": "getitem",
    "Transpose": "permute",
    "Unpack": "unbind",
    # created
    "OneHot": "one_hot",
    "OnesLike": "ones_like",
    "RandomUniform": "rand",
    "Range": "arange",
    "StatelessRandomUniformV2": "rand",
    "StatelessRandomNormalV2": "rand",
    "ZerosLike": "zeros_like",
}
