"""``torch.onnx.export`` of a probed model writes the file that it writes of the model without a probe."""

import io

import onnx
import pytest
import torch
from torch import nn

from intus.backends.torch import TorchBackend
from intus.core.record import KINDS

pytestmark = pytest.mark.filterwarnings("ignore")  # of the exporters
X = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))


class Count:
    """A tap that counts passes and errors."""

    def __init__(self):
        self.passes, self.errors = 0, []

    def on_forward_start(self, inputs):
        self.passes += 1

    def wants(self, operation):
        return True

    def on_tensor(self, ticket, seen):
        seen.copy(None, 0)

    def on_forward_end(self, output):
        pass

    def on_error(self, error):
        self.errors.append(error)


def network():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    return nn.Sequential(body, nn.Linear(64, 3)).eval()


def exported(model, *, dynamo):
    if dynamo:
        program = torch.onnx.export(model, (X,), dynamo=True, verbose=False)
        return program.model_proto
    torch.onnx.export(model, (X,), file := io.BytesIO(), dynamo=False)
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("dynamo", [False, True], ids=["by tracing", "by torch.export"])
@pytest.mark.parametrize("is_called", [False, True], ids=["before the first call", "after it"])
def test_exported_file_is_that_of_the_model_alone(dynamo, is_called):
    """Before, the exporter by tracing failed with an internal assertion of torch."""
    plain, model, tap, backend = network(), network(), Count(), TorchBackend()
    handle = backend.attach(model, backend.operations(model), KINDS, tap)
    for one in (plain, model) if is_called else ():
        one(X)
    expected, found = (exported(one, dynamo=dynamo) for one in (plain, model))
    onnx.checker.check_model(found)
    assert found.graph.node
    assert found.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)
    assert (tap.passes, tap.errors) == (int(is_called), [])
    handle.remove()
