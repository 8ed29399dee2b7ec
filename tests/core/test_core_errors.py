"""Error classes and the helpers that phrase their messages."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import intus
from intus.core import errors


@pytest.mark.parametrize(
    ("ours", "builtin"),
    [
        (errors.AddressError, KeyError),
        (errors.InputError, ValueError),
        (errors.CaptureError, RuntimeError),
        (errors.CodecError, ValueError),
        (errors.ServeError, OSError),
        (errors.MissingExtraError, ImportError),
    ],
)
def test_error_classes_derive_from_builtins(ours, builtin):
    error = ours("a sentence with 'quotes'")
    assert isinstance(error, builtin)
    assert isinstance(error, errors.IntusError)
    assert str(error) == "a sentence with 'quotes'"


def test_did_you_mean_suggests_nearest_three_names():
    known = ["conv2d_1_1", "conv2d_2_4", "conv2d_3_7", "conv2d_4_9", "relu_1_2"]
    sentence = errors.did_you_mean("conv2d_3", known)
    assert sentence.startswith("Did you mean 'conv2d_3_7'")
    assert sentence.count("'") == 6


def test_did_you_mean_counts_names_not_shown():
    assert errors.did_you_mean("???", [f"layer{i}" for i in range(20)]).endswith("'layer7' and 12 more.")


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=12))
def test_did_you_mean_is_a_sentence(name, known):
    assert errors.did_you_mean(name, known).endswith((".", "?"))


def test_missing_package_error_names_install_command():
    with pytest.raises(errors.MissingExtraError, match=r"pip install 'intus\[server\]'"):
        errors.require("no_such_package_of_ours", extra="server", why="to serve")


def test_pandas_is_installed_beside_mxnet_as_the_documentation_says(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(errors.importlib, "import_module", missing)
    monkeypatch.setattr(
        errors.importlib.util, "find_spec", lambda name: object() if name == "mxnet" else None
    )
    with pytest.raises(errors.MissingExtraError) as caught:
        errors.require("pandas", extra="inspect", why="to compare traces")
    command = str(caught.value).partition("Install it with: ")[2]
    page = Path(__file__).parents[2] / "docs" / "frameworks.md"
    assert "numpy" in command
    assert f"numpy of MXNet: `{command}`" in page.read_text(encoding="utf-8")


def test_package_that_is_installed_and_broken_is_not_said_to_be_missing(monkeypatch):
    def broken(name):
        raise ImportError("failed to map segment from shared object")

    monkeypatch.setattr(errors.importlib, "import_module", broken)
    with pytest.raises(errors.MissingExtraError, match="is installed, but cannot be imported: failed to map"):
        errors.require("numpy.linalg", extra="server", why="to score")


def required():
    """(package, extra, where) of every ``require`` in the sources."""
    root = Path(intus.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require":
                words = {word.arg: getattr(word.value, "value", "") for word in node.keywords}
                package = words.get("package") or node.args[0].value.partition(".")[0]
                yield package, words["extra"], f"{path.name}:{node.lineno}"


DISTRIBUTIONS = {"sklearn": "scikit-learn", "json": ""}


@pytest.mark.parametrize(("package", "extra", "where"), list(required()))
def test_required_package_is_installed_by_named_extra(package, extra, where):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extra in extras, where
    installs = [re.split(r"[\[<>=]", one)[0] for one in extras[extra]]
    assert DISTRIBUTIONS.get(package, package) in installs, where
