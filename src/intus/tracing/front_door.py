"""Split a call of ``trace``, ``view``, ``validate`` or ``collect`` into model arguments and options.

These functions are called as the model is called: ``trace(model, x, mask=mask, save="none")`` runs
``model(x, mask=mask)``. A keyword is an option if the function has an option of that name. Any other keyword
goes to the model. A name that both have is an error, because either reading may be meant; the argument
``kwargs`` passes such a name to the model.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache, wraps
from types import MethodType
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from ..core.errors import InputError, did_you_mean
from .models import is_module, is_module_class

_P = ParamSpec("_P")
_R = TypeVar("_R")

_KWARGS = "kwargs"  # the option that holds keyword arguments of the model
_NEAR = 0.85  # similarity of names above which a keyword may be a misspelled option


class Arguments(NamedTuple):
    """The arguments of one call of a model.

    Attributes:
        args: The positional arguments.
        kwargs: The keyword arguments.
        alone: The mapping or tuple that was given alone, and whose items these arguments are; None if none.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    alone: Any = None


def arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Arguments:
    """Return the arguments that a model is called with.

    A mapping that is the only positional argument (a tokenizer's output) gives keyword arguments. A tuple
    that is the only one gives the positional arguments, unless it is a named tuple. To pass either as one
    argument, put it into a tuple. ``Arguments`` alone are returned unchanged: ``view`` passes them to
    ``trace``.

    Args:
        args: The positional arguments that the caller wrote.
        kwargs: The keyword arguments for the model.

    Returns:
        The arguments.

    Raises:
        InputError: If an argument is given twice, or a key of a mapping is no name.

    Example:
        >>> arguments((1, [2]), {"scale": 3})
        Arguments(args=(1, [2]), kwargs={'scale': 3}, alone=None)
        >>> arguments(((1, 2),), {}).args, arguments(({"x": 1},), {}).kwargs
        ((1, 2), {'x': 1})
    """
    keywords = dict(kwargs or {})
    alone = args[0] if len(args) == 1 else None
    if isinstance(alone, Arguments):
        return alone
    if isinstance(alone, tuple) and not hasattr(alone, "_fields"):
        return Arguments(alone, keywords, alone)
    if not isinstance(alone, Mapping):
        return Arguments(args, keywords)
    wrong = [key for key in alone if not isinstance(key, str)]
    if wrong:
        raise InputError(
            f"A mapping alone gives the model's keyword arguments, and its key {wrong[0]!r} is no name. To "
            "pass the mapping as one argument, put it into a tuple: (mapping,)."
        )
    twice = sorted(keywords.keys() & alone.keys())
    if twice:
        raise InputError(f"{twice} are given both in the mapping and as keywords. Give each argument once.")
    return Arguments((), {**alone, **keywords}, alone)


def split(
    verb: str, names: Collection[str], models: Iterable[Any], written: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keywords of a call into options and keyword arguments of the model.

    Args:
        verb: The name of the function that was called, for messages.
        names: The names of its options, among them ``kwargs``.
        models: What the function runs. What is not callable is ignored.
        written: The keywords that the caller wrote.

    Returns:
        The options without ``kwargs``, and the model's keyword arguments.

    Raises:
        InputError: If an option of that name is also a parameter of a model and ``kwargs`` is not given, a
            keyword is neither an option nor a parameter, a model takes any keyword and this one resembles an
            option, or an argument is given twice.

    Example:
        >>> def forward(x, mask=None, seed=0): ...
        >>> split("trace", ["save", "seed", "kwargs"], [forward], {"mask": 1, "save": "none"})
        ({'save': 'none'}, {'mask': 1})
        >>> split("trace", ["save", "seed", "kwargs"], [forward], {"seed": 1, "kwargs": {"seed": 2}})
        ({'seed': 1}, {'seed': 2})
    """
    if not written:
        return {}, {}
    in_kwargs = written.get(_KWARGS)
    if not (in_kwargs is None or isinstance(in_kwargs, Mapping)):
        raise InputError(
            f"kwargs must be a dict of the model's keyword arguments, got one {type(in_kwargs).__name__}. "
            "Other arguments are written as in a call of the model."
        )
    for model in models:
        parameters, is_open = _keywords(model)
        for name in written:
            if name not in names:
                _check_keyword(verb, name, names, model, parameters, is_open)
            elif name in parameters and (in_kwargs is None or (name == _KWARGS and name not in in_kwargs)):
                raise InputError(_how_to_tell_apart(verb, name, model))
    keywords = {name: value for name, value in written.items() if name not in names}
    twice = sorted(keywords.keys() & (in_kwargs or {}).keys())
    if twice:
        raise InputError(f"{twice} are given both in kwargs and as keywords. Give each argument once.")
    options = {name: value for name, value in written.items() if name in names and name != _KWARGS}
    return options, {**keywords, **(in_kwargs or {})}


def front_door(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make the unknown keywords of a function those of the model, its first argument.

    The keyword-only parameters of ``function`` are its options; ``beside`` may name a second model. The
    function receives every keyword argument of the model in ``kwargs``, always a dict. A decorator does
    this, because only the keywords as they were written show whether an option was given its default value.

    Args:
        function: A function ``(model, *args, options…, kwargs=None, **keywords)``.
    """
    parameters = inspect.signature(function).parameters.values()
    names = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    verb = function.__name__

    @wraps(function)
    def call(*args: _P.args, **written: _P.kwargs) -> _R:
        models = [*args[:1], *([written["beside"]] if "beside" in written else [])]
        options, kwargs = split(verb, [*names, *positional], models, written)
        return function(*args, **options, kwargs=kwargs)  # type: ignore[arg-type]

    return cast("Callable[_P, _R]", call)


def _how_to_tell_apart(verb: str, name: str, model: Any) -> str:
    message = f"{name!r} is an option of {verb} and a parameter of {_name(model)}. For the model, write "
    if name == _KWARGS:
        return f"{message}kwargs={{'kwargs': …}}."
    return f"{message}kwargs={{{name!r}: …}}; for the option, {name}=… and kwargs={{}}."


def _check_keyword(
    verb: str, name: str, names: Collection[str], model: Any, parameters: Collection[str], is_open: bool
) -> None:
    """Raise InputError if a keyword that is no option cannot be meant for the model, or may be misspelled."""
    if name in parameters:
        return
    if not is_open:
        raise InputError(
            f"{name!r} is neither an option of {verb} nor a parameter of {_name(model)}. "
            f"{did_you_mean(name, [*names, *parameters])}"
        )
    for near in difflib.get_close_matches(name, names, n=1, cutoff=_NEAR):
        raise InputError(
            f"{name!r} is no option of {verb}, and {_name(model)} takes any keyword. Did you mean {near!r}? "
            f"For the model, write kwargs={{{name!r}: …}}."
        )


def _keywords(model: Any) -> tuple[list[str], bool]:
    """Return the names that a model takes as keywords, and whether it may take others.

    >>> _keywords(lambda x, /, mask=None, **more: x)
    (['mask'], True)
    """
    if is_module_class(model) or not callable(model):
        return [], True  # the function raises an error that says what a model is
    function = _function(model)
    try:
        if isinstance(function, MethodType):
            return _keywords_of(function.__func__, is_method=True)
        return _keywords_of.__wrapped__(function)
    except (TypeError, ValueError):  # a built-in function without a signature
        return [], True


@lru_cache(maxsize=256)
def _keywords_of(function: Callable[..., Any], *, is_method: bool = False) -> tuple[list[str], bool]:
    """Return the names of a function's parameters that can be keywords, and whether it takes any keyword."""
    parameters = list(inspect.signature(function).parameters.values())
    if is_method and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        del parameters[0]  # self
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    is_open = any(one.kind is one.VAR_KEYWORD for one in parameters)
    return [one.name for one in parameters if one.kind in by_name], is_open


def _function(model: Any) -> Any:
    """Return the function whose parameters a model's call has."""
    model = getattr(model, "_orig_mod", model)  # torch.compile's wrapper passes every argument on
    if not is_module(model):
        return model
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while isinstance(model, DataParallel | DistributedDataParallel):
        model = model.module
    return model.forward


def _name(model: Any) -> str:
    return (
        f"{type(model).__name__}.forward"
        if is_module(model)
        else str(getattr(model, "__qualname__", type(model).__name__)).rpartition("<locals>.")[2]
    )
