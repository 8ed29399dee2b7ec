"""Observe a Session of TensorFlow 1: its ``run`` fetches the watched tensors in the same call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...core.address import of_call
from ...core.errors import CaptureError, InputError
from ..base import Operation, Tap
from ..left_out import LeftOut
from .observer import Observer
from .plan import Plan, ancestors, check_fetches, elements, gradient_notes, is_random, observable, plan
from .purpose import is_source
from .values import LazyArguments, possible_kinds

KINDS = ("output", "grad_output")
SESSIONS = (tf.compat.v1.Session, tf.compat.v1.InteractiveSession)
_ELEMENTS = (tf.Tensor, tf.Operation, str)
_OVERLAPS = (
    "A run of the Session is not recorded while another thread's run of it is, so that every record is of "
    "one run. Rows have no labels by order of arrival then. To record all of them, run one at a time."
)
_NOT_RUN = "What %s runs is not recorded, for it does not call Session.run. %s."
_INSTEAD = {
    "make_callable": ("make_callable without a feed_list", "Pass a feed_list, or call run"),
    "partial_run_setup": ("partial_run_setup", "Call run instead"),
}
#: The most runs that are remembered. A script may name its fetches by new strings in each run.
#: The collections of a graph's variables; metrics count in local ones.
_VARIABLES = tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, tf.compat.v1.GraphKeys.LOCAL_VARIABLES
_MOST = 256
_STATE = "_intus_attachments"  # attribute of a Session, as long as something is attached


class _Known(NamedTuple):
    """Facts about a run.

    Attributes:
        named: Its fetches and feeds, which keys have the identities of: other objects could have them later.
        mode: ``"train"`` if it changes variables, else ``"eval"``.
        plans: What each attachment can have of it, if that is anything.
    """

    named: list[Any]
    mode: str
    plans: list[tuple[SessionAttachment, Plan]]


class _Attachments(list["SessionAttachment"]):
    """The attachments of a Session.

    Attributes:
        mode: That of the last run.
        lock: Held while a run is reported, and not while it runs.
        known: What was found out of earlier runs, by fetches and feeds.
        left_out: How many of the next runs that are like ``left_out_like`` are not reported.
        left_out_like: The identities of a run's fetches and feeds, and these themselves.
    """

    mode = "train"

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()  # scripts train one Session from several threads
        self.known: dict[Any, _Known] = {}
        self.left_out = LeftOut()
        self.left_out_like: tuple[Any, list[Any]] = None, []

    def leave_out(self, known: _Known, fetches: Any, feed_dict: Any) -> None:
        """Leave out the next runs like one of the training that was just skipped, if the tap allows."""
        single = fetches if isinstance(fetches, list) else [fetches]
        is_alone = len(known.plans) == 1 and known.mode == "train"
        if is_alone and all(isinstance(one, _ELEMENTS) for one in single):  # no lists, which may change
            self.left_out_like = _identities(fetches, feed_dict), [*single, *(feed_dict or ())]
            self.left_out.calls = known.plans[0][0].observer.leave_out(self.left_out.left)


class SessionAttachment:
    """Attaches to one Session; several may be attached at a time.

    Args:
        session: The Session.
        operations: The operations to observe.
        kinds: The kinds of tensors to capture.
        tap: The observer.

    Raises:
        InputError: If a kind cannot be captured, or the Session is closed.
    """

    def __init__(self, session: Any, operations: Iterable[Operation], kinds: Iterable[str], tap: Tap) -> None:
        checked = possible_kinds(tuple(kinds), KINDS, "a Session")
        check_open(session)
        self.observer = Observer(checked, tap)
        self.is_running = False  # a run is observed, on whatever thread
        self._session, self._operations = session, list(operations)
        attached = vars(session).setdefault(_STATE, _Attachments())
        if not attached:
            session.run = _observed_run(session)
            for name in _INSTEAD:
                setattr(session, name, _reported(session, name))
        attached.append(self)
        attached.known.clear()

    def remove(self) -> None:
        """Restore ``run``. Calling it again has no effect."""
        self.observer.stop()
        attached = vars(self._session).get(_STATE, _Attachments())
        if self in attached:
            attached.remove(self)
            attached.known.clear()
            if not attached:
                for name in (_STATE, "run", *_INSTEAD):
                    del vars(self._session)[name]

    def plan(self, ends: list[Any], fed: frozenset[str]) -> Plan:
        """Return what a run with these fetches and feeds computes anyway."""
        if "grad_output" in self.observer.kinds:
            for sentence in gradient_notes(self._operations):
                self.observer.note(sentence)
        return plan(self._operations, ends, fed)


class _Run:
    """An observed run of a Session for one attachment: the tensors to fetch with it, and their delivery."""

    def __init__(self, attachment: SessionAttachment, made: Plan) -> None:
        self._attachment, self._observer = attachment, attachment.observer
        attachment.is_running = True
        self._wanted: list[tuple[Any, Any]] = []  # ticket, address and kind, and the tensor to fetch
        visits = {one.operation.address: self._observer.visit(one.operation) for one in made.outputs}
        for one in (*made.outputs, *made.gradients):
            visit = visits[one.operation.address]
            if visit is not None and one.kind in self._observer.kinds:
                address = of_call(visit.address, one.number)  # a run calls each operation once
                self._wanted.append(((visit.ticket, address, one.kind), one.tensor))

    @property
    def tensors(self) -> list[Any]:
        return [tensor for _, tensor in self._wanted]

    def deliver(self, arrays: list[np.ndarray]) -> None:
        for (facts, _), array in zip(self._wanted, arrays, strict=False):  # none if the run raised
            ticket, address, kind = facts
            self._observer.show(ticket, address, kind, array)

    def end(self, output: Any) -> None:
        self._attachment.is_running = False
        self._observer.end(output)


def _observed_run(session: Any) -> Callable[..., Any]:
    own = session.run

    @wraps(own)
    def run(fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        attachments = vars(session).get(_STATE)
        if attachments is None:  # the caller has kept this function beyond the removal
            return own(fetches, feed_dict, options, run_metadata)
        try:
            with attachments.lock:
                runs = _begun(session, attachments, fetches, feed_dict)
        except Exception as error:  # of fetches and feeds of the user, for which ``run`` raises, or of ours
            result = own(fetches, feed_dict, options, run_metadata)
            for one in attachments:
                one.observer.on_error(error)
            return result
        if not runs:
            return own(fetches, feed_dict, options, run_metadata)
        return _fetch_all(own, attachments.lock, runs, fetches, feed_dict, options, run_metadata)

    return run


def _begun(session: Any, attachments: _Attachments, fetches: Any, feed_dict: Any) -> list[_Run]:
    """Begin a run for the attachments, and return what those that observe it want of it."""
    if attachments.left_out.calls and attachments.left_out_like[0] == _identities(fetches, feed_dict):
        attachments.left_out.calls -= 1
        return []
    known = _known(session, attachments, fetches, feed_dict)
    attachments.mode = known.mode
    runs, overlaps = [], False
    for one, made in known.plans:
        if one.is_running:
            overlaps = True
            one.observer.refuse(CaptureError(_OVERLAPS))
        elif one.observer.begin(LazyArguments(partial(_inputs, feed_dict))):
            runs.append(_Run(one, made))
    if not runs and not overlaps:
        attachments.leave_out(known, fetches, feed_dict)
    return runs


def _identities(fetches: Any, feed_dict: Any) -> tuple[Any, ...]:
    """Return the identities of the elements of fetches, and those of feeds."""
    single = fetches if isinstance(fetches, list) else (fetches,)
    return *map(id, single), None, *map(id, feed_dict or ())


def _inputs(feed_dict: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arrays of a feed_dict as the arguments of a call."""
    values = (feed_dict or {}).values()
    return [one if hasattr(one, "shape") else np.asarray(one) for one in values], {}


def _known(session: Any, attachments: _Attachments, fetches: Any, feed_dict: Any) -> _Known:
    """Return what is known of a run; at once if the same was run before."""
    version = session.graph.version
    single = fetches if isinstance(fetches, list) else (fetches,)
    key: Any = _identities(fetches, feed_dict), version
    known = attachments.known.get(key)
    if known is not None:
        return known
    named = [*single, *(feed_dict or ())]
    slow = _key(fetches, named), _key(list(feed_dict or ()), named), version
    known = attachments.known.get(slow) if None not in slow else None
    if known is None:
        ends = elements(session.graph, fetches)
        fed = frozenset(fed_names(session.graph, feed_dict))
        plans = [(one, one.plan(ends, fed)) for one in attachments]
        ours = [one.tensor for _, made in plans for one in (*made.outputs, *made.gradients)]
        check_fetches(session.graph, ours)
        mode = "train" if any(made.trains for _, made in plans) else "eval"
        known = _Known(named, mode, [(one, made) for one, made in plans if made.outputs])
    if len(attachments.known) >= _MOST:
        attachments.known.clear()
    if None not in slow:
        attachments.known[slow] = known
    if all(isinstance(one, _ELEMENTS) for one in single):  # no lists, which may change
        attachments.known[key] = known._replace(named=named)
    return known


def _key(fetches: Any, named: list[Any]) -> Any:
    """Return what distinguishes fetches or feeds in lists, tuples and dicts; None for other structures.

    Args:
        fetches: The fetches or feeds.
        named: Gets the tensors and operations that the key names by their identity.
    """
    if isinstance(fetches, str):
        return fetches
    if isinstance(fetches, _ELEMENTS):
        named.append(fetches)
        return id(fetches)
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if isinstance(fetches, list | tuple):
        keys = tuple([_key(one, named) for one in fetches])
        return None if None in keys else keys
    return None


def _fetch_all(
    own: Callable[..., Any], lock: threading.RLock, runs: list[_Run], fetches: Any, *arguments: Any
) -> Any:
    """Run a Session with what the attachments want among the fetches, and return what the user wants."""
    tensors = [tensor for one in runs for tensor in one.tensors]
    result, arrays, completed = None, [], False
    try:
        if tensors:
            result, arrays = own([fetches, tensors], *arguments)
        else:
            result = own(fetches, *arguments)
        completed = True
        return result
    finally:
        with lock:
            for one in runs:
                one.deliver(arrays[: len(one.tensors)])
                arrays = arrays[len(one.tensors) :]
                one.end((result,) if completed else None)


def fed_names(graph: Any, feed_dict: Any) -> Iterator[str]:
    """Yield the names of the tensors that a run feeds, whatever structure they are in."""
    for key in feed_dict or ():
        for one in tf.nest.flatten(key, expand_composites=True):
            yield graph.as_graph_element(one, allow_operation=False).name


def _reported(session: Any, name: str) -> Callable[..., Any]:
    own = getattr(session, name)

    @wraps(own)
    def method(*args: Any, **kwargs: Any) -> Any:
        feeds = kwargs.get("feed_list", args[1] if len(args) > 1 else None)
        if name == "make_callable" and feeds is not None:  # then it calls run
            return own(*args, **kwargs)
        for one in vars(session).get(_STATE, ()):
            one.observer.on_error(CaptureError(_NOT_RUN % _INSTEAD[name]))
        return own(*args, **kwargs)

    return method


def session_mode(session: Any) -> str:
    """Return the mode of the run in progress, or of the last one that was observed."""
    return str(getattr(vars(session).get(_STATE), "mode", "train"))


# -- evaluation and state ----------------------------------------------------------------------------------


def check_open(session: Any) -> None:
    """Raise InputError if a Session is closed."""
    if session._closed:
        raise InputError("The Session is closed, and nothing can run in it. Probe it before close().")


def plain_run(session: Any, fetches: Any, feed_dict: Any = None) -> Any:
    """Run a Session without observing it."""
    return type(session).run(session, fetches, feed_dict)


@contextmanager
def session_evaluation(session: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that computes all that can be observed, from feeds; at the end restore all variables.

    It fetches the operations that are computed from the fed tensors alone, in whatever mode the feeds say,
    and returns the value of the last one. What draws random numbers is left out: a Session keeps the state
    of its generators, so that the training would draw others.

    Args:
        session: The Session.
    """

    def run(feeds: Any) -> Any:
        if not isinstance(feeds, Mapping):
            raise InputError(
                f"A Session is run with a mapping of placeholders to arrays, got {type(feeds).__name__}. "
                'Write {"x:0": rows}.'
            )
        fed = frozenset(fed_names(session.graph, feeds))
        tensors = [op.module.outputs[0] for op in observable(session.graph) if _is_computable(op.module, fed)]
        if not tensors:
            raise InputError(
                f"Nothing of the Session's graph is computed from {', '.join(sorted(fed)) or 'no feeds'} "
                "alone without drawing random numbers. Feed all placeholders of the model; a placeholder for "
                "the rate of a dropout does not keep it from drawing them."
            )
        return session.run(tensors, feeds)[-1]

    before = [(found, _read(session, found)) for found in map(session.graph.get_collection, _VARIABLES)]
    try:
        yield run
    finally:
        for found, values in before:
            _restore(session, found, values)


def _restore(session: Any, found: list[Any], before: list[np.ndarray] | None) -> None:
    """Give variables that a forward wrote to the values that they had before; None if they had none."""
    for variable, now, value in zip(found, _read(session, found) or (), before or (), strict=False):
        if now.tobytes() != value.tobytes():  # its initializer exists already: nothing is added to the graph
            plain_run(session, variable.initializer, {variable.initializer.inputs[1]: value})


def _is_computable(op: Any, fed: frozenset[str]) -> bool:
    """Return whether an operation is computed from fed tensors, and from no other data."""
    needed = ancestors([op.outputs[0]], fed)
    return any(tensor.name in fed for one in needed for tensor in one.inputs) and not any(
        is_source(one, with_default=False) or is_random(one) for one in needed
    )


def variables(session: Any) -> list[np.ndarray] | None:
    """Return the values of a Session's variables, or None if some have no value."""
    return _read(session, session.graph.get_collection(_VARIABLES[0]))


def _read(session: Any, found: list[Any]) -> list[np.ndarray] | None:
    try:
        return [np.asarray(value) for value in plain_run(session, list(found))]
    except (tf.errors.FailedPreconditionError, RuntimeError):  # not initialized, or closed
        return None
