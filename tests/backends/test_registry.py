"""The registry of backends."""

from __future__ import annotations

import subprocess
import sys

import pytest
from torch import nn

from intus.backends import base
from intus.core.errors import InputError


def test_torch_module_has_torch_backend():
    assert base.for_model(nn.Linear(2, 2)).name == "torch"


@pytest.mark.parametrize("model", [[1], None, "resnet", nn.Linear])
def test_unsupported_model_error_names_type_and_frameworks(model):
    with pytest.raises(InputError, match=rf"{type(model).__qualname__} cannot be observed.*torch"):
        base.for_model(model)


@pytest.mark.parametrize("other", ["torch.nn.modules", "flax.nnx.module"])
def test_nearest_base_decides(other):
    """A layer of Keras on PyTorch is a module of PyTorch too, and on Flax one of Flax."""
    module = type("Module", (), {"__module__": other})
    layer = type("Layer", (module,), {"__module__": "keras.src.layers.layer"})
    model = type("Net", (layer,), {"__module__": "__main__"})
    assert base.frameworks_of(model) == ["keras", other.partition(".")[0]]


def test_lookup_imports_no_framework():
    code = (
        "import sys\n"
        "from intus.backends import base\n"
        "try: base.for_model(object())\n"
        "except ValueError: pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_register_class_and_import_path(monkeypatch):
    monkeypatch.setattr(base, "_BACKENDS", dict(base._BACKENDS))

    class Mine:
        name = "mine"

        def owns(self, model):
            return True

    model = type("Net", (), {"__module__": "mine.models"})()
    base.register("mine", Mine)
    assert isinstance(base.for_model(model), Mine)
    base.register("mine", f"{__name__}:Later")
    assert isinstance(base.for_model(model), Later)


def test_entry_point_declares_framework(monkeypatch):
    class Point:
        name = "mine"

        def load(self):
            return Later

    monkeypatch.setattr(base, "entry_points", lambda **given: [Point()])
    monkeypatch.syspath_prepend("where packages are looked for")  # what is installed elsewhere is read anew
    assert isinstance(base.for_model(type("Net", (), {"__module__": "mine"})()), Later)


class Later:
    name = "mine"

    def owns(self, model):
        return True


@pytest.mark.parametrize("kinds", [(), ["outputs"], "gradient"])
def test_unknown_or_no_kinds_are_refused(kinds):
    with pytest.raises(InputError, match=r"kinds must be one or more of output, input, .* got "):
        base.check_kinds(kinds)
