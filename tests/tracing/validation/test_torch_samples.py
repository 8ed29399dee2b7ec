"""Validation on the inputs with which torch tests its own operators: there are no false alarms."""

import itertools
import warnings

import pytest
import torch

import intus

pytest.importorskip("expecttest", reason="torch's own test inputs need it")
from torch.testing._internal.common_methods_invocations import op_db

#: Operators whose arguments have no effect on some of torch's inputs: clamped, saturated, of order 0, all
#: overwritten. Validation once reported them as failed.
ONCE_FALSE_ALARMS = {
    "minimum", "fmin", "maximum", "copysign", "nextafter", "histogram", "nn.functional.hardtanh",
    "nn.functional.hinge_embedding_loss", "nn.functional.margin_ranking_loss", "nn.functional.softmin",
    "nn.functional.triplet_margin_loss", "nn.functional.batch_norm", "nn.functional.prelu",
    "special.polygamma", "special.chebyshev_polynomial_t", "special.hermite_polynomial_h",
    "special.laguerre_polynomial_l", "linalg.matrix_power", "matrix_power", "linalg.norm",
    "linalg.vector_norm", "cdist", "linalg.pinv", "index_fill", "index_put", "index_add", "index_reduce",
    "slice_scatter", "select_scatter", "eq", "lt", "logical_and", "corrcoef", "fft.ihfftn",
    "svd_lowrank", "pca_lowrank",
    "nn.functional.grid_sample", "nn.functional.cross_entropy", "nn.functional.group_norm",
    "nn.functional.instance_norm", "nn.functional.scaled_dot_product_attention",
    "nn.functional.multi_head_attention_forward",
}  # fmt: skip
#: Besides these, every eighth operator is tested here.
STEP = 8
TESTED = [
    op
    for number, op in enumerate(op_db)
    if torch.float32 in op.dtypes and (op.name in ONCE_FALSE_ALARMS or number % STEP == 0)
]


def copied(value):
    """Return an argument with copies of its tensors, because operators may write into them."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def cases(op):
    """Yield an operator's forms with the first and the last of torch's inputs for it."""
    torch.manual_seed(0)
    samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=False), 12))
    for sample in [*samples[:2], *samples[2:][-1:]]:
        for function in (op.op, op.inplace_variant):
            arguments = (sample.input, *sample.args)
            try:
                function(*copied(arguments), **sample.kwargs)
            except Exception:  # torch itself refuses it: the operator has no such form, or not for this input
                continue
            yield function, arguments, sample.kwargs


@pytest.mark.long
@pytest.mark.parametrize("op", TESTED, ids=lambda op: f"{op.name}-{op.variant_test_name}".strip("-"))
def test_operator_is_valid(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of torch about its own inputs
        for function, arguments, kwargs in cases(op):
            reports = (
                intus.trace(function, copied(arguments), kwargs=kwargs).validate(),
                intus.validate(function, copied(arguments), kwargs=kwargs),
            )
            for report in reports:
                assert report, f"{arguments}: {report}"
            assert reports[1].fidelity.status in ("same", "not compared"), str(reports[1])
