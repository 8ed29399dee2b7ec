"""Check that an exported file computes what the model computes: the function ``check_export``."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import CodecError, InputError, require
from ...core.graph import BUFFER, INPUT, OP, OUTPUT, Graph, Ops
from ...viewing.repr_text import listed
from ..front_door import Arguments, arguments, front_door
from ..read import read
from ..results.trace import Trace
from .compare import compare
from .first import first_of, joined, place
from .output_order import counterparts
from .pairing.modules import pair_modules
from .parameters.coverage import Missing, missing_parameters
from .parameters.exchanged import values_of_others
from .parameters.folded import folded_parameters
from .parameters.parameters import changed_buffers, changed_parameters
from .quantization import Quantization, quantization
from .unseen.branches import Branches, compare_branches
from .unseen.elsewhere import Elsewhere, RunFile, elsewhere, session
from .unseen.fixed import fixed_tensors, ignored_inputs, named_inputs, read_inputs, sources
from .unseen.hidden import equal_inputs, hidden_steps
from .unseen.other_inputs import Called, other_lengths, otherwise
from .unseen.other_numbers import sentences as other_numbers
from .unseen.passes import Both
from .unseen.stated import different_constants_stated, lower_precisions
from .unseen.without_effect import sentences
from .values.elements import Elements, plain

if TYPE_CHECKING:
    from .table import Comparison


class ExportCheck:
    """The result of ``check_export``; true if the file computes what the model computes on the inputs.

    Attributes:
        table: The comparison of the model (a) with the file (b), tensor by tensor; see ``compare``.
        parameters: How parameters and buffers of the model and of the file differ, as sentences; also those
            without effect on these inputs. And the parameters that the file lacks, unless it has their values
            under other names or in another form, or their effect was compared.
        constants: How constants differ that both state, such as an epsilon, as sentences; also those whose
            effect on these inputs is within rounding.
        first: The first operation that makes a difference, as a dict of ``a``, ``b``, ``module`` and ``why``;
            None if there is none. Of a quantized file, the first that its quantization does not explain.
        unproven: Why the file is not shown to compute what the model does although no difference is known, as
            sentences: modules that were not compared, or differ without an effect on the outputs; operations
            of one side alone that have no effect on these inputs; a cast of one side alone to a precision
            that no input, parameter or output of it has; tensors of which rounding takes more than half of
            the digits.
        notes: What else differs: the dtype of an output, the precision of all that a side computes. And
            which tensors could only be judged by the rounding that adds up with depth, which operations were
            not run on other numbers, and which lengths of open axes were tried. And how many other inputs
            show nothing.
        others: On how many other inputs both returned the same.
        quantization: What was found out about a quantized file that differs; None for any other file.
    """

    def __init__(
        self, table: Comparison, model: Trace, exported: Trace, path: Path, fixed: Sequence[str] = ()
    ) -> None:
        self.table, self._model, self._path = table, model, path
        modules = pair_modules(model.graph, exported.graph, table.pairs)
        changed = changed_parameters(model, exported, modules)
        folded, found = folded_parameters(model, exported, table.agreeing)
        compared = changed.compared | found
        buffers = changed_buffers(model, exported, table.pairs)
        self.changed = dict(sorted((changed.sentences | folded | buffers).items()))
        self._faults, self.notes = _outputs(table)
        self.quantization: Quantization | None = None
        missing: list[Missing] = []
        hidden: list[str] = []
        if not is_quantized(exported.graph):  # which has other weights, and differs in every module
            coverage = missing_parameters(model, exported, table, compared)
            missing, hidden = coverage.missing, coverage.hidden
            if by_effect := coverage.by_effect:
                self.notes.append(f"Compared by their effect on these inputs only: {listed(by_effect)}.")
            if coverage.idle:
                self.notes.append(
                    f"Not in the file, and without effect on any output: {listed(coverage.idle)}."
                )
        self.parameters = [sentence for sentences in self.changed.values() for sentence in sentences]
        self.parameters += [one.sentence for one in missing]
        first = table.attrs["first"]
        # If no difference originates anywhere, only what the same module returns in the file is its result:
        # an operation of an optimized file, which has no modules, may correspond to another.
        both = {model.graph.call_address(one.a).partition(":")[0] for one in modules}
        both &= {module.address for module in exported.graph.modules}
        apart = {
            one.row: [one.sentence]
            for one in missing
            if one.differs is not None and (first is not None or one.module in both)
        }
        names, graphs = ("the model", "the file"), (model.graph, exported.graph)
        stated = {} if is_quantized(exported.graph) else table.attrs["constants"]
        self.constants = [sentence for sentences in stated.values() for sentence in sentences]
        shown = -1 if first is None else table.pairs[table.attrs["at"]][0]

        def also(row: int) -> list[str]:
            return values_of_others(model, exported, changed.pairs.get(row, ()))

        self.first = first_of(model, first, joined(apart | self.changed, stated), shown, also)
        self._zeros = hidden
        self._inside = list(table.differences_inside("the model", "in the file"))
        self._unseen = list(sentences(table.attrs["unseen"], *graphs, names))
        self._stated = list(different_constants_stated(model, exported, table.agreeing, names))
        agreeing = Both(model, exported, table.agreeing)
        self._hidden = [] if first is not None else list(hidden_steps(agreeing, names))
        self._hidden += other_numbers(table.attrs["apart"], *graphs, names)
        self.unproven = [
            *changed.unknown,
            *_not_compared(missing),
            *hidden,
            *self._inside,
            *self._unseen,
            *self._stated,
        ]
        self._lost: list[str] = table.attrs["lost"]
        self._fixed = list(fixed)
        self.others = 0
        self.unproven += [*self._hidden, *self._lost, *self._fixed]
        self.unproven += [one.removesuffix(".") for one in table.attrs["not_run"]]
        for rows in equal_inputs(model):
            inputs = listed([name for name, row in named_inputs(model.graph).items() if row in rows])
            self.notes.append(f"The inputs {inputs} have equal values, so the values do not tell them apart.")
        self._lower = lower_precisions(*graphs, names)
        self._cast = [one.sentence.removesuffix(".") for one in self._lower if not one.is_stated]
        self.unproven += self._cast
        self.notes += [*(one.sentence for one in self._lower if one.is_stated), *table.attrs["by_depth"]]
        self.notes += table.attrs["untried"]
        used = {number for numbers in model.graph.row_params.values() for number in numbers}
        left = (param.address for number, param in enumerate(model.graph.params) if number not in used)
        unused = [address for address in left if address not in compared]
        if unused:
            self.notes.append(f"On these inputs the model does not use {listed(unused)}: not compared.")

    def of_operations(self) -> list[str]:
        """Return what is said of operations that differ, or are not shown to agree."""
        first = [] if self.first is None else [f"the first difference is {place(self.first)}"]
        return [*first, *self._unseen, *self._stated, *self._hidden]

    @property
    def agree(self) -> bool:
        """True if every output and module was compared and nothing differs, no tensor and no parameter."""
        differs = self.parameters or self.constants or self._faults or self.unproven
        return bool(self.table.agree) and not differs

    @property
    def verdict(self) -> str:
        """The result in a word: ``"equal"``, ``"quantized"``, ``"differs"`` or ``"not proven"``.

        ``"quantized"``: nothing differs but what the quantization of the file explains.
        """
        if self.agree:
            return "equal"
        if self.quantization is not None:
            return self.quantization.verdict
        return "differs" if self.first is not None or self._faults else "not proven"

    def explain(self, found: Quantization | None) -> None:
        """Take what was found out about a quantized file."""
        self.quantization = found
        if found is not None:
            self.first = found.first

    def __bool__(self) -> bool:
        return self.agree

    def __repr__(self) -> str:
        name, file = self._model.name, self._path.name
        modules = self.table.modules
        compared = modules[modules.verdict != "not saved"]
        if self.agree:
            inside = f" Of {len(compared)} modules that both have, all agree." if len(compared) > 1 else ""
            rounding = (
                f"the rounding of {listed([one.dtype for one in self._lower])}" if self._lower else "rounding"
            )
            others = f" and {self.others} others" if self.others else ""
            verdict = (
                f"On these inputs{others} {file} computes what {name} does: nothing differs that {rounding} "
                f"does not explain.{inside}"
            )
            return "\n".join([verdict, *self.notes])
        if self.quantization is not None:
            sentences = self.quantization.sentences(name, file)
            unsaid = [one for one in self._faults if one not in self.table.attrs["misplaced"]]
            return "\n".join([*sentences, *self.notes, *unsaid])
        if self.first is not None:
            where = place(self.first)
            verdict = f"{file} does not compute what {name} does. The first difference is {where}."
        elif self._faults:
            verdict = f"{file} does not return what {name} does."
        else:
            outputs_agree = self.table.attrs["outputs_agree"]
            rest = [one for one in self.unproven if one not in self._fixed]
            why = f"not every {'module' if outputs_agree else 'output'} could be compared"
            if outputs_agree and self._inside:
                why = "tensors inside differ, which may have an effect on other inputs"
            elif outputs_agree and self.table.attrs["drawn"]:
                why = "random numbers are drawn, which are others in each run"
            elif outputs_agree and self._cast == rest != []:
                why = "only one of both casts to a lower precision, whose rounding hides differences"
            elif outputs_agree and self._lost == rest != []:
                why = "rounding takes much of what they compute on these inputs"
            elif outputs_agree and self._unseen == rest != []:
                why = "only one of both has an operation, which may have an effect on other inputs"
            elif outputs_agree and self._stated and not {*rest} - {*self._stated, *self._unseen}:
                why = "they state other constants, whose effect rounding hides on these inputs"
            elif outputs_agree and self._zeros == rest != []:
                why = "zeros hide a part of the parameters on these inputs"
            elif outputs_agree and not rest:
                why = "other inputs may show what these do not"
            elif outputs_agree and {*rest} <= {*self._stated, *self._unseen, *self._hidden}:
                why = "they do other things that have no effect on these inputs"
            verdict = f"Not proven that {file} computes what {name} does: {why}."
        said = {*self.table.attrs["misplaced"], *self.table.attrs["not_run"]}  # by the table
        seen = (*self._faults, *(f"{one.removesuffix('.')}." for one in self.unproven))
        lines = [verdict, *(one for one in seen if one not in said), *self.notes]
        changed = [sentence for sentences in self.changed.values() for sentence in sentences]
        if changed:
            lines.append(f"Parameters differ: {listed(changed)}.")
        if self.constants:
            lines.append(f"Constants differ: {listed(self.constants)}.")
        classes = _in_training(self._model.graph)
        if classes:
            lines.append(f"The model is in training mode, in which {listed(classes)} compute otherwise.")
        return "\n".join([*lines, str(self.table)])


def _not_compared(missing: Sequence[Missing]) -> Iterator[str]:
    """Yield what is not known of parameters that a file lacks, module by module."""
    reasons: dict[str, list[str]] = {}
    for one in missing:
        reasons.setdefault(one.reason, []).append(one.address)
    for reason, names in reasons.items():
        yield f"{listed(names)} {'is' if len(names) == 1 else 'are'} not in the file, and {reason}"


def _outputs(table: Comparison) -> tuple[list[str], list[str]]:
    """Return what makes the outputs others: faults, and notes on what need not be one."""
    faults: list[str] = list(table.attrs["misplaced"])
    notes: list[str] = []
    for row in table[table.a.str.startswith("output_") & (table.b != "")].itertuples():
        if row.dtype_a != row.dtype_b:
            both_float = all("float" in dtype for dtype in (row.dtype_a, row.dtype_b))
            text = f"{row.a} is {row.dtype_a} in the model, {row.dtype_b} in the file."
            (notes if both_float else faults).append(text)
    return faults, notes


def _check_order(model: object, path: object) -> None:
    """Raise an error if the file is not the second argument."""
    is_path = [isinstance(one, str | os.PathLike) for one in (model, path)]
    if is_path == [False, True]:
        return
    given = f"{model!r} is given as the model" if is_path[0] else f"the path is of type {type(path).__name__}"
    raise InputError(
        f"check_export takes the model first and the path of its file second, and {given}. "
        'Write check_export(model, "net.onnx", inputs).'
    )


@front_door
def check_export(
    model: Callable[..., Any],
    path: str | Path,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> ExportCheck:
    """Check that an exported file computes what the model computes, module by module.

    The model is traced on the inputs, and the file is run on the same. Their tensors are compared as
    ``compare`` does, and their parameters. A file of a lower precision is compared within the rounding of
    that precision. A quantized file differs by more: the result is false, and its ``verdict`` is
    ``"quantized"`` if nothing but the quantization differs. Use inputs as the model gets them: the result
    holds for these. Operations are also run on other numbers, and both sides on other inputs of the same
    shapes, whose outputs are compared; on more if the model decides by values of its inputs or the file
    leaves lengths of them open.

    Args:
        model: The model that was exported, in the mode it was exported in, which usually is evaluation mode.
            Or a ``Trace`` of it with all values; then no inputs are given.
        path: The file: ONNX (``.onnx``) or ``torch.export`` (``.pt2``).
        *args: The model's positional arguments, as in ``trace``. The file's inputs take the same tensors, by
            name if the names are the same and else in order.
        kwargs: Keyword arguments of the model whose names are also those of arguments here, as in ``trace``.
        **keywords: The model's keyword arguments.

    Returns:
        The result, which is true if nothing differs by more than rounding explains. Print it for the first
        module that differs, with the reason.

    Raises:
        InputError: If the file takes other inputs than the model, or the model has none.
        CodecError: If the file cannot be read.
        MissingExtraError: If a package that is needed to run the file is not installed.
        Exception: Whatever the model raised.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
        >>> x = torch.randn(2, 4)
        >>> torch.onnx.export(net, (x,), "net.onnx")  # doctest: +SKIP
        >>> check_export(net, "net.onnx", x)  # doctest: +SKIP
        net.onnx computes what Sequential does: nothing differs that rounding does not explain.
    """
    _check_order(model, path)
    require("pandas", extra="inspect", why="to compare the model with its export")
    file = Path(path)
    called = None
    declared = read(file).graph
    with_defaults = _with_defaults(file, declared)
    if isinstance(model, Trace):
        if args or kwargs:
            raise InputError(
                "A trace is of a pass that ran already. Leave the inputs out, or pass the model."
            )
        traced = model
        declared = _as_given(file, declared, with_defaults, traced.graph)
    else:
        from ..run import trace

        counts = range(len(declared.rows_of(INPUT)), len(with_defaults.rows_of(INPUT)) + 1)
        given = _apart(arguments(args, kwargs), counts)
        traced = trace(model, given, kwargs={})
        declared = _as_given(file, declared, with_defaults, traced.graph)

        def again(*args: Any, **kwargs: Any) -> Trace:
            return trace(model, Arguments(args, kwargs), kwargs={})

        if traced.graph.facts.get("framework") == "torch":
            called = Called(model, again, lambda one: read(file, _inputs(one, declared, file)), given)
    exported = read(file, _inputs(traced, declared, file))
    if not exported.values:
        raise CodecError(f"{str(file)!r} has no operations that can be run, so nothing can be compared.")
    table = compare(traced, exported)
    agree = table.attrs["outputs_agree"]
    fixed, notes = _fixed(traced, exported, declared, called, table.agreeing) if agree else ([], [])
    branches = Branches([], [])
    if agree and not is_quantized(exported.graph):
        branches = compare_branches(called, traced, partial(_apart_inside, file))
        fixed += branches.apart
    not_run = _NOT_OF_A_TRACE if isinstance(model, Trace) else _NOT_OF_OTHERS
    found = Elsewhere(left=not_run if called is None and agree else "")
    if called is not None and agree and not fixed and not is_quantized(exported.graph):
        names = [*named_inputs(traced.graph)]
        run = _whole_file(file, declared, traced.graph)
        found = elsewhere(called, run, names, (traced.graph, exported.graph))
        for given_others in branches.inputs:
            if not found.apart:
                found = found.also(
                    elsewhere(called, run, names, (traced.graph, exported.graph), given_others)
                )
    check = ExportCheck(table, traced, exported, file, [*fixed, *([found.apart] if found.apart else [])])
    check.notes += [*notes, *([found.left] if found.left else [])]
    check.others = found.others
    if not check and is_quantized(exported.graph):
        check.explain(quantization(check, traced, exported, file))
    return check


def _with_defaults(path: Path, declared: Graph) -> Graph:
    """Return the graph of a file in which inputs that have a default are inputs too."""
    if not declared.facts.get("optional"):
        return declared
    from ...reading.onnx import declared as of_onnx

    return of_onnx(path)


def _as_given(path: Path, declared: Graph, with_defaults: Graph, model: Graph) -> Graph:
    """Return the graph of a file in which inputs that have a default are inputs if the model is given them.

    These are inputs of the model's names; or all of them, if the model has as many inputs.

    Args:
        path: The file.
        declared: Its graph without those that have a default.
        with_defaults: Its graph with all of them.
        model: The graph of the model.
    """
    rows, own = named_inputs(with_defaults), named_inputs(model)
    names = {*rows} - {*named_inputs(declared)}
    if not names:
        return declared
    chosen = _chosen(model, with_defaults) if len(rows) == len(own) else []
    ends = zip(chosen, rows.values(), strict=False)
    if chosen and all(_fits(model, row, with_defaults, end) for row, end in ends):
        return with_defaults
    given = {name for name in names & own.keys() if _fits(model, own[name], with_defaults, rows[name])}
    from ...reading.onnx import declared as of_onnx

    return of_onnx(path, given) if given else declared


def _apart_inside(path: Path, model: Trace, exported: Trace) -> list[str]:
    """Return what is said of operations that are not shown to agree, in traces with those of branches."""
    taken = _of_what_ran(exported)
    return ExportCheck(compare(model, taken), model, taken, path).of_operations()


def _of_what_ran(file: Trace) -> Trace:
    """Return the trace of a file in which operations that have no value are no operations.

    They are in a branch that was not taken, or could not be run. A layer may be in both branches.
    """
    ops = file.graph.ops
    did_run = [row in file.values or kind != OP for row, kind in enumerate(ops.kind.tolist())]
    kind, call = np.where(did_run, ops.kind, BUFFER), np.where(did_run, ops.call, -1)
    graph = replace(file.graph, ops=Ops(len(ops), **{**ops.columns(), "kind": kind, "call": call}))
    return Trace(graph, file.values, params=file._param_values, parts=file._parts)


def _whole_file(path: Path, declared: Graph, model: Graph) -> RunFile:
    """Return what runs a file on the tensors that the model is called with, and returns its outputs.

    They are in the places of the model's outputs that they are to be.
    """
    run, places = _run_whole(path, declared, model), counterparts(model, declared)

    def in_places(tensors: Sequence[Any]) -> list[Elements]:
        found = run(tensors)
        return [found[place] for place in places]

    return in_places


def _run_whole(path: Path, declared: Graph, model: Graph) -> RunFile:
    """Return what runs a file on the tensors that the model is called with, and returns all its outputs."""
    rows, ends = model.rows_of(INPUT), declared.rows_of(INPUT)
    chosen = [rows.index(row) for row in _chosen(model, declared)]
    dtypes = [declared.dtype_of(end) for end in ends]
    is_onnx = declared.facts.get("format") != "torch.export"
    if is_onnx and not {*_EXTENDED} & {meta.dtype for meta in declared.metas}:
        runtime = require("onnxruntime", extra="onnx", why="to run an ONNX file")
        on_arrays = session(str(path), runtime, [*named_inputs(declared)])
        if on_arrays is not None:
            return lambda tensors: on_arrays(
                [_array(tensors[n], dtype) for n, dtype in zip(chosen, dtypes, strict=True)]
            )

    def read_again(tensors: Sequence[Any]) -> list[Elements]:
        given = [
            (_array if is_onnx else _tensor)(tensors[n], dtype)
            for n, dtype in zip(chosen, dtypes, strict=True)
        ]
        found = read(path, _by_name(declared, given))
        values = [plain(found.values.get(row)) for row in found.graph.rows_of(OUTPUT)]
        if None in values:
            raise CodecError(f"{path.name} has outputs that cannot be computed.")
        return [one for one in values if one is not None]

    return read_again


def _fixed(
    model: Trace,
    exported: Trace,
    declared: Graph,
    called: Called | None,
    pairs: Sequence[tuple[int, int]],
) -> tuple[list[str], list[str]]:
    """Return what a file may have fixed that the model takes from its inputs, and notes on the rest."""
    graphs = model.graph, exported.graph
    rows, chosen = model.graph.rows_of(INPUT), _chosen(*graphs)
    partner = dict.fromkeys(rows, -1) | dict(zip(chosen, exported.graph.rows_of(INPUT), strict=True))
    found = otherwise(called, model)
    read = [read_inputs(one.graph) for one in found.agreeing]
    if found.differs or found.left:  # what Python takes from an input that the file lacks may matter
        reach = sources(model.graph)
        taken = (reach[one.op.row] for one in model.conditionals if one.kind != "assert")
        read += [{row for row in some if partner[row] < 0} for some in taken]
    names = ("the model", "the file")
    ignored = list(ignored_inputs(*graphs, partner, names, set().union(*read)))
    ignored = ignored or list(fixed_tensors(model, exported, pairs, partner, names))
    lengths = other_lengths(called, model.graph, declared, [rows.index(row) for row in chosen])
    otherwise_apart = (
        "On inputs by which the model decides otherwise, the file does not return what the model does"
    )
    fixed = [otherwise_apart] if found.differs else []
    return [*fixed, *ignored, *found.left, *lengths.unlike], lengths.notes


def _apart(given: Arguments, counts: Container[int]) -> Arguments:
    """Return the arguments of a call, with copies where a tensor is given twice and a file takes both.

    Args:
        given: The arguments.
        counts: How many inputs the file takes, with and without those that have a default.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return given
    seen: set[int] = set()

    def copied(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        is_again = id(one) in seen
        seen.add(id(one))
        return one.detach().clone() if is_again else one

    every = [one for one in (*given.args, *given.kwargs.values()) if isinstance(one, torch.Tensor)]
    if len(every) not in counts or len({id(one) for one in every}) == len(every):
        return given
    args = tuple(map(copied, given.args))
    return given._replace(args=args, kwargs={name: copied(one) for name, one in given.kwargs.items()})


def is_quantized(file: Graph) -> bool:
    """Return whether a file has operations of a quantized model."""
    return not _QUANTIZED.isdisjoint(file.type_of(row) for row in file.rows_of(OP))


def _inputs(trace: Trace, file: Graph, path: Path) -> Any:
    """Return the inputs of a traced pass for the file's inputs, in the file's precision; see ``_by_name``."""
    ends, rows = file.rows_of(INPUT), trace.graph.rows_of(INPUT)
    if any(row not in trace.values for row in rows):
        raise InputError("The model's inputs have no saved values. Trace it with save='all'.")
    chosen = _chosen(trace.graph, file)
    if len(chosen) < len(ends):
        raise InputError(
            f"{path.name} takes {len(ends)} inputs ({listed([*named_inputs(file)])}), and the model was "
            f"called with {len(rows)} tensors ({listed([*named_inputs(trace.graph)])}). These do not tell by "
            "name, dtype and shape which of them the file takes. Call the model with the inputs that it was "
            "exported with, or export it with input_names=."
        )
    dtypes = [file.dtype_of(end) for end in ends]
    as_given = _tensor if file.facts.get("format") == "torch.export" else _array
    given = [as_given(trace.values[row], dtype) for row, dtype in zip(chosen, dtypes, strict=True)]
    return _by_name(file, given)


def _by_name(file: Graph, given: Sequence[Any]) -> Any:
    """Return what ``read`` takes for the inputs of a file: a mapping, or () for none.

    In their order, one that has a default could not be given without all that are before it.
    """
    return dict(zip(named_inputs(file), given, strict=True)) if given else ()


def _chosen(model: Graph, file: Graph) -> list[int]:
    """Return the inputs of the model that those of the file are given, in their order; empty if none fit.

    An input of the model's name is that one. Others are given in order; of more than the file takes, those
    that it states the dtypes and shapes of, if no other choice of them fits.
    """
    names, own = named_inputs(file), named_inputs(model)
    free = [row for name, row in own.items() if name not in names]
    left = [row for name, row in names.items() if name not in own]
    if len(left) > len(free):
        return []
    if len(left) < len(free) and left:
        if math.comb(len(free), len(left)) > _MOST_CHOICES:
            return []
        fitting = [
            some
            for some in combinations(free, len(left))
            if all(_fits(model, row, file, end) for row, end in zip(some, left, strict=True))
        ]
        if len(fitting) != 1:
            return []
        free = list(fitting[0])
    rest = iter(free)
    return [own[name] if name in own else next(rest) for name in names]


def _fits(model: Graph, row: int, file: Graph, end: int) -> bool:
    """Return whether a file may be given an input of the model: floats of any precision, and open lengths."""
    one, other = (graph.metas[int(graph.ops.meta[n])] for graph, n in ((model, row), (file, end)))
    kinds = ["float" if "float" in meta.dtype else meta.dtype for meta in (one, other)]
    is_open = tuple(other.shape) == (-1,)  # also a shape that is not known
    is_shape = len(one.shape) == len(other.shape) and all(
        length in (-1, own) for own, length in zip(one.shape, other.shape, strict=True)
    )
    return (not other.dtype or kinds[0] == kinds[1]) and (is_open or is_shape)


def _tensor(value: Any, dtype: str) -> Any:
    """Return a value for a ``.pt2`` file: a tensor of torch if numpy lacks the dtype."""
    array = _array(value, "" if dtype in _EXTENDED else dtype)
    if dtype not in _EXTENDED or array.dtype.kind != "f":
        return array
    import torch

    return torch.from_numpy(array.copy()).to(getattr(torch, dtype))


def _array(value: Any, dtype: str) -> np.ndarray:
    """Return a value as an array; a float in the dtype of the file, which may be of another precision."""
    found = plain(value)
    if found is None:
        raise InputError("An input of the model is no plain tensor, so the file cannot be run on it.")
    array = np.asarray(found.array, order="C")
    if not found.is_float or dtype in ("", array.dtype.name):
        return array
    ml_dtypes = sys.modules.get("ml_dtypes")  # which onnx imports
    other = (
        getattr(ml_dtypes, dtype, None)
        if dtype in _EXTENDED
        else np.dtype(dtype)
        if "float" in dtype
        else None
    )
    return array if other is None else array.astype(other)


#: Why model and file are not run on other inputs.
_NOT_OF_A_TRACE = "Not run on other inputs: a trace is of a pass that ran already."
_NOT_OF_OTHERS = "Not run on other inputs: only a PyTorch model in Python is."
#: How many choices of a model's inputs are tried for those of a file.
_MOST_CHOICES = 1000

#: Dtypes of floats that numpy has by the package ml_dtypes alone.
_EXTENDED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


#: Operations of quantized files.
_QUANTIZED = {"dequantize_linear", "dynamic_quantize_linear", "qlinear_conv", "qlinear_matmul"} | {
    "matmul_integer",
    "conv_integer",
}


def _in_training(graph: Graph) -> list[str]:
    """Return the classes of modules in training mode that compute otherwise in it."""
    if not graph.facts.get("training"):
        return []
    return sorted(
        {m.type for m in graph.modules if m.training and ("Dropout" in m.type or "BatchNorm" in m.type)}
    )
