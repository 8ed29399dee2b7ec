"""``compare`` of an NNX module that converts ids, with PyTorch."""

import float_ids
import jax.numpy as jnp
import pytest
from flax import nnx

import intus


class Net(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.emb = nnx.Embed(*float_ids.TABLE.shape, rngs=rngs)
        self.head = nnx.Linear(*float_ids.KERNEL.shape, use_bias=False, rngs=rngs)
        self.emb.embedding[...] = jnp.asarray(float_ids.TABLE)
        self.head.kernel[...] = jnp.asarray(float_ids.KERNEL)

    def __call__(self, ids):
        return self.head(self.emb(ids.astype("int32")))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_changed_row_of_an_embedding_is_found_whatever_the_dtype_of_the_ids(dtype, tmp_path):
    float_ids.check_twins(intus.trace(Net(), jnp.asarray(float_ids.IDS, dtype)), tmp_path)
