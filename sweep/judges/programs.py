"""Random modules as source code: views, writes through them, branches, loops, shared parameters, containers.

A program is text, because intus reads the source of the model. Every value is a tensor of 3 × 4 numbers, so
that any statement may follow any other; views of other shapes are made, written into, read, and forgotten.
The text has a second form in which every condition is noted, with its kind and whether it was true: what a
trace says of the decisions of the model is compared with that.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import nn

_NUMBER = count()
_HEAD = '''import dataclasses
import functools

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Result:
    value: torch.Tensor
    more: dict


def wrapped(method):
    """A decorator, as in libraries that check arguments."""

    @functools.wraps(method)
    def call(*args, **kwargs):
        return method(*args, **kwargs)

    return call

'''
_UNARY = ("torch.tanh({a})", "torch.sigmoid({a})", "F.gelu({a})", "{a}.sin()", "F.softmax({a}, dim=1)")
_UNARY += ("{a}.cumsum(0) * 0.5", "{a}.flip(0)", "F.layer_norm({a}, (4,))", "{a} - {a}.mean()", "{a}.abs()")
_UNARY += ("{a}.sort(dim=1).values", "{a}.roll(1, 0)", "{a}.clone()", "{a}.detach() * {a}", "-{a}")
_BINARY = ("{a} + {b}", "{a} * {b}", "{a} - 0.5 * {b}", "torch.where({a} > {b}, {a}, {b})")
_BINARY += ("torch.lerp({a}, {b}, 0.3)", "torch.cat([{a}, {b}])[2:5]", "torch.stack(({a}, {b})).mean(0)")
_BINARY += (
    "torch.tanh({a} @ ({b}.T @ {a}))",
    "torch.einsum('ij,ik->ij', {a}, {b})",
    "{a}.gather(1, {b}.argsort(1))",
)
_BINARY += ("torch.tanh(torch.addmm({a}, {b}, {a}.t() @ {b}))", "{a}.index_select(0, {b}.argmax(0)[:3])")
#: Views, each with whether it may be written into.
_VIEWS = {
    "{a}[1]": True, "{a}[:, ::2]": True, "{a}.t()": True, "{a}.contiguous().view(-1)[2:9]": True,
    "{a}.contiguous().view(2, 6)": True, "{a}[..., None]": True, "{a}.transpose(0, 1)[1:]": True,
    "{a}.narrow(1, 1, 2)": True, "{a}.diagonal()": True, "{a}.select(1, 2)": True, "{a}[1:][:, 1:]": True,
    "{a}.flatten()[::3]": True, "{a}.unsqueeze(0)[0, 1:]": True,
    "{a}.contiguous().as_strided((2, 2), (4, 1))": True, "{a}.chunk(2, dim=1)[1]": False,
    "{a}.unbind(0)[2]": False, "{a}.unfold(1, 2, 1)": False, "{a}[2:3].expand(3, 4)": False,
    "{a}.split((1, 3), 1)[0]": False,
}  # fmt: skip
#: Those that may be read after a write through another view: not one of several views that one call returns.
_SINGLE_VIEWS = [view for view in _VIEWS if not any(name in view for name in ("chunk", "unbind", "split"))]
_WRITES = ("{v}.mul_(0.5)", "{v}.add_(1)", "{v}.add_({v2})", "{v}.copy_({v2})", "{v}.zero_()", "{v}.tanh_()")
_WRITES += (
    "{v}[...] = {v2}",
    "{v} += {v2}",
    "{v}[0] = 0.25",
    "F.relu({v}, inplace=True)",
    "{v}.clamp_(-1, 1)",
)
_WRITES += ("{v}.masked_fill_({v2} > 0, 0.1)", "{v}.sub_({v2}, alpha=0.5)", "{v}.sigmoid_()")
_WHOLE = (
    "{a}[{b} > 0] = 0.5",
    "{a}.index_add_(0, torch.tensor([0, 2]), {b}[1:])",
    "{a} *= {b}",
    "{a}[1] = {b}[2]",
)
_WHOLE += ("{a}.index_copy_(1, torch.tensor([3]), {b}[:, :1])", "{a}.scatter_(1, {b}.argsort(1), {b})")
_WHOLE += ("{a}.addcmul_({b}, {b}, value=0.1)", "{a}[:, [0, 2]] += {b}[:, :2]", "{a}.neg_()")
_STATE = ("self.steps.add_(1)", "self.ema.mul_(0.9).add_({a}.detach().mean(0), alpha=0.1)")
_STATE += ("self.kept = {a} * 2", "self.table[1:].copy_({a}.detach()[:2])")
_CONDITIONS = (
    "{a}.sum() > {c}",
    "{a}.mean() < {c}",
    "({a} > {c}).any()",
    "{a}[0, 0] > {c}",
    "{a}.max() > {c}",
)
_OUTPUTS = ("{a}", "{a}, {b}", "[{a}, ({b}, {a})]", "{{'first': {a}, 'rest': [{b}]}}")
_OUTPUTS += (
    "Result({a}, {{'b': {b}}})",
    "({a}, Result({b}, {{'a': {a}[1:]}}))",
    "{{'x': {a}.sum(), 'y': {b}}}",
)


class Program(NamedTuple):
    """A random module.

    Attributes:
        source: The text.
        build: Returns the module, with weights from a seed.
        inputs: Its two arguments.
        decisions: Runs the module and returns the kinds of its decisions, with whether each was true.
    """

    source: str
    build: Callable[[], nn.Module]
    inputs: tuple[torch.Tensor, torch.Tensor]
    decisions: Callable[[], list[tuple[str, bool]]]


def program(rng: random.Random, statements: int = 10) -> Program:
    """Write a random module.

    Args:
        rng: Makes every choice.
        statements: The number of statements of the outermost ``forward``.
    """
    text = _Writer(rng).program(statements)
    source, noting = _conditions(text, "{1}"), _conditions(text, "note({0!r}, {1})")
    generator = torch.Generator().manual_seed(rng.randrange(1000))
    inputs = torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)

    def build() -> nn.Module:
        torch.manual_seed(0)
        return _compile(source, {})["Net"]()  # type: ignore[no-any-return]

    def decisions() -> list[tuple[str, bool]]:
        noted: list[tuple[str, bool]] = []

        def note(kind: str, condition: Any) -> bool:
            noted.append((kind, bool(condition)))
            return noted[-1][1]

        space = _compile(noting, {"note": note})
        torch.manual_seed(0)
        net = space["Net"]()
        torch.manual_seed(1)
        net(*(x.clone() for x in inputs))
        return noted

    return Program(source, build, inputs, decisions)


def _compile(source: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run the text as a module whose source Python and intus can read."""
    file = f"<program {next(_NUMBER)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {"__name__": __name__, **names}
    exec(compile(source, file, "exec", dont_inherit=True), space)
    return space


def _conditions(text: str, form: str) -> str:
    """Return the text in which every ``<<kind|condition>>`` has the given form."""
    while "<<" in text:
        before, _, rest = text.rpartition("<<")
        inside, _, after = rest.partition(">>")
        kind, _, condition = inside.partition("|")
        text = before + form.format(kind, condition) + after
    return text


class _Writer:
    """Writes one program."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.fresh, self.parts = rng, count(), list[str]()

    def program(self, statements: int) -> str:
        """Return the text, with conditions as ``<<kind|condition>>``."""
        classes = [self._part(f"Part{n}") for n in range(self.rng.randrange(3))]
        return "\n\n".join([_HEAD, *classes, self._net(statements)]) + "\n"

    def _part(self, name: str) -> str:
        """Write a class that maps a tensor to a tensor, and may hold an earlier one."""
        inner = self.rng.choice([None, *self.parts])
        calls = ["self.lin(x)", "self.norm(self.lin(x))", *([] if inner is None else ["self.inner(x)"])]
        body = [
            *self._doc(),
            f"y = {self.rng.choice(calls)}",
            *self._statements(self.rng.randrange(1, 4), ["x", "y"], ["self.lin"]),
            "return y",
        ]
        self.parts.append(name)
        return "\n".join(
            [
                f"class {name}(nn.Module):",
                "    def __init__(self):",
                "        super().__init__()",
                "        self.lin, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)",
                *([] if inner is None else [f"        self.inner = {inner}()"]),
                "",
                *self._decorators(),
                "    def forward(self, x):",
                *_indented(body, 2),
            ]
        )

    def _net(self, statements: int) -> str:
        layers = {"self.lin": "nn.Linear(4, 4)", "self.tied": "nn.Linear(4, 4, bias=False)"}
        layers |= {"self.drop": "nn.Dropout(0.3)", "self.act": "nn.ReLU(inplace=True)"}
        layers |= {"self.seq": "nn.Sequential(nn.Linear(4, 4), nn.SiLU(inplace=True))"}
        layers |= {f"self.{part.lower()}": f"{part}()" for part in self.parts}
        body = [
            *self._doc(),
            "a = self.lin(x)",
            *self._statements(statements, ["x", "y", "a"], list(layers), state=True),
        ]
        output = self.rng.choice(_OUTPUTS).format(a=self.rng.choice("xya"), b=self.rng.choice("ay"))
        return "\n".join(
            [
                "class Net(nn.Module):",
                "    def __init__(self):",
                "        super().__init__()",
                *(f"        {name} = {value}" for name, value in layers.items()),
                "        self.tied.weight = self.lin.weight",
                "        self.register_buffer('steps', torch.zeros((), dtype=torch.int64))",
                "        self.register_buffer('ema', torch.zeros(4))",
                "        self.register_buffer('table', torch.ones(3, 4))",
                "",
                *self._decorators(),
                "    def forward(self, x, y):",
                *_indented(body, 2),
                f"        return {output}",
            ]
        )

    def _decorators(self) -> list[str]:
        return ["    @wrapped"] if self.rng.random() < 0.3 else []

    def _doc(self) -> list[str]:
        doc = ['"""Compute.', "", "Two paragraphs.", '"""']
        return self.rng.choice([[], ['"""Compute."""'], doc, [*doc, ""], ["# a comment", ""]])

    # -- statements ----------------------------------------------------------------------------------------

    def _statements(
        self, number: int, names: list[str], layers: list[str], depth: int = 0, *, state: bool = False
    ) -> list[str]:
        """Write statements; ``names`` grows by the variables that they define."""
        lines: list[str] = []
        for _ in range(number):
            if self.rng.random() < 0.2:
                lines.append("")
            if self.rng.random() < 0.1:
                lines.append("# what comes next")
            lines += self._statement(names, layers, depth, state=state)
        return lines

    def _statement(self, names: list[str], layers: list[str], depth: int, *, state: bool) -> list[str]:
        rng = self.rng
        kinds = ["compute", "compute", "layer", "view", "write", "write", "whole", "ternary", "assert"]
        kinds += ["if", "loop", "while", "no_grad", "comprehension"] if depth < 2 else []
        kinds += ["state"] if state else []
        kind = rng.choice(kinds)
        a, b = rng.choice(names), rng.choice(names)
        assigns = kind in ("compute", "layer", "view", "write", "ternary", "no_grad", "comprehension")
        target = self._target(names, depth) if assigns else ""
        if kind == "compute":
            return [f"{target} = {self._expression(a, b)}"]
        if kind == "layer":
            return [f"{target} = {rng.choice(layers)}({a})"]
        if kind == "view":
            view = rng.choice(list(_VIEWS)).format(a=a)
            name = f"v{next(self.fresh)}"
            return [f"{name} = {view}", f"{target} = {b} + {name}.sum()"]
        if kind == "write":
            return self._write(a, b, target)
        if kind == "whole":
            return self._write_whole(a, b)
        if kind == "state":
            return [rng.choice(_STATE).format(a=a)]
        if kind == "ternary":
            return [f"{target} = {a} if {self._condition('ternary', b)} else {self._expression(b, a)}"]
        if kind == "assert":
            return [f"assert <<assert|{a}.isfinite().all()>>, 'finite'"]
        if kind == "no_grad":
            return ["with torch.no_grad():", *_indented([f"{target} = ({self._expression(a, b)}).clone()"])]
        if kind == "comprehension":
            condition = self._condition("comprehension", "row").replace("[0, 0]", "[0]")
            rows = f"row * 2 for row in {a} if {condition}"
            return [f"{target} = {b} + sum([{rows}], torch.zeros(4))"]
        if kind == "loop":
            body = self._statements(rng.randrange(1, 3), [*names], layers, depth + 1)
            return [f"for _ in range({rng.randrange(1, 4)}):", *_indented(body)]
        if kind == "while":
            existing = rng.choice(names)
            return [
                f"{existing} = torch.tanh({existing})",
                f"while <<while|{existing}.abs().max() > 0.3>>:",
                *_indented([*self._blank(), f"{existing} = {existing} * 0.5"]),
            ]
        return self._branch(names, layers, depth)

    def _branch(self, names: list[str], layers: list[str], depth: int) -> list[str]:
        def body() -> list[str]:
            return [*self._blank(), *self._statements(self.rng.randrange(1, 3), [*names], layers, depth + 1)]

        lines = [f"if {self._condition('if', self.rng.choice(names))}:", *_indented(body())]
        if self.rng.random() < 0.4:
            lines += [*self._blank(), f"elif {self._condition('elif', self.rng.choice(names))}:"]
            lines += _indented(body())
        if self.rng.random() < 0.5:
            lines += [*self._blank(), "else:  # otherwise", *_indented(body())]
        return lines

    def _blank(self) -> list[str]:
        return self.rng.choice([[], [], [""], ["# a comment"], ["", "# a comment", ""]])

    def _target(self, names: list[str], depth: int) -> str:
        """Return the variable to assign; within a branch an existing one, so that it is always defined."""
        if depth or self.rng.random() < 0.5:
            return self.rng.choice(names)
        names.append(f"h{next(self.fresh)}")
        return names[-1]

    def _expression(self, a: str, b: str) -> str:
        return self.rng.choice(_UNARY + _BINARY).format(a=a, b=b)

    def _condition(self, kind: str, a: str) -> str:
        number = self.rng.choice(["-1.0", "0.0", "0.1", "1.0"])
        return f"<<{kind}|{self.rng.choice(_CONDITIONS).format(a=a, c=number)}>>"

    def _write(self, a: str, b: str, target: str) -> list[str]:
        """Write into memory of a variable through one view or two, and read it through another."""
        rng = self.rng
        view = rng.choice([view for view, writable in _VIEWS.items() if writable])
        name, other, whole = f"v{next(self.fresh)}", f"v{next(self.fresh)}", f"w{next(self.fresh)}"
        lines = [f"{whole} = {rng.choice((a + '.clone()', a + ' * 1', 'torch.zeros(3, 4)'))}"]
        lines += [f"{name} = {view.format(a=whole)}"]
        if rng.random() < 0.5:
            lines += [f"{other} = {rng.choice(_SINGLE_VIEWS).format(a=whole)}"]
        else:
            other = whole
        lines += [rng.choice(_WRITES).format(v=name, v2=view.format(a=b + ".contiguous()"))]
        if rng.random() < 0.3:
            lines += [rng.choice(_WRITES).format(v=name, v2=view.format(a=b + ".contiguous()"))]
        lines += [f"{target} = {rng.choice((whole, f'{b} + {other}.sum()', f'{whole} * {name}.mean()'))}"]
        return lines

    def _write_whole(self, a: str, b: str) -> list[str]:
        """Write into a copy of a variable, which replaces it."""
        source = f"{b}.clone()" if a == b else b
        return [f"{a} = {a}.clone()", self.rng.choice(_WHOLE).format(a=a, b=source)]


def _indented(lines: list[str], levels: int = 1) -> list[str]:
    return [f"{'    ' * levels}{line}" if line else "" for line in lines]
