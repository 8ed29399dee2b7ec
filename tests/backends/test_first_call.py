"""The callback after a model's first call."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

from intus.backends.torch.first_call import FirstCall, after_first_call

SLOT = "_compiled_call_impl"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.error = nn.Linear(3, 2), None

    def forward(self, x):
        if self.error:
            raise self.error
        return self.linear(x)


class PicklesEverything(Net):
    """A model whose pickle contains every attribute."""

    def __getstate__(self):
        return self.__dict__.copy()


X = torch.ones(4, 3)


@pytest.mark.parametrize("error", [None, ValueError("v"), KeyboardInterrupt("k"), SystemExit(2)])
def test_listener_runs_once_however_first_call_ends(error):
    net, calls = Net(), []
    expected, before = net(X), list(vars(net))
    after_first_call(net, lambda: calls.append(list(vars(net))))
    net.error = error
    if error is None:
        assert torch.equal(net(X), expected)
    else:
        with pytest.raises(type(error)) as raised:
            net(X)
        assert raised.value is error
    assert calls == [before]
    net.error = None
    assert torch.equal(net(X), expected)
    assert calls == [before]


def test_cancelling_last_listener_restores_model():
    net, calls = Net(), []
    before = list(vars(net))
    one, other = (after_first_call(net, lambda name=name: calls.append(name)) for name in "ab")
    one()
    assert SLOT in vars(net)
    other()
    assert list(vars(net)) == before
    net(X)
    assert calls == []


def test_cancelling_during_call_still_runs_listener():
    net, calls = Net(), []
    undo = after_first_call(net, lambda: calls.append(1))
    net.linear.register_forward_hook(lambda *args: undo())
    net(X)
    assert calls == [1]


@pytest.mark.parametrize("cls", [Net, PicklesEverything])
@pytest.mark.parametrize("twin", [copy.deepcopy, copy.copy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_have_no_first_call(cls, twin):
    net, calls = cls(), []
    expected = net(X)
    after_first_call(net, lambda: calls.append(1))
    other = twin(net)
    assert torch.equal(other(X), expected)
    if not (cls is PicklesEverything and twin is copy.copy):  # shares every attribute with the original
        assert calls == []
    assert isinstance(vars(net).get(SLOT), FirstCall) == (not calls)
    assert vars(other).get(SLOT) is None


def test_data_parallel_replica_uses_its_parameters():
    net, calls = Net(), []
    after_first_call(net, lambda: calls.append(1))
    replica = net._replicate_for_data_parallel()  # as DataParallel does for each device
    replica.linear = nn.Linear(3, 2)
    assert torch.equal(replica(X), replica.linear(X))
    assert calls == [1]


def test_compile_with_pending_first_call():
    net = Net()
    net.register_forward_hook(lambda *args: None)
    expected = net(X)
    after_first_call(net, lambda: None)
    assert torch.equal(torch.compile(net, backend="eager", fullgraph=True)(X), expected)
    torch._dynamo.reset()


def test_model_compiled_in_place_is_unchanged():
    net = Net()
    net.compile(backend="eager")
    slot = vars(net)[SLOT]
    after_first_call(net, lambda: None)()
    assert vars(net)[SLOT] is slot
    later = Net()
    undo = after_first_call(later, lambda: None)
    later.compile(backend="eager")
    slot = vars(later)[SLOT]
    undo()
    assert vars(later)[SLOT] is slot


def test_first_call_keeps_no_reference():
    net = Net()
    after_first_call(net, lambda: None)
    ref = weakref.ref(net)
    gc.collect()
    gc.disable()
    try:
        del net
        assert ref() is None
    finally:
        gc.enable()
