"""Families of operations, by the names that PyTorch and ONNX give to them: views, dropouts, comparisons.

What more than one analysis asks of an operation is stated here once; what one alone asks stands beside it.
Types of other frameworks are translated to these names first (``common_types``).
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Comparisons of two numbers, with one name for those that differ where these are equal, or never.
COMPARISONS: dict[str, str] = {
    **dict.fromkeys(("lt", "gt", "less", "greater"), "strict"),
    **dict.fromkeys(
        ("le", "ge", "less_or_equal", "less_equal", "greater_or_equal", "greater_equal"), "not strict"
    ),
    **dict.fromkeys(("eq", "equal"), "equal"),
    **dict.fromkeys(("ne", "not_equal"), "unequal"),
}
#: Operations that return whole numbers for fractions.
ROUNDING = _names("floor ceil round trunc fix floordiv floor_divide")
SIGNS = _names("sign sgn")
#: Operations of which a number is a bound: the cases of what they compute begin there.
OF_BOUNDS = _names("""
    maximum minimum fmax fmin max min clamp clamp_min clamp_max clip hardtanh hardshrink softshrink
""")
#: Operations on each element.
ELEMENTWISE = frozenset(COMPARISONS) | _names("""
    add sub rsub subtract mul multiply div divide true_divide floordiv floor_divide remainder fmod mod pow
    float_power neg negative abs absolute sign sgn signbit copysign square squared_difference sqrt rsqrt
    reciprocal exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 xlogy sin cos tan asin acos atan atan2
    sinh cosh tanh asinh acosh atanh sinc deg2rad rad2deg hypot erf erfc erfinv lgamma digamma polygamma
    mvlgamma igamma igammac i0 floor ceil round trunc frac frexp ldexp nextafter gcd lcm
    clamp clip clamp_min clamp_max maximum minimum fmax fmin nan_to_num heaviside
    sigmoid logit softplus softsign tanhshrink logsigmoid log_sigmoid relu relu6 leaky_relu prelu rrelu elu
    selu celu gelu silu swish mish hardtanh hardswish hard_swish hardsigmoid hard_sigmoid hardshrink
    softshrink threshold
    logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not
    bitwise_left_shift bitwise_right_shift lshift rshift and or xor not
    isclose isnan is_nan isinf is_inf isposinf isneginf isfinite isreal where masked_fill
    lerp addcmul addcdiv add_to_channels angle complex polar conj_physical
""")
#: Operations that return what they are given, but in training.
DROPOUTS = _names("""
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout
""")
#: Normalizations by the statistics of a batch, and all normalizations.
BATCH_NORMS = _names("batch_norm batch_normalization batch_norm_by_axis batch_norm_to_last")
NORMS = BATCH_NORMS | _names("""
    layer_norm layer_normalization simplified_layer_normalization group_norm group_normalization
    instance_norm instance_normalization rms_norm rms_normalization
""")
SOFTMAXES = _names("softmax log_softmax softmin")
#: Recurrent layers of PyTorch.
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
MAX_POOLS = ("max_pool1d", "max_pool2d", "max_pool3d")
AVERAGE_POOLS = ("avg_pool1d", "avg_pool2d", "avg_pool3d")

#: Operations that return another view of the memory of their first argument.
VIEWS = _names("""
    T mT H mH t numpy_T matrix_H adjoint transpose swapaxes swapdims permute movedim moveaxis
    view view_as _unsafe_view _reshape_alias unflatten squeeze unsqueeze atleast_1d atleast_2d atleast_3d
    expand expand_as broadcast_to broadcast_tensors meshgrid as_strided
    select narrow slice unbind split split_with_sizes chunk tensor_split hsplit vsplit dsplit
    diagonal linalg_diagonal unfold
    alias detach lift_fresh positive real imag view_as_real view_as_complex
    conj _conj _neg_view resolve_conj resolve_neg
""")
#: Those whose numbers are others than those in the memory.
_TURNING = _names("conj _conj _neg_view")
#: Operations that return a view where the strides allow it, otherwise a copy.
RESHAPES = _names("flatten ravel reshape reshape_as")
#: Operations that return the same numbers in another dtype.
CASTS = _names("""
    to type type_as cast astype convert_element_type double float half bfloat16 long int short byte char bool
    cdouble cfloat chalf
""")
#: Operations that read of a tensor its shape alone.
SHAPES = _names("shape size")
#: Operations that return a tensor like their first argument, of which they read no number.
LIKE_FIRST = _names("""
    zeros_like ones_like empty_like full_like rand_like randn_like randint_like
    new new_zeros new_ones new_empty new_empty_strided new_full new_rand new_randn new_randint new_tensor
""")
#: Operations that return their first argument like the others, of which they read no number.
LIKE_OTHERS = _names("expand_as view_as reshape_as type_as to sum_to_size resize_as")
#: Operations that write numbers over all of their first argument.
OVERWRITING = _names("copy fill zero")
#: Operations that write drawn numbers over all of their first argument.
DRAWING_OVER = _names("random uniform normal log_normal cauchy exponential geometric bernoulli")
#: Operations that draw random numbers in every mode; a dropout and others do so in training alone.
DRAWING = DRAWING_OVER | _names("""
    rand randn randint randperm rand_like randn_like randint_like new_rand new_randn new_randint
    multinomial binomial poisson normal_functional _standard_gamma _sample_dirichlet
    random_normal random_uniform random_normal_like random_uniform_like
""")
#: Operations that return no negative number, whatever they are given.
NOT_NEGATIVE = _names("""
    abs absolute square squared_difference exp exp2 cosh erfc i0 sqrt rsqrt hypot softplus
    sigmoid hardsigmoid hard_sigmoid softmax softmin var std var_mean std_mean cdist
    norm vector_norm linalg_norm linalg_vector_norm reduce_l1 reduce_l2 reduce_sum_square
""")
#: Operations that copy, view, look up or create values, and compute none.
MOVES = (VIEWS - _TURNING).union(RESHAPES, CASTS, SHAPES, LIKE_FIRST, DRAWING_OVER) | _names("""
    flip fliplr flipud roll rot90 repeat tile repeat_interleave repeat_kv
    cat concat concatenate stack hstack vstack dstack column_stack pad tril triu diag
    getitem setitem gather scatter index_select index_put index_copy index_fill take take_along_dim
    masked_select masked_scatter embedding one_hot nonzero item
    cpu cuda clone contiguous copy data zero fill set_data requires_grad pin_memory identity lift_fresh_copy
    zeros ones empty full rand randn randint randperm arange linspace tensor as_tensor
    pixel_shuffle pixel_unshuffle channel_shuffle
    constant_of_shape gather_elements gather_nd scatter_elements scatter_nd depth_to_space space_to_depth
    broadcast_in_dim gather_slices reorder_input reorder_output
""")
