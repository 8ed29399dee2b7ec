"""Compute a finished pass again with changes, downstream of them only; see ``Trace.rerun``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...core.analysis.walks import ancestors
from ...core.errors import CaptureError, InputError
from ...core.graph import OUTPUT, PARAMETER
from ..capture.invocation import PLACEHOLDER, Invocation
from ..capture.saving.store import for_replay
from .call_inputs import CallInputs, MismatchError, rows_by_call
from .edits import Change, Edits, resolve_edits
from .replay import Replays, UnprovenError, run_call, same, unrecorded

if TYPE_CHECKING:
    from ..results.trace import Trace


_DROPPED = "depends on the change and could not be run again; no output depends on it"

_ON_BRANCH_CHANGE = (
    "Pass on_branch_change='ignore' to follow the recorded ones all the same, or trace the changed model "
    "instead."
)


def rerun(
    trace: Trace,
    changes: Mapping[str | int, Change],
    swap: Mapping[str | int, Callable[..., Any]],
    on_branch_change: str,
) -> Trace:
    """Return the trace with changes to values and with some functions replaced; see ``Trace.rerun``.

    Args:
        trace: The trace.
        changes: What each address becomes.
        swap: The function to run instead, by address.
        on_branch_change: ``"raise"`` or ``"ignore"``.

    Raises:
        AddressError: If an address means nothing.
        InputError: If an argument is not valid, or a shape or dtype would change.
        CaptureError: If an affected call cannot be run again, or a value that the model read changed.
    """
    if on_branch_change not in ("raise", "ignore"):
        raise InputError(f"on_branch_change={on_branch_change!r} is not one of 'raise', 'ignore'.")
    for given in (changes, swap):
        if not isinstance(given, Mapping):
            raise InputError(
                f"rerun takes a dict from address to change, such as {{'fc': 0}}, got {given!r}."
            )
    if trace._replays is None:
        raise InputError(
            "This trace has no calls to run again: it was taken with save='none', copied, or read from a "
            "file. Trace the model again with save='all'."
        )
    new, earlier = resolve_edits(trace, changes, swap), trace._edits or Edits()
    replays = trace._replays.with_params(
        {number: _edited_param(trace, number, edit) for number, edit in new.params.items()}
    )
    run = _Rerun(trace, replays, new, earlier, checked=on_branch_change == "raise")
    values = run.values()
    merged = new.after(earlier)
    labels = sorted({trace.graph.label(row) for row in (*merged.values, *merged.functions)})
    graph = dataclasses.replace(trace.graph, facts={**trace.graph.facts, "changed": labels})
    result = type(trace)(graph, values, trace.maybe_modified, replays)
    result._edits = merged
    result.not_stored = trace.not_stored | dict.fromkeys(run.dropped, _DROPPED)
    return result


def _edited_param(trace: Trace, number: int, edit: Callable[[Tensor], Tensor]) -> Tensor:
    assert trace._replays is not None
    try:
        return edit(trace._replays.param(number))
    except UnprovenError as error:
        raise CaptureError(f"{error}. Trace the model again.") from None


class _RaisedError(CaptureError):
    """A call raised after the change, as it would in the model."""


class _Rerun:
    """One rerun.

    Attributes:
        now: The values by row, so far.
        changed: The rows whose value differs from the original pass.
        dropped: The rows without a value: they depend on the change and could not be run again, and no output
            or decision depends on them.
    """

    def __init__(self, trace: Trace, replays: Replays, new: Edits, earlier: Edits, *, checked: bool) -> None:
        self.trace, self.graph, self.replays = trace, trace.graph, replays
        self.new, self.earlier, self.checked = new, earlier, checked
        self.now, self.changed, self.dropped = for_replay(trace.values), set[int](), set[int]()
        ends = [*self.graph.rows_of(OUTPUT), *(branch.row for branch in self.graph.branches if checked)]
        self._needed = {*ends, *ancestors(self.graph, ends), *new.values, *new.functions}
        self.inputs = CallInputs(self.graph, replays, self.now, trace.why_not_stored)

    def values(self) -> MutableMapping[int, Tensor]:
        """Return all values after the changes."""
        calls = rows_by_call(self.graph)
        in_calls = {row for rows in calls.values() for row in rows}
        with unrecorded():
            for row in self.graph.rows_of(PARAMETER):
                self._returned_parameter(row)
            for row in sorted(set(self.new.values) - in_calls):  # inputs, buffers and constants come first
                self._put(row, self._value(row))
            for event, rows in calls.items():
                self._call(event, rows)
            if self.checked:
                self._check_branches()
        return self.now

    def _returned_parameter(self, row: int) -> None:
        """Change the value of a parameter that a module returned, if the parameter is changed."""
        for number in self.graph.row_params[row]:
            if number in self.new.params:
                self._put(row, self.replays.param(number))

    def _call(self, event: int, rows: list[int]) -> None:
        if self.graph.dtype_of(rows[0]) == "":
            return  # it raised and returned nothing
        if any(row in self.new.functions for row in rows) or self._is_affected(event, rows):
            functions = {**self.earlier.functions, **self.new.functions}
            swapped = next((functions[row] for row in rows if row in functions), None)
            try:
                out = self._run(event, rows, swapped, self.inputs)
                for row in rows:
                    value = out[max(int(self.graph.ops.output[row]), 0)]
                    for edit in self.earlier.values.get(row, ()):
                        value = edit(value)
                    self._put(row, value)
                self._refuse_modes(event, rows)
            except (CaptureError, InputError) as error:
                if not self._needed.isdisjoint(rows):
                    raise
                if (
                    self.checked
                    and isinstance(error, _RaisedError | InputError)
                    and self._fits_unchanged(event, rows)
                ):
                    raise self._other_shape(error, rows[0]) from None
                for row in rows:  # it leads nowhere, so the values that matter are known without it
                    self.now.pop(row, None)
                self.dropped.update(rows)
                self.changed.update(rows)
        else:
            for row in rows:
                if row in self.new.values:
                    self._put(row, self._value(row))

    def _fits_unchanged(self, event: int, rows: list[int]) -> bool:
        """Return whether a call runs again as before without the change, unlike one inside ``vmap``."""
        try:
            out = self._run_unchanged(event, rows)
        except _RaisedError:
            return False
        except CaptureError:  # an argument was not saved
            return True
        return all(self._fits(row, value) for row, value in out.items())

    def _run_unchanged(self, event: int, rows: list[int]) -> dict[int, Tensor]:
        """Run a call again without the change, and return the values by row."""
        assert self.trace._replays is not None
        values, why_missing = for_replay(self.trace.values), self.trace.why_not_stored
        out = self._run(event, rows, None, CallInputs(self.graph, self.trace._replays, values, why_missing))
        return {row: out[max(int(self.graph.ops.output[row]), 0)] for row in rows}

    def _refuse_modes(self, event: int, rows: list[int]) -> None:
        """Raise CaptureError if a mode around the trace changed what a call does."""
        # ``DeviceContext`` (``with torch.device``) only changes functions that take no tensor.
        modes = [mode for mode in self.replays.modes_around if mode != "DeviceContext"]
        if not modes or any(row in self.earlier.functions or row in self.new.functions for row in rows):
            return
        for row, value in self._run_unchanged(event, rows).items():
            is_known = row not in self.earlier.values and row in self.trace.values
            if is_known and not same(value, self.trace.values[row]):
                raise CaptureError(
                    f"{self.graph.label(row)!r} depends on the change and cannot be run again: it ran under "
                    f"{', '.join(modes)}, which changed what it does."
                )

    def _other_shape(self, error: Exception, row: int) -> Exception:
        """Return the error for a call without output that would not run as before in the model."""
        if isinstance(error, _RaisedError):
            return error
        return CaptureError(
            f"After the change {self.graph.label(row)!r} has another shape or dtype, which the model may "
            f"have read, so it might have run other operations. {_ON_BRANCH_CHANGE}"
        )

    def _is_affected(self, event: int, rows: list[int]) -> bool:
        """Return whether an argument of the call has changed."""
        if self.new.params and any(
            param in self.new.params for row in rows for param in self.graph.row_params.get(row, ())
        ):
            return True
        if not self.changed:
            return False
        if any(
            parent in self.changed
            for row in rows
            for parent in self.inputs.parents_by_arg.get(row, {}).values()
        ):
            return True
        call, end = self.replays.call(event), self.replays.outputs.get(rows[0])
        patches = [
            tensor_arg.patch
            for tensor_arg in (*(call.tensor_args if call else ()), end)
            if tensor_arg and tensor_arg.patch
        ]
        return any(row in self.changed for p in patches for row in (p.base, *(row for row, _ in p.writes)))

    def _run(
        self, event: int, rows: list[int], swapped: Callable[..., Any] | None, inputs: CallInputs
    ) -> list[Tensor]:
        label = self.graph.label(rows[0])
        try:
            if int(self.graph.ops.kind[rows[0]]) == OUTPUT:
                return [inputs.output(rows[0])]
            call = self.replays.call(event)
            if call is None:
                raise UnprovenError(
                    "its call was not recorded, because it raised or ran where it cannot be recorded"
                )
            given = [inputs.argument(tensor_arg, rows[0]) for tensor_arg in call.tensor_args]
        except (UnprovenError, MismatchError) as error:
            raise CaptureError(f"{label!r} depends on the change and cannot be run again: {error}.") from None
        if swapped is not None:
            return _swapped(call, swapped, given, label)
        try:
            return run_call(call, given)
        except UnprovenError as error:
            raise CaptureError(f"{label!r} depends on the change and cannot be run again: {error}.") from None
        except Exception as error:
            raise _RaisedError(
                f"After the change {label!r} raised {type(error).__name__}: {error}"
            ) from error

    def _put(self, row: int, value: Tensor) -> None:
        """Apply the new edits of a row to its value and store it; shape and dtype must stay."""
        for edit in self.new.values.get(row, ()):
            value = edit(value)
        meta, label = self.graph.metas[int(self.graph.ops.meta[row])], self.graph.label(row)
        if not self._fits(row, value):
            raise InputError(
                f"After the change {label!r} is {tuple(value.shape)} {value.dtype}, and was {meta.shape} "
                f"{meta.dtype}. A rerun keeps shapes and dtypes. To change them, trace the changed model."
            )
        self.now[row] = value
        self.changed.add(row)

    def _fits(self, row: int, value: Tensor) -> bool:
        """Return whether a value has the shape and dtype that the row had in the pass."""
        meta = self.graph.metas[int(self.graph.ops.meta[row])]
        return tuple(value.shape) == meta.shape and str(value.dtype).removeprefix("torch.") == meta.dtype

    def _check_branches(self) -> None:
        """Raise CaptureError if a value that the model's Python code read has changed."""
        assert self.trace._replays is not None
        for number, how in self.replays.param_reads.items():
            if number in self.new.params and not same(
                self.trace._replays.param(number), self.replays.param(number)
            ):
                self._refuse(self.graph.params[number].address, how, "differs")
        for branch in self.graph.branches:
            if branch.row in self.changed:
                was, now = self.trace.values.get(branch.row), self.now[branch.row]
                label = self.graph.label(branch.row)
                if was is None:
                    self._refuse(label, branch.how, "was not saved and may differ")
                elif bool(was) != bool(now) if branch.how == "bool" else not same(was, now):
                    self._refuse(label, branch.how, "differs")

    def _refuse(self, name: str, how: str, why: str) -> None:
        raise CaptureError(
            f"The model read the value of {name!r} ({how}), which {why} after the change, so it might have "
            f"run other operations. {_ON_BRANCH_CHANGE}"
        )

    def _value(self, row: int) -> Tensor:
        try:
            return self.inputs.value(row)
        except UnprovenError as error:
            raise CaptureError(
                f"The change needs a value that is missing: {error}. Trace with save='all'."
            ) from None


def _swapped(call: Invocation, function: Callable[..., Any], given: list[Tensor], label: str) -> list[Tensor]:
    """Run another function in a call's place, with the tensors as its only arguments, in their order."""
    instead = call._replace(func=function, args=(PLACEHOLDER,) * len(given), kwargs={}, picks=None)
    try:
        return run_call(instead, given)
    except Exception as error:
        tensors = "tensor" if len(given) == 1 else f"{len(given)} tensors"
        error.add_note(f"The function was called with the {tensors} of {label!r}, in whose place it runs.")
        raise
