"""Decodes messages from JSON or Python values into the structs of ``messages``, and refuses invalid ones.

An error names the field and the value, and says what to write. Its words come from the struct: the types of
the fields, and their titles and descriptions.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ..core.errors import CodecError, InputError, did_you_mean

T = TypeVar("T")


def decode(body: bytes, kind: type[T]) -> T:
    """Decode a JSON body; an empty one counts as ``{}``.

    Args:
        body: The body.
        kind: The struct to decode to.

    Raises:
        CodecError: If the body is not JSON.
        InputError: If a field is missing or invalid.

    >>> from intus.serving.messages import DoubtRequest
    >>> decode(b'{"run": "r", "model": "m", "note": "", "withdraw": 1}', DoubtRequest)
    Traceback (most recent call last):
    ...
    intus.core.errors.InputError: withdraw must be true or false (whether these scores ...), got 1.
    """
    body = body or b"{}"
    try:
        message: T = _prepared(kind).decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refusal(error, kind, body) from None
    return message


def read(value: Any, kind: type[T], what: str = "", *, strict: bool = True) -> T:
    """Convert a Python value, or the attributes of an object, to a struct.

    Args:
        value: The value.
        kind: The struct to convert to.
        what: The text with which errors begin.
        strict: Whether to refuse numbers in the form of text, as in the query of a URL.

    Raises:
        InputError: If a field is missing or invalid.
    """
    _prepared(kind)
    try:
        return msgspec.convert(value, kind, strict=strict, from_attributes=True)
    except msgspec.ValidationError as error:
        raise InputError(what + _sentence(str(error), kind, value)) from None


def encode(message: Any) -> bytes:
    """Return a message as JSON; NaN and infinities become null."""
    return msgspec.json.encode(message)


def builtins(message: Any) -> Any:
    """Return a message as dicts, lists, text and numbers."""
    return msgspec.to_builtins(message)


#: Decoders of the structs that msgspec has looked at.
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_PREPARING = threading.Lock()


def _prepared(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a struct.

    At its first use msgspec looks at a struct and at those in it, which must not be used by another thread
    before that is done: the process would end with a segmentation fault.
    """
    if kind not in _DECODERS:
        with _PREPARING:
            _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
    return _DECODERS[kind]


def _refusal(error: Exception, kind: Any, body: bytes) -> Exception:
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as malformed:
        return CodecError(f"Malformed JSON: {malformed}.")
    if isinstance(error, msgspec.ValidationError):
        return InputError(_sentence(str(error), kind, value))
    return CodecError("Malformed JSON: it must be UTF-8, without half a surrogate pair.")


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON; write null")


_AT = re.compile(r"(?P<complaint>.*?)(?: - at `(?:key` in `)?\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<any>\.{3})\]")


def _sentence(message: str, kind: Any, value: Any) -> str:
    """Return an error of msgspec as a sentence that names the field, the value and what to write."""
    match = _AT.fullmatch(message)
    complaint, path = (match["complaint"], match["path"] or "") if match else (message, "")
    expected: Any = msgspec.inspect.type_info(kind)
    about = ""
    for step in _STEP.finditer(path):
        expected, about = _inside(expected, step)
        value = _part(value, step)
    where = path.removeprefix(".")
    if "`key` in" in message:
        return f"The keys of {where or 'the message'} must be strings that can be stored."
    if field := re.match(r"Object (missing required|contains unknown) field `(.*)`", complaint):
        fields = {each.encode_name: each.type for each in _structs(expected)[0].fields}
        name = f"{where}.{field[2]}" if where else field[2]
        if field[1] == "contains unknown":
            return f"There is no field {name!r}. {did_you_mean(field[2], fields)}"
        expected, about = _plain(fields[field[2]])
        return f"{name} is missing; it must be {_words(expected)}{about}."
    if complaint.startswith(("Expected", "Invalid", "Number")):
        name = f"message{where}" if where.startswith("[") else where or "The message"
        words = _words(expected) + (", without NUL or half a surrogate pair" if "regex" in complaint else "")
        if name.endswith("[...]"):  # msgspec does not say which
            return f"A value of {name.removesuffix('[...]')} must be {words}{about}."
        return f"{name} must be {words}{about}, got {_shown(value)}."
    return complaint


def _plain(kind: Any) -> tuple[Any, str]:
    """Return a type without its description, and the description in parentheses."""
    about = ""
    while isinstance(kind, msgspec.inspect.Metadata):
        schema = kind.extra_json_schema or {}
        about = about or (f" ({schema['description']})" if "description" in schema else "")
        if "title" in schema:
            break
        kind = kind.type
    if isinstance(kind, msgspec.inspect.UnionType) and not about:
        about = next(filter(None, (_plain(each)[1] for each in kind.types)), "")
    return kind, about


def _inside(kind: Any, step: re.Match[str]) -> tuple[Any, str]:
    """Return the type of a struct's field, a list's items or a dict's values, and its description."""
    if step["any"]:
        dicts = [each for each in _members(kind) if isinstance(each, msgspec.inspect.DictType)]
        return _plain(dicts[0].value_type) if dicts else (msgspec.inspect.AnyType(), "")
    if step["field"]:
        (field,) = (f for s in _structs(kind) for f in s.fields if f.encode_name == step["field"])
        return _plain(field.type)
    lists = [each for each in _members(kind) if isinstance(each, msgspec.inspect.ListType)]
    return _plain(lists[0].item_type) if lists else (msgspec.inspect.AnyType(), "")


def _members(kind: Any) -> list[Any]:
    """Return the types that a type is a union of."""
    while isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    return (
        [m for one in kind.types for m in _members(one)]
        if isinstance(kind, msgspec.inspect.UnionType)
        else [kind]
    )


def _structs(kind: Any) -> list[Any]:
    """Return the types with fields that a type is a union of."""
    with_fields = msgspec.inspect.StructType | msgspec.inspect.DataclassType
    return [each for each in _members(kind) if isinstance(each, with_fields)]


def _part(value: Any, step: re.Match[str]) -> Any:
    if step["index"]:
        return value[int(step["index"])]
    if step["any"]:
        return value
    return value.get(step["field"]) if isinstance(value, Mapping) else getattr(value, step["field"], None)


def _words(kind: Any) -> str:
    """Describe the values of a type in words."""
    of = msgspec.inspect
    match kind:
        case of.Metadata(extra_json_schema={"title": str() as title}):
            return title
        case of.Metadata():
            return _words(kind.type)
        case of.StrType():
            empty = " that is not empty" if kind.min_length else ""
            longest = f" of at most {kind.max_length:,} characters" if kind.max_length else ""
            return f"a string{longest}{empty}"
        case of.IntType():
            return f"a whole number{_bounds(kind)}"
        case of.FloatType():
            return f"a number{_bounds(kind)}"
        case of.BoolType():
            return "true or false"
        case of.NoneType():
            return "null"
        case of.LiteralType():
            return "one of " + ", ".join(map(repr, kind.values))
        case of.ListType():
            return f"a list, each entry {_words(kind.item_type)}"
        case of.StructType() | of.DataclassType():
            return f"an object with the fields {', '.join(each.encode_name for each in kind.fields)}"
        case of.UnionType():
            return " or ".join(map(_words, kind.types))
    return "something else"


def _bounds(kind: Any) -> str:
    low = kind.ge if kind.ge is not None else kind.gt
    high = kind.le if kind.le is not None else kind.lt
    if low is None or low < -1e17:  # the range that can be stored
        return ""
    return f" of at least {low}" if high is None or high > 1e17 else f" from {low:g} to {high:g}"


def _shown(value: Any) -> str:
    """Return a value as errors show it: shortened, and in the notation of JSON."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:60]}… of {len(text):,} characters"
