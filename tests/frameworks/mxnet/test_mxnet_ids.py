"""``compare`` of a Gluon block whose ids are floats, which is what ``nd.array`` makes, with PyTorch."""

import float_ids
import mxnet as mx
import pytest
from mxnet import nd
from mxnet.gluon import nn

import intus


class Net(mx.gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.emb = nn.Embedding(*float_ids.TABLE.shape)
            self.head = nn.Dense(3, flatten=False, use_bias=False, in_units=8)

    def hybrid_forward(self, F, ids):  # noqa: N803
        return self.head(self.emb(ids))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_changed_row_of_an_embedding_is_found_whatever_the_dtype_of_the_ids(dtype, tmp_path):
    net = Net()
    net.initialize()
    net.emb.weight.set_data(nd.array(float_ids.TABLE))
    net.head.weight.set_data(nd.array(float_ids.KERNEL.T))
    float_ids.check_twins(intus.trace(net, nd.array(float_ids.IDS, dtype=dtype)), tmp_path)
