"""The guard of a model's first call: told however the call ends, gone after it, in nobody's way."""

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


class Keeps(Net):
    """Pickles all it has, as a class may."""

    def __getstate__(self):
        return self.__dict__.copy()


X = torch.ones(4, 3)


@pytest.mark.parametrize("error", [None, ValueError("v"), KeyboardInterrupt("k"), SystemExit(2)])
def test_the_first_call_is_told_of_however_it_ends_and_the_second_is_not(error):
    net, told = Net(), []
    expected, before = net(X), list(vars(net))
    after_first_call(net, lambda: told.append(list(vars(net))))
    net.error = error
    if error is None:
        assert torch.equal(net(X), expected)
    else:
        with pytest.raises(type(error)) as raised:
            net(X)
        assert raised.value is error
    assert told == [before]
    net.error = None
    assert torch.equal(net(X), expected)
    assert told == [before]


def test_it_goes_when_the_last_who_asked_takes_it_back():
    net, told = Net(), []
    before = list(vars(net))
    one, other = (after_first_call(net, lambda name=name: told.append(name)) for name in "ab")
    one()
    assert SLOT in vars(net)
    other()
    assert list(vars(net)) == before
    net(X)
    assert told == []


def test_who_takes_it_back_during_the_call_is_told_all_the_same():
    net, told = Net(), []
    undo = after_first_call(net, lambda: told.append(1))
    net.linear.register_forward_hook(lambda *args: undo())
    net(X)
    assert told == [1]


@pytest.mark.parametrize("cls", [Net, Keeps])
@pytest.mark.parametrize("twin", [copy.deepcopy, copy.copy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_are_their_own(cls, twin):
    net, told = cls(), []
    expected = net(X)
    after_first_call(net, lambda: told.append(1))
    other = twin(net)
    assert torch.equal(other(X), expected)
    if not (cls is Keeps and twin is copy.copy):  # which shares all that its original has
        assert told == []
    assert isinstance(vars(net).get(SLOT), FirstCall) == (not told)
    assert vars(other).get(SLOT) is None


def test_a_replica_runs_with_its_own_parameters():
    net, told = Net(), []
    after_first_call(net, lambda: told.append(1))
    replica = net._replicate_for_data_parallel()  # what DataParallel makes for each device
    replica.linear = nn.Linear(3, 2)
    assert torch.equal(replica(X), replica.linear(X))
    assert told == [1]


def test_compiling_goes_through_it():
    net = Net()
    net.register_forward_hook(lambda *args: None)
    expected = net(X)
    after_first_call(net, lambda: None)
    assert torch.equal(torch.compile(net, backend="eager", fullgraph=True)(X), expected)
    torch._dynamo.reset()


def test_a_model_compiled_in_place_is_left_alone():
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


def test_it_keeps_no_model_alive():
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
