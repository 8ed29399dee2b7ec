"""Each extra alone does its part, in fresh interpreters that cannot import the others; the sdist."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
#: The modules that the packages of each extra provide.
MODULES = {
    "torch": {"torch", "quickjs"},
    "server": {"re2", "msgspec", "sklearn", "scipy", "sqlalchemy", "starlette", "uvicorn", "threadpoolctl"},
    "inspect": {"loky", "cloudpickle", "pandas", "sklearn", "scipy", "sqlalchemy"},
    "query": {"duckdb", "loky", "cloudpickle", "pandas", "sklearn", "scipy", "sqlalchemy"},
    "attribution": {"captum"},
    "draw": {"quickjs", "matplotlib"},
    "widget": {"anywidget"},
    "graph": {"networkx"},
    "onnx": {"onnx", "onnxruntime"},
    "hypotheses": {"nltk"},
    "progress": {"tqdm"},
}


def run(code, *extras):
    """Run code with the packages of some extras only; return the exit code, output and error output."""
    wanted = set().union(*(MODULES[extra] for extra in extras))
    blocked = sorted(set().union(*MODULES.values()) - wanted)
    start = f"import sys; sys.modules.update(dict.fromkeys({blocked}))\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", start + code], capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


def command(words, *extras):
    return run(f"from intus.cli import main; sys.exit(main({words!r}.split()))", *extras)


def test_modules_of_every_extra_are_known():
    names = {"ray", "postgres", "all", "dev"}  # each has tests of its own
    assert set(EXTRAS) - names == set(MODULES)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            "demo",
            "intus demo needs torch, pandas, msgspec, re2, scipy, sklearn, sqlalchemy, starlette, uvicorn",
        ),
        ("serve", "intus serve needs msgspec, re2, scipy, sklearn, sqlalchemy, starlette, uvicorn"),
        ("examples", "intus examples needs torch, sklearn"),
        ("view net.py:Net", "intus view needs torch"),
    ],
)
def test_command_without_extras_names_the_extra(words, what):
    code, out, error = command(words)
    assert (code, out) == (1, "")
    assert error.startswith(f"intus: {what}, which ")
    assert error.count("\n") == 1
    extra = {"serve": "server", "view": "torch"}.get(words.split()[0], "all")
    assert error.endswith(f"pip install 'intus[{extra}]'\n")


def test_demo_with_torch_alone_names_the_rest():
    code, _, error = command("demo", "torch")
    assert code == 1
    assert error.startswith("intus: intus demo needs pandas, msgspec, ")


def test_names_without_extras():
    script = """
import intus
from intus import Trace, flush, probe, trace, view
from intus.core.errors import MissingExtraError
assert all(hasattr(intus, name) for name in intus.__all__)
assert not isinstance(3, Trace) and not hasattr(trace, "nothing")
for name, extra in [("trace", "torch"), ("view", "torch"), ("validate", "torch"), ("serve", "server")]:
    try:
        getattr(intus, name)(len, [2])
    except MissingExtraError as error:
        assert str(error).startswith(f"intus.{name} needs "), error
        assert str(error).endswith(f", which is not installed. Install it with: pip install 'intus[{extra}]'")
        assert error.__cause__ is error.__context__ is None
    else:
        raise AssertionError(name)
import pydoc
assert "serve" in pydoc.render_doc(intus)
"""
    assert run(script) == (0, "", "")


@pytest.mark.long
def test_torch_alone_traces_views_and_draws(tmp_path):
    script = f"""
import torch, intus
net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
t = intus.trace(net, torch.ones(2, 4))
assert intus.validate(net, torch.ones(2, 4)) and t.validate()
intus.view(net, torch.ones(2, 4)).save({str(tmp_path / "net.html")!r})
t.draw({str(tmp_path / "net.svg")!r})
t.save({str(tmp_path / "net.trace")!r})
assert intus.load({str(tmp_path / "net.trace")!r})["1"].value.equal(t["1"].value)
acts = intus.collect(net, [torch.ones(2, 4)], ["0"], {str(tmp_path / "a.safetensors")!r})
assert acts["0"].shape == (2, 3)
"""
    assert run(script, "torch") == (0, "", "")
    assert (tmp_path / "net.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "</html>" in (tmp_path / "net.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_sdist_holds_what_the_tests_import():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all(one.startswith("/") and (ROOT / one[1:]).exists() for one in listed)  # anchored at the root
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom | ast.Import)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    folders = {one.name for one in ROOT.iterdir() if one.is_dir()} & imported
    assert {"gallery", "sweep"} <= folders
    assert {f"/{name}" for name in folders | {"src", "tests", "docs"}} == {
        one for one in listed if (ROOT / one[1:]).is_dir()
    }
