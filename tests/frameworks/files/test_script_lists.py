"""Lists and dicts in TorchScript: edges lead from what is in them. torch's runs judge generated programs."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import intus
from intus.core.graph import INPUT, OUTPUT

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated")

_number = itertools.count()


def compiled(source):
    """Compile the source of a method ``forward``."""
    module = type(f"Program{next(_number)}", (torch.jit.ScriptModule,), {})()
    module.define(source)
    return module


def reached(graph):
    """Return for every row the numbers of the inputs from which edges lead to it."""
    found = [set() for _ in graph.ops.kind]
    for number, row in enumerate(np.flatnonzero(graph.ops.kind == INPUT)):
        found[row].add(number)
    for edge in np.argsort(graph.edges.dst, kind="stable"):
        found[graph.edges.dst[edge]] |= found[graph.edges.src[edge]]
    return found


def parents(trace, label):
    """Return the types of what an operation reads."""
    return [one.type for one in trace[label].parents]


def output_names(trace):
    return trace.graph.facts["outputs"]


# -- generated programs --------------------------------------------------------------------------------


_READS = {
    "add": "{t} + {u}",
    "get": "{l}[{i}] + {t} if len({l}) > {i} else {t} + {t}",
    "last": "{l}[len({l}) - 1] + {t}",
    "key": "{d}['{k}'] + {t} if '{k}' in {d} else {t} + {t}",
    "default": "{d}.get('{k}', {t})",
    "set default": "{d}.setdefault('{k}', {t})",
    "pop key": "{d}.pop('{k}', {t})",
    "stack": "torch.stack({l}).sum(0) + {t}",
    "values": "torch.stack(list({d}.values()) + [{t}]).sum(0)",
}
_WRITES = {
    "append": "{l}.append({t})",
    "insert": "{l}.insert({i}, {t})",
    "set": "if len({l}) > 1:\n    {l}[{i} - 1] = {t}",
    "pop": "if len({l}) > 1:\n    {l}.pop(0)",
    "extend": "{l}.extend({m}[:2])",
    "add to": "{l} += [{t}]",
    "reverse": "{l}.reverse()",
    "set key": "{d}['{k}'] = {t}",
    "update": "{d}.update({e})",
    "pop item": "if len({d}) > 0:\n    {d}.popitem()",
    "write": "{t}.add_({u})",
    "name again": "{l} = {m}",
    "each value": "for key, v in {d}.items():\n    u0 = u0 + v\n    break",
}
_LISTS = {
    "list": "[{t}, {u}]",
    "slice": "{l}[1:] + [{t}]",
    "sum": "{l}[:3] + {m}[:3]",
    "alias": "{l}",
    "nested": "[{m}, {l}][{i} - 1]",
}
_DICTS = {"dict": "{{'{k}': {t}}}", "copy": "{d}.copy()"}
#: A loop runs at most once, so that no edge is missing that would lead from one iteration to the next.
_CONTROL = {
    "if": "if bool({c}.sum() > 0):",
    "else": "if bool({c}.sum() > 0):",
    "length": "if len({l}) > {i}:",
    "contains": "if '{k}' in {d}:",
    "for": "for j in range(int({c}.sum()) + 1):",
    "once": "for j in range(1):",
    "list loop": "for w in {l}[:1]:",
}


@st.composite
def programs(draw, *, control):
    """Return the source of a program; without ``control``, everything in its lists and dicts is known."""
    lines = [
        "u0 = x0 + x0",
        "u1 = x1 + x1",
        "l = [x0]",
        "m = [u0]",
        "d: Dict[str, Tensor] = {}",
        "e = {'a': x2}",
    ]
    names = itertools.count()

    def pick(values):
        return draw(st.sampled_from(list(values)))

    def block(tensors, lists, dicts, indent, most, depth):
        tensors, lists, dicts = list(tensors), list(lists), list(dicts)
        tables = [_READS, _WRITES, _LISTS, _DICTS, *([_CONTROL] if control and depth < 2 else [])]
        for _ in range(draw(st.integers(1, most))):
            table = pick(tables)
            kind = pick(table)
            made = [name for name in tensors if name[0] == "t"] or ["u1"]
            words = {
                "t": pick(made if kind == "write" else tensors), "u": pick(tensors), "l": pick(lists),
                "m": pick(lists), "d": pick(dicts), "e": pick(dicts), "k": pick("ab"),
                "c": pick(["c0", "c1"]), "i": draw(st.integers(0, 2)) % (2 if kind == "nested" else 3),
            }  # fmt: skip
            text = table[kind].format(**words)
            for target, values in ((tensors, _READS), (lists, _LISTS), (dicts, _DICTS)):
                if table is values:
                    name = f"{'tld'[[_READS, _LISTS, _DICTS].index(values)]}{next(names)}"
                    target.append(name)
                    text = f"{name} = {text}"
            lines.extend("    " * indent + line for line in text.split("\n"))
            if table is _CONTROL:
                inner = [*tensors, "w"] if kind == "list loop" else tensors
                block(inner, lists, dicts, indent + 1, 3, depth + 1)
                if kind == "else":
                    lines.append("    " * indent + "else:")
                    block(tensors, lists, dicts, indent + 1, 3, depth + 1)
        return tensors, lists

    first = (["x0", "x1", "x2", "x3", "u0", "u1"], ["l", "m"], ["d", "e"])
    tensors, lists = block(*first, 0, draw(st.integers(3, 12)), 0)
    returned = {"t": tensors[-1], "u": "u0"}
    returned |= {one: f"torch.stack({one}).sum(0)" for one in ("l", "m", lists[-1])}
    returned |= {one: f"torch.stack(list({one}.values()) + [x3]).sum(0)" for one in "de"}
    lines.append(f"return {{{', '.join(f'{key!r}: {value}' for key, value in returned.items())}}}")
    head = "def forward(self, x0, x1, x2, x3, c0, c1) -> Dict[str, Tensor]:"
    return "\n    ".join([head, *lines]) + "\n"


def check(source, *, control):
    """Compare edges with what torch adds up: input n is 1 at place n, and every operation adds."""
    program = compiled(source)
    ways = itertools.product((0.5, -1.0), repeat=2) if control else [(0.5, 0.5)]
    checked = False
    for c0, c1 in ways:
        x = [*torch.eye(4), torch.tensor([c0]), torch.tensor([c1])]
        try:
            output = program(*(one.clone() for one in x))
        except RuntimeError:  # a list ends early in this way
            continue
        trace = intus.trace(program, *x)
        found = reached(trace.graph)
        assert output_names(trace) == list(output), source
        rows = np.flatnonzero(trace.graph.ops.kind == OUTPUT)
        pairs = list(zip(rows, output.values(), strict=True))
        assert all(
            np.array_equal(one.value, output[name]) for one, name in zip(trace.outputs, output, strict=True)
        ), source
        for row, value in pairs:
            true = set(np.flatnonzero(value.numpy()).tolist())
            assert (true <= found[row]) if control else (true == found[row]), source
        for op in trace.ops:
            if op.saved and op.value.shape[-1:] == (4,):
                true = set(np.flatnonzero(op.value.reshape(-1, 4).any(0)).tolist())
                assert true <= found[op.row], source
        checked = True
    assume(checked)


_CHECKS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=20, derandomize=True, **_CHECKS)
@given(programs(control=False))
def test_edges_are_those_of_what_torch_computes(source):
    check(source, control=False)


@pytest.mark.long
@settings(max_examples=20, derandomize=True, **_CHECKS)
@given(programs(control=True))
def test_no_edge_is_missing_after_branches_and_loops(source):
    check(source, control=True)


@pytest.mark.slow
@settings(max_examples=500, **_CHECKS)
@given(st.booleans().flatmap(lambda control: st.tuples(programs(control=control), st.just(control))))
def test_many_programs(given_):
    check(given_[0], control=given_[1])


# -- models --------------------------------------------------------------------------------------------


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.box, self.label = nn.Linear(4, 2), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, list[Tensor]]:
        features: list[Tensor] = []
        for layer in self.layers:
            x = layer(x)
            features.append(x)
        out: dict[str, list[Tensor]] = {"boxes": []}
        out["labels"] = [self.label(features[1])]
        out["boxes"].append(self.box(features[0]))
        return out


def test_the_model_in_python_has_the_same_edges(tmp_path):
    model, x = Heads().eval(), torch.randn(2, 4)
    script = torch.jit.script(model)
    script.save(tmp_path / "heads.pt")
    with torch.no_grad():
        python, ours, file = intus.trace(model, x), intus.trace(script, x), intus.read(tmp_path / "heads.pt")
    assert output_names(python) == ["boxes.0", "labels.0"]
    for trace in (ours, file):
        assert output_names(trace) == ["boxes.0", "labels.0"]
        for name in ("boxes.0", "labels.0"):
            assert [one.module for one in trace[name].parents] == [one.module for one in python[name].parents]
        assert [one.module for one in trace["box"].parents] == ["layers.0"]
        assert {op.type for op in trace.ops} == {"linear"}
    for one, other in zip(ours.outputs, python.outputs, strict=True):
        assert np.array_equal(one.value, other.value)


def test_inputs_in_a_dict_are_told_apart():
    program = compiled("def forward(self, x: Dict[str, Tensor]):\n    return x['b'].relu(), x['a'].sin()\n")
    trace = intus.trace(program, ({"a": torch.ones(2), "b": -torch.ones(2)},))
    assert trace["relu_1"].parents == [trace["x.b"]]
    assert trace["sin_1"].parents == [trace["x.a"]]


def test_loop_that_fills_a_list_says_what_is_missing():
    program = compiled(
        "def forward(self, x, n: int):\n"
        "    found = [x]\n"
        "    for i in range(n):\n"
        "        if len(found) > 1:\n"
        "            x = x.cos()\n"
        "        found.append(found[-1].sin() + x)\n"
        "    return torch.stack(found), found\n"
    )
    trace = intus.trace(program, torch.ones(2), 3)
    assert {"cos", "sin"} <= {op.type for op in trace.ops}  # the length is not what it was before the loop
    assert set(parents(trace, "stack_1")) == {"input", "add"}
    notes = " ".join(trace.graph.facts["notes"])
    assert "What one iteration of a loop passes to the next is not drawn" in notes
    assert "The model returns a list that a loop or a condition fills: it is one output" in notes
    assert len(trace.outputs) == 2
    assert not trace.outputs[1].saved
    assert torch.equal(torch.from_numpy(trace.outputs[0].value), program(torch.ones(2), 3)[0])


def test_branches_that_fill_a_list():
    program = compiled(
        "def forward(self, x):\n"
        "    found = {'x': x.exp()}\n"
        "    mask: Optional[Tensor] = None\n"
        "    if bool(x.sum() > 0):\n"
        "        found['x'] = x.sin()\n"
        "        found['y'] = x.cos()\n"
        "        mask = x.tan()\n"
        "    if mask is not None:\n"
        "        found['x'] = found['x'] * mask\n"
        "    return found\n"
    )
    for sign in (1, -1):
        x = sign * torch.ones(2)
        trace, output = intus.trace(program, x), program(x)
        assert output_names(trace) == ["x", "y"]
        assert "The model does not return 'y' each time." in trace.graph.facts["notes"]
        ends = dict(zip(output_names(trace), trace.outputs, strict=True))
        saved = {name: one.value.tolist() for name, one in ends.items() if one.saved}
        assert saved == {name: one.tolist() for name, one in output.items()}
        above = [ends["x"]]
        for one in above:
            above += [parent for parent in one.parents if parent not in above]
        assert {"exp", "sin", "mul", "tan", "gt"} <= {one.type for one in above}


def test_an_attribute_that_the_model_assigns_is_read_again():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(4))
            self.past = [torch.zeros(4)]

        def forward(self, x: Tensor) -> Tensor:
            self.state = x.sin()
            self.past.append(x.cos())
            return self.state.exp() + self.past[-1]

    trace = intus.trace(torch.jit.script(Recurrent()), torch.ones(4))
    assert parents(trace, "exp_1") == ["sin"]
    assert sorted(parents(trace, "add_1")) == ["cos", "exp"]
