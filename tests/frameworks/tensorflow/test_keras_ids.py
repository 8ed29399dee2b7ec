"""``compare`` of a Keras model whose ids are floats, which is what ``keras.Input`` takes, with PyTorch."""

import float_ids
import keras
import pytest

import intus


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_changed_row_of_an_embedding_is_found_whatever_the_dtype_of_the_ids(dtype, tmp_path):
    ids, emb = keras.Input((6,), dtype=dtype), keras.layers.Embedding(*float_ids.TABLE.shape, name="emb")
    head = keras.layers.Dense(3, use_bias=False, name="head")
    model = keras.Model(ids, head(emb(ids)))
    emb.set_weights([float_ids.TABLE])
    head.set_weights([float_ids.KERNEL])
    float_ids.check_twins(intus.trace(model, float_ids.IDS.astype(dtype)), tmp_path)
