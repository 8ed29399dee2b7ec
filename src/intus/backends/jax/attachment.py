"""Observe the steps of a training: run a shadow of the step before it, on the same arguments."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from functools import partial, update_wrapper
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakSet

from ...core.errors import CaptureError, InputError
from ..base import Operation, Tap
from ..left_out import LeftOut
from ..several import Several
from .arrays import captured
from .followed import Followed
from .kin import UNKNOWN, Kin
from .library import Library, Opened
from .modes import Modes, Traits, name_of
from .shadow import ModelCall, Shadow

logger = logging.getLogger("intus.backends")
#: The most shadows of one step. A step that is traced anew so often is not worth observing.
_MOST = 16
_SEVERAL = (
    "The step takes several gradients of {}, of which only the first is recorded. Take each in a step "
    "of its own, or the gradient of the sum of the losses."
)
_CHANGED = (
    "{} of {} is not recorded: the step computes with the parameter before the model gets it, as with a "
    "pruning mask, so that the tensor that the layer uses is another one. Let the model itself do that in "
    "its call, or probe a step that gives the model the parameters as they are."
)
_LACKING = (
    "The step differentiates by {}, but has no gradient of it that can be recorded: it takes one for each "
    "record, as jax.vmap around jax.grad does, or the loss does not depend on it, so that it is 0."
)
_DERIVED = (
    "Gradients at {} are not recorded: the loss is made of derivatives of the model, and what the step "
    "computes there may be one of these, not a gradient of the loss, as at a frozen part before what is "
    "trained."
)
_PARTLY = (
    "{} ran both inside and outside of a loop or a branch (lax.scan, fori_loop, while_loop, cond). Only the "
    "calls outside are recorded: where a training runs in a loop, those are not its steps."
)

_OTHER = (
    "The {1} among the arguments of {0} is another one than that which was probed, so calls of it are not "
    "recorded. Give each model a probe and a step of its own."
)
_MAPPED = (
    "the step runs jax.vmap over the model, as over the members of an ensemble. Probe one member, in a step "
    "of its own"
)

#: The attachments that are not removed, to which calls in ``JaxBackend.evaluation`` are passed.
_ATTACHED: WeakSet[Attachment] = WeakSet()


def attached_to(model: Any) -> list[Attachment]:
    """Return the attachments to a model."""
    return [attachment for attachment in list(_ATTACHED) if attachment.model is model]


def latest(model: Any) -> Any:
    """Return a model as the steps have trained it that an attachment to it observes.

    Raises:
        InputError: If they return another model, and it is not known which.
    """
    attached = attached_to(model)
    following = [attachment for attachment in attached if attachment.follows] or attached
    return following[0].latest() if following else model


#: The call of a step whose start is being reported to the tap, for ``mode_of_call``.
_STARTING: ContextVar[StepInputs | None] = ContextVar("starting", default=None)


def mode_of_call(model: Any) -> str | None:
    """Return the mode of the call of a model's step that is about to start; None if none is."""
    starting = _STARTING.get()
    return starting.mode() if starting is not None and starting.model is model else None


class StepInputs:
    """The arguments of one step, as ``Tap.on_forward_start`` receives them.

    Args:
        attachment: The observer of the step.
        call: The step's function, its arguments and its keyword arguments.

    Attributes:
        model: The model.
    """

    __slots__ = ("_attachment", "_call", "_shadow", "model")

    def __init__(self, attachment: Attachment, *call: Any) -> None:
        self._attachment, self._call, self.model = attachment, call, attachment.model
        self._shadow: tuple[Shadow, Opened] | None = None

    @property
    def library(self) -> Library:
        """The library of the model."""
        return self._attachment.library

    def shadow(self) -> tuple[Shadow, Opened]:
        """Return the shadow of the call, and its arguments, which are opened once: that takes long for NNX.

        Raises:
            InputError: If the model is not among the arguments.
            CaptureError: If the step cannot be observed.
        """
        if self._shadow is None:
            self._shadow = self._attachment.shadow(*self._call)
        return self._shadow

    def mode(self) -> str:
        """Return the mode of the call."""

        def traits() -> Traits:
            shadow, _ = self.shadow()
            return Traits(shadow.takes_gradients, shadow.trains)

        return self._attachment.mode(traits, *self._call)

    def data(self) -> list[Any] | str:
        """Return the arrays that the first call of the model gets, or why they have no rows."""
        shadow, opened = self.shadow()
        return _MAPPED if shadow.calls.maps_model else shadow.data(opened.arrays)

    def forms(self) -> list[Any]:
        """Return the arrays that the first call of the model gets, each as its shape and dtype."""
        calls = self.shadow()[0].calls
        return [] if calls.maps_model else [variable.aval for variable in calls.data]

    def model_call(self) -> ModelCall | None:
        """Return the first call of the model in the step, or None.

        Raises:
            CaptureError: If ``jax.vmap`` runs over the model, so that there is no call of one model.
        """
        shadow, _ = self.shadow()
        if shadow.calls.maps_model:
            raise CaptureError(_MAPPED)
        return shadow.model_call


class Attachment:
    """The result of ``attach``; ``through`` returns the observed step.

    Args:
        library: The library of the model.
        model: The model.
        operations: The operations to observe; empty for a library that knows them from calls only.
        kinds: The kinds of tensors to observe.
        tap: The observer.
    """

    def __init__(
        self, library: Library, model: Any, operations: list[Operation], kinds: tuple[str, ...], tap: Tap
    ) -> None:
        self.library, self.model, self._kinds, self._tap = library, model, kinds, tap
        self._several = Several(tap)
        self._known = {operation.address: operation for operation in operations}
        self._addresses = set(self._known) if operations or library.operations(model) else None
        self._shadows: dict[tuple[Any, Hashable], Shadow | Exception] = {}
        #: Steps that need the values of numbers among their arguments (``static_argnums``).
        self._static: set[Callable[..., Any]] = set()
        self._modes = Modes(library, model, self._warn)
        self._kin = Kin(lambda: library.arrays(self.model)[0])
        self._updates: bool | None = None  # whether the steps update the model itself; None before the first
        self._followed: Followed | None = None  # the model, if the steps return another one
        self._made_of: Callable[[Sequence[Any]], Any] | None = None  # makes the model of other arrays
        self._on_other_rows: Callable[[str], None] | None = getattr(tap, "on_other_rows", None)
        self.removed = False
        _ATTACHED.add(self)

    def remove(self) -> None:
        """Stop observing. Steps that went through run unobserved from now on."""
        self.removed = True
        self.model = self._followed = self._made_of = None
        self._kin = Kin(list)
        _ATTACHED.discard(self)
        self._shadows.clear()

    def through(self, step: Callable[..., Any]) -> ObservedStep:
        """Return the step, observed at each call.

        Args:
            step: A step of the training that ``jax.jit``, ``nnx.jit`` or ``eqx.filter_jit`` returned. The
                model, or its parameters, must be among its arguments.

        Returns:
            A function with the same arguments and results, which calls ``step`` itself.

        Raises:
            InputError: If the step is not a compiled function.
        """
        return ObservedStep(self, step, _python_function(step))

    @property
    def follows(self) -> bool:
        """True if it knows which model the steps return."""
        return self._followed is not None

    def latest(self) -> Any:
        """Return the model as the steps have trained it.

        Raises:
            InputError: If it is not known.
        """
        if self._updates is not False:
            return self.model
        if self._followed is None or self._made_of is None:
            raise InputError(
                f"This {type(self.model).__name__} has the parameters from before the training, whose steps "
                "return another model. Pass the trained one."
            )
        return self._made_of(self._followed.arrays)

    def begins(
        self, function: Callable[..., Any], args: Any, kwargs: Any, on_error: Callable[[Exception], None]
    ) -> bool:
        """Observe the call of a step that is about to run. It never raises.

        Args:
            function: The step's Python function.
            args: Its arguments.
            kwargs: Its keyword arguments.
            on_error: Receives errors, for if the step itself raises, they are the caller's.

        Returns:
            True if the call was left out, and so may be others of the step; see ``leave_out``.
        """
        try:
            if self._updates is None:
                self._updates = self.library.updates(self.model, args, kwargs)
                if not self._updates and getattr(self._tap, "evaluates", False):
                    arrays, self._made_of = self.library.arrays(self.model)
                    self._followed = Followed(arrays)
            if self._followed is not None:
                self._followed.begins(function, (args, kwargs))
        except Exception as error:
            self._tap.on_error(error)
        is_left_out = self.observe(function, args, kwargs, on_error, of_training=True)
        return is_left_out and self._followed is None

    def leave_out(self, left: Callable[[bool], int]) -> int:
        """Return how many of the next calls need not begin; see ``ModelTap.leave_out``."""
        try:
            leave_out = getattr(self._tap, "leave_out", None)
            return 0 if leave_out is None else int(leave_out(left))
        except Exception as error:
            self._tap.on_error(error)
            return 0

    def on_error(self, error: Exception) -> None:
        """Pass an error of the observation to the tap."""
        self._tap.on_error(error)

    def ends(self, function: Callable[..., Any], result: Any) -> None:
        """Observe the result of a step. It never raises."""
        try:
            self._kin.returns(function, result)
            if self._followed is not None:
                self._followed.ends(function, result)
        except Exception as error:
            self._tap.on_error(error)

    def observe(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        on_error: Callable[[Exception], None] | None = None,
        *,
        of_training: bool = False,
    ) -> bool:
        """Pass the tensors of a call to the tap, if it wants this call. It never raises.

        Args:
            function: The function.
            args: Its arguments.
            kwargs: Its keyword arguments.
            on_error: Receives errors; by default the tap.
            of_training: Whether the caller calls it, who may give it another model.

        Returns:
            True if the tap left the call out.
        """
        on_error = on_error or self._tap.on_error
        inputs = StepInputs(self, function, args, kwargs)
        try:
            token = _STARTING.set(inputs)
            try:
                is_left_out = self._tap.on_forward_start(inputs) is False
            finally:
                _STARTING.reset(token)
            if is_left_out:
                return True
            output: Any = None
            try:
                known, began = len(self._shadows), _now()
                shadow, opened = inputs.shadow()
                is_model = not of_training or self._is_model(function, shadow, opened)
                if len(self._shadows) > known:
                    began = (
                        _now()
                    )  # a compilation is no cost of each pass, as the recording of a graph is none
                output = self._show(shadow, opened.arrays, began) if is_model else None
            except Exception as error:
                on_error(error)
            self._tap.on_forward_end(output)
        except Exception as error:
            on_error(error)
        return False

    def mode(self, traits: Callable[[], Traits], function: Callable[..., Any], args: Any, kwargs: Any) -> str:
        """Return the mode of a call of a step, whose traits a function finds; see ``Modes.of``."""
        numbers, is_named = function in self._static, getattr(self._tap, "mode", None) is not None
        return self._modes.of(function, (args, kwargs), traits, numbers=numbers, tells=not is_named)

    def _warn(self, text: str) -> None:
        """Pass a warning to the tap, or log it."""
        warn = getattr(self._tap, "warn", None)
        if warn is None:
            logger.warning("intus: %s", text)
        else:
            warn(text)

    def _is_model(self, function: Callable[..., Any], shadow: Shadow, opened: Opened) -> bool:
        """Return False for a call of another model than the probed one; say so, also if it may be one."""
        if opened.is_same:
            return True
        given = [[opened.arrays[at] for at in positions] for positions in shadow.given]
        doubt = self._kin.doubt(function, given, trains=shadow.takes_gradients)
        is_other = doubt == UNKNOWN and opened.is_same is False
        if doubt:
            self._warn((_OTHER if is_other else doubt).format(name_of(function), type(self.model).__name__))
        return not is_other

    def shadow(self, function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Shadow, Opened]:
        """Return the shadow of a call, and its arguments.

        Raises:
            InputError: If the model is not among the arguments.
            CaptureError: If the step cannot be observed.
        """
        opened = self.library.open(self.model, args, kwargs, numbers=function not in self._static)
        key = function, opened.key
        shadow = self._shadows.get(key)
        if shadow is None:
            if len(self._shadows) >= _MOST:
                raise CaptureError(
                    f"The step was called with more than {_MOST} different shapes or settings, so further "
                    "ones are not recorded. Pass numbers that change as arrays."
                )
            try:
                shadow = self._traced(function, args, kwargs, opened)
            except TypeError as error:
                if function not in self._static:
                    self._static.add(function)
                    return self.shadow(function, args, kwargs)
                shadow = error
            except Exception as error:
                shadow = error
            self._shadows[key] = shadow
        if isinstance(shadow, Exception):
            raise shadow.with_traceback(None)
        return shadow, opened

    def _traced(self, function: Callable[..., Any], args: Any, kwargs: Any, opened: Opened) -> Shadow:
        shadow = Shadow(self.library, self.model, function, opened, self._kinds, self._addresses)
        self._tell_of(shadow)
        return shadow

    def _tell_of(self, shadow: Shadow) -> None:
        """Tell the tap what of a new shadow is not observed: modules in loops, more arrays and gradients."""
        met = getattr(self._tap, "met", None)
        visited = {visit.address for visit in shadow.visits}
        for address in shadow.classes:
            if met is not None and address not in visited:
                met(self._operation(shadow, address))
        for address, (names, main) in shadow.returned.items():
            self._several.tell(address, names, main)
        if shadow.partly:
            self._tap.on_error(CaptureError(_PARTLY.format(", ".join(map(repr, shadow.partly)))))
        if shadow.several:
            self._tap.on_error(CaptureError(_SEVERAL.format(", ".join(shadow.several))))
        for kind, addresses in shadow.changed.items():
            if kind in self._kinds:
                self._tap.on_error(CaptureError(_CHANGED.format(kind, ", ".join(addresses))))
        if shadow.lacking:
            self._tap.on_error(CaptureError(_LACKING.format(", ".join(shadow.lacking))))
        if shadow.derived:
            self._tap.on_error(CaptureError(_DERIVED.format(", ".join(map(repr, shadow.derived)))))

    def _operation(self, shadow: Shadow, address: str) -> Operation:
        """Return the operation at an address, which the shadow has met."""
        operation = self._known.get(address)
        if operation is None:
            cls = shadow.classes[address]
            operation = self._known[address] = Operation(address, cls.__name__, cls)
        return operation

    def _show(self, shadow: Shadow, arrays: list[Any], began: tuple[float, float]) -> Any:
        """Pass the tensors of a call to the tap, which computes them when the first one is copied."""
        outputs: list[Any] = []

        def value(position: int) -> Any:
            if not outputs:
                outputs.extend(shadow(arrays))
            return outputs[position]

        for visit in shadow.visits:
            ticket = self._tap.wants(self._operation(shadow, visit.address))
            if visit.has_other_rows and ticket is not None and self._on_other_rows is not None:
                for item in visit.items:
                    if not item.kind.startswith("parameter"):
                        self._on_other_rows(item.address)
            for item in visit.items if ticket is not None else ():
                aval, position = shadow.avals[item.position], item.position
                tensor = captured(
                    item.address,
                    item.kind,
                    item.which,
                    aval,
                    partial(value, position),
                    began,
                    without_rows=item.without_rows,
                )
                self._tap.on_tensor(ticket, tensor)
                began = _now()
        return True


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


class ObservedStep:
    """A step that is observed before each call. All its other attributes are those of the step itself."""

    def __init__(
        self, attachment: Attachment, step: Callable[..., Any], function: Callable[..., Any]
    ) -> None:
        update_wrapper(self, step)
        self._attachment, self._step, self._function = attachment, step, function
        self._left_out = LeftOut()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the step."""
        if self._left_out.calls:
            self._left_out.calls -= 1
            result = self._step(*args, **kwargs)
            if not self._attachment.removed:
                self._attachment.ends(self._function, result)
            return result
        attachment, errors = self._attachment, list[Exception]()
        if not attachment.removed and attachment.begins(self._function, args, kwargs, errors.append):
            self._left_out.calls = attachment.leave_out(self._left_out.left)
        result = self._step(*args, **kwargs)  # if it raises, so did its shadow, and the caller is told
        for error in errors:
            attachment.on_error(error)
        if not attachment.removed:
            attachment.ends(self._function, result)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def _described(step: Any) -> str:
    """Describe what is no compiled step; the repr of a model would be pages long."""
    if isinstance(step, partial):
        return f"a functools.partial of {name_of(step.func)!r}"
    kind, name = type(step).__name__, getattr(step, "__name__", None)
    if name is None:
        return f"{'an' if kind[:1].lower() in 'aeio' else 'a'} {kind}"
    return f"the {kind} {name!r}"


def _python_function(step: Any) -> Callable[..., Any]:
    """Return the function that a compiled step was made of."""
    if isinstance(step, FunctionType | MethodType) or not hasattr(step, "__wrapped__"):
        raise InputError(
            "through() takes a step compiled by jax.jit, nnx.jit or eqx.filter_jit, got "
            f"{_described(step)} without __wrapped__. Compile it, or pass it in without a wrapper around it."
        )
    while hasattr(step, "__wrapped__") and not isinstance(step, FunctionType | MethodType):
        step = step.__wrapped__
    function: Callable[..., Any] = step
    return function
