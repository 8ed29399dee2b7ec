"""The import law: which folder may import which, and that importing intus is fast."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import intus

ROOT = Path(intus.__file__).parent
CORE = {"core"}
FOLDERS = {
    "core": set(),
    "hypotheses": CORE,
    "scores": CORE,
    "engines": CORE | {"scores"},
    "storage": CORE,
    "backends": CORE,
    "reading": CORE,
    "viewing": CORE,
    "tracing": CORE | {"backends", "reading", "storage", "viewing"},
    "backends.framework": CORE | {"backends", "tracing"},  # tracing inside functions: a graph of torch
    "monitoring": CORE | {"backends", "storage"},
    "reporting": CORE | {"monitoring", "storage"},
    "monitoring.statistics": CORE
    | {"backends", "scores"},  # statistics that a server merges, made by a probe
    "serving": CORE | {"storage", "scores", "engines", "viewing"},
    "inspection": CORE | {"backends", "hypotheses", "storage", "scores", "engines", "tracing"},
}
#: Folders that one module alone uses: a probe makes statistics that a server merges.
MORE = {"intus.monitoring.statistics": {"scores"}}
#: Modules at the top: they may use everything.
TOP = {"__init__", "__main__", "callbacks", "cli", "demo", "examples"}
#: Packages that a folder must never import, also not inside functions.
FORBIDDEN = {
    "core": {"torch", "pandas", "sklearn", "scipy", "sqlalchemy", "starlette", "uvicorn", "safetensors"},
    "scores": {"torch", "sqlalchemy", "starlette", "uvicorn"},
    "engines": {"torch", "sklearn", "sqlalchemy", "starlette", "uvicorn"},
    "storage": {"torch", "sklearn", "starlette", "uvicorn"},
    "viewing": {"torch", "sklearn", "sqlalchemy", "starlette"},
    "monitoring": {
        *("torch", "tensorflow", "jax", "sklearn", "scipy", "pandas"),
        *("sqlalchemy", "starlette", "uvicorn", "msgspec"),
    },
    "serving": {"torch", "tensorflow", "jax"},
    "inspection": {"torch", "tensorflow", "jax", "starlette", "uvicorn"},
}


#: Packages that these folders alone import, apart from the modules at the top.
ONLY_IN = {
    "backends/jax": {"jax", "jaxlib", "flax", "equinox"},
    "backends/tensorflow": {"tensorflow", "keras"},
    "backends/mxnet": {"mxnet"},
    "reading/onnx": {"onnx", "onnxruntime"},
    "reading/mxnet": {"mxnet"},
}


def files():
    return sorted(ROOT.rglob("*.py"))


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path):
    """Yield (module, line) for everything a file imports, also inside functions.

    Modules of intus have their full names, and count also if imported for type checkers only.
    """
    package = module_name(path) if path.stem == "__init__" else module_name(path).rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import) or (isinstance(inner, ast.ImportFrom) and not inner.level)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield stem, node.lineno
            yield from ((f"{stem}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            arguments = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if arguments and isinstance(arguments[0], str):
                yield arguments[0].replace("..", "intus.", 1), node.lineno


def folder_of(name):
    """Return the folder of a module of intus; "backends.framework" for the folder of one framework."""
    parts = name.split(".")
    if parts[:2] == ["intus", "backends"] and parts[2:] and (ROOT / "backends" / parts[2]).is_dir():
        return "backends.framework"
    return parts[1] if parts[0] == "intus" and len(parts) > 1 else ""


@pytest.mark.long
def test_scan_finds_imports():
    found = {name for path in files() for name, _ in imports(path)}
    assert {"torch", "numpy", "intus.core.graph", "intus.storage.codec"} <= found
    assert len(files()) > 40


@pytest.mark.parametrize("path", files(), ids=module_name)
def test_import_law(path):
    folder = folder_of(module_name(path)) or "__init__"
    if folder in TOP:
        return
    assert folder in FOLDERS, f"{folder} is not in FOLDERS"
    for name, line in imports(path):
        used = folder_of(name)
        if used and used != folder:
            allowed = FOLDERS[folder] | MORE.get(module_name(path), set())
            assert used in allowed or (used in TOP and used == "__init__"), f"{path}:{line} uses {name}"
        assert name.split(".")[0] not in FORBIDDEN.get(folder, set()), f"{path}:{line} imports {name}"


@pytest.mark.parametrize("path", files(), ids=module_name)
def test_frameworks_are_imported_by_their_own_folder(path):
    place = path.relative_to(ROOT).as_posix()
    own = {one for folder, some in ONLY_IN.items() if place.startswith(f"{folder}/") for one in some}
    elsewhere = {one for some in ONLY_IN.values() for one in some} - own
    used = {name.partition(".")[0] for name, _ in imports(path)}
    assert not used & elsewhere or place.partition("/")[0] in TOP


@pytest.mark.parametrize("path", sorted((ROOT / "backends").rglob("*.py")), ids=module_name)
def test_backends_import_tracing_inside_functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = [
        node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 3
    ]
    assert not [module for module in modules if module.partition(".")[0] == "tracing"]


@pytest.mark.parametrize("path", sorted((ROOT / "tracing" / "capture").rglob("*.py")), ids=module_name)
def test_capture_imports_no_other_tracing_folder(path):
    """One exception: live.py imports Op, to know which attributes a finished op has."""
    used = {name for name, _ in imports(path) if name.startswith("intus.tracing.")}
    later = {name for name in used if not name.startswith("intus.tracing.capture")}
    assert later <= (
        {"intus.tracing.results.op", "intus.tracing.results.op.Op"} if path.stem == "live" else set()
    )


def test_import_law_has_no_cycle():
    done = set()
    while ready := {folder for folder, uses in FOLDERS.items() if folder not in done and uses <= done}:
        done |= ready
    assert done == set(FOLDERS)


@pytest.mark.long
def test_no_import_cycles():
    """Modules import each other in one direction only, except for imports inside functions."""
    graph = {}
    for path in files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lazy = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.If)
            for inner in ast.walk(node)
        }
        package = module_name(path) if path.stem == "__init__" else module_name(path).rpartition(".")[0]
        graph[module_name(path)] = {
            ".".join([*package.split(".")[: len(package.split(".")) - node.level + 1], node.module or ""])
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.level and id(node) not in lazy
        }
    done = set()
    names = set(graph)
    while ready := {name for name in names - done if graph[name] & names <= done | {name}}:
        done |= ready
    assert names == done, f"a cycle among {sorted(names - done)}"


HEAVY = [
    *("torch", "tensorflow", "jax", "sklearn", "scipy", "pandas"),
    *("sqlalchemy", "starlette", "uvicorn", "msgspec", "matplotlib", "quickjs", "_quickjs"),
]


def child(code):
    """Run code in a fresh interpreter; return the modules it loaded and the CPU seconds it took."""
    script = (
        "import sys, json, resource\n"
        "used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])\n"
        f"before = used()\n{code}\n"
        "print(json.dumps([sorted(m for m in sys.modules if '.' not in m), used() - before]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded, seconds = json.loads(done.stdout)
    return set(loaded), seconds


def test_import_intus_is_light():
    loaded, seconds = child("import intus")
    assert not loaded & {*HEAVY, "numpy"}
    best = min([seconds, *(child("import intus")[1] for _ in range(2))])
    assert best < 0.150


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "never"),
    [
        ("import intus.monitoring", HEAVY),
        ("import intus.core.graph, intus.core.results, intus.core.selection", HEAVY),
        ("import intus.storage.codec", HEAVY),
        ("import intus.viewing.html", HEAVY),
        ("import intus.serving.run", ["torch", "tensorflow", "jax"]),
        ("import intus.serving.http.app", ["torch", "tensorflow", "jax"]),
        ("import intus.scores", ["torch", "pandas", "sqlalchemy", "starlette"]),
        ("import intus.serving.evaluation.scoring", ["torch", "pandas", "sqlalchemy", "starlette"]),
        ("import intus.backends", HEAVY),
        ("import intus.cli", HEAVY),
        ("import intus.engines, intus.serving.options", [*HEAVY, "numpy"]),
        ("import intus.demo.run", [*HEAVY, "numpy"]),  # it starts the processes that compute
    ],
)
def test_imports_load_no_unneeded_packages(code, never):
    loaded, _ = child(code)
    assert not loaded & set(never)


def test_few_public_names_with_docstrings():
    assert len(intus.__all__) <= 32
    for name in intus.__all__:
        assert getattr(intus, name).__doc__, name
    assert {*intus.__all__, "__version__"} <= set(dir(intus))


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="has no attribute 'tracer'"):
        _ = intus.tracer
