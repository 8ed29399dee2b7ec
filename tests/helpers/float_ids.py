"""An embedding of ids that are floats, of one framework, and what is said of it and twins in PyTorch.

Other frameworks take ids as floats, those of the twins are integers, or floats that they convert. The ids are
the same whole numbers, so that no rounding changes what an embedding returns.
"""

import numpy as np
from torch_help import run_with_torch

#: What the row of the first id is multiplied by, and whether the ids of the twin are floats.
CASES = [(factor, floats) for factor in (1.0, 1.01, -1.0, 50.0) for floats in (False, True)]
_RANDOM = np.random.default_rng(0)
IDS = _RANDOM.integers(0, 20, (4, 6))
TABLE, KERNEL = (_RANDOM.normal(size=shape).astype(np.float32) for shape in ((20, 8), (8, 3)))


def check_twins(trace, folder):
    """Check that a right twin is never said to differ, and that a changed row is found in the embedding.

    Args:
        trace: The trace of a layer ``emb`` with ``TABLE`` and one with ``KERNEL``, given ``IDS`` as floats.
        folder: An empty folder.
    """
    trace.save(folder / "ids.trace")
    found = run_with_torch("import id_twins; id_twins.main()", folder / "ids.trace")
    for (factor, _), (apart, said) in zip(CASES, found, strict=True):
        assert (apart < 1e-5) == (factor == 1.0)
        for one in said:
            assert "amplified" not in one["text"], one["text"]
            assert one["module"] == ("" if factor == 1.0 else "emb"), one["text"]
            assert ("diverge" in one["text"]) == (factor != 1.0), one["text"]
