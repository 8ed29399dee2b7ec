r"""The address language: one grammar for every place in a network.

    conv2d_3_7         the third conv2d and seventh operation of a forward pass
    conv2d_3           the same, without the overall number
    conv2d_3:2         its second pass
    features.6         the output of a module, by its path in the model
    features.6:2       the output of that module's second call
    features.0.weight  a parameter
    linear, Linear     all operations of a type, all modules of a class
    h.*, **.attn       patterns: ``*`` and ``?`` stay within a name, ``**`` crosses dots

Brackets select units of the value, counted from 0 (negative from the end), as lists and ranges:

    features.6[14]     unit 14
    conv1[3,5:8]       units 3, 5, 6 and 7
    ln_f[-1@1][0:64]   the last position (axis 1), and of it the first 64 units

``@`` names the axis. Without it, the units are those of the axis that ``core.units`` finds.

The same text names a node of a trace, a box on the page, a line of the plot, a row of a DataFrame and a key
of the database. A module's name may contain any character but a dot, so a backslash escapes the special
characters: ``\``, ``:``, ``[``, ``]``, and ``*`` and ``?`` in patterns. ``core.selection`` resolves an
address to rows of a graph.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .errors import InputError

_GRAMMAR = re.compile(
    r"(?P<name>(?:\\.|[^\\:\[\]])*)(?::(?P<call>[1-9][0-9]*))?(?P<units>(?:\[[^\[\]]*\])*)", re.DOTALL
)
_PLACE = re.compile(r"(?P<place>(?:\\.|[^\\\[\]])*)(?P<units>(?:\[[^\[\]]*\])*)", re.DOTALL)
_CALL = re.compile(r"(?<!\\):[1-9][0-9]*$")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(-?\d+)?:(-?\d+)?(?::(-?[1-9]\d*))?")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SPECIAL = re.compile(r"([\\:\[\]])")
_TOKENS = re.compile(r"\\.|(?<![^.])\*\*\.|\*\*|\*|\?|[^\\*?]+|\\$", re.DOTALL)
_WILDCARDS = {"**.": r"(?:.*\.)?", "**": ".*", "*": r"[^.]*", "?": r"[^.]"}


class UnitRange(NamedTuple):
    """A range of units, with the bounds of a ``slice``.

    Attributes:
        start: The first unit; None for the beginning.
        stop: The end, exclusive; None for all the rest.
        step: The step; None for 1.
    """

    start: int | None = None
    stop: int | None = None
    step: int | None = None

    def __str__(self) -> str:
        start, stop, step = ("" if end is None else str(end) for end in self)
        return f"{start}:{stop}" + (f":{step}" if step else "")


class Units(NamedTuple):
    """The units in one pair of brackets.

    Attributes:
        which: Unit numbers and ranges.
        axis: The axis they select along; None for the unit axis.
    """

    which: tuple[int | UnitRange, ...]
    axis: int | None = None

    def __str__(self) -> str:
        axis = "" if self.axis is None else f"@{self.axis}"
        return f"[{','.join(map(str, self.which))}{axis}]"

    @classmethod
    def parse(cls, text: str) -> Units:
        """Parse the text between a pair of brackets.

        Args:
            text: Unit numbers and ranges, separated by commas, optionally followed by ``@`` and an axis:
                ``"0,4:8@1"``.

        Returns:
            The units.

        Raises:
            InputError: If the text does not have that form.

        Example:
            >>> Units.parse("3,5:8@-1")
            Units(which=(3, UnitRange(start=5, stop=8, step=None)), axis=-1)
        """
        units, at, axis = text.partition("@")
        try:
            return cls(tuple(_unit(one.strip()) for one in units.split(",")), int(axis) if at else None)
        except ValueError:
            raise InputError(
                f"[{text}] does not name units. Write [3], [3,5,7], [2:6], [-1], or [3@1] for axis 1."
            ) from None


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a network: an operation, module or parameter, and optionally one call and some units of it.

    Args:
        name: An operation's label, a module's path or a parameter's path, unescaped; ``""`` for the model
            itself.
        call: The number of the call or pass, counted from 1; None for all.
        units: The units in each pair of brackets; empty for the whole value.

    Example:
        >>> address = Address.parse("features.6:2[14]")
        >>> address.name, address.call, str(address.units[0])
        ('features.6', 2, '[14]')
        >>> str(Address("conv2d_3_7", units=(Units((5,)),)))
        'conv2d_3_7[5]'
    """

    name: str
    call: int | None = None
    units: tuple[Units, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address.

        Args:
            text: The address, with special characters of the name escaped.

        Returns:
            The address, with its name unescaped.

        Raises:
            InputError: If the text does not follow the grammar. The message names the position of the error.
        """
        match = _GRAMMAR.match(text)
        end = match.end() if match else 0
        if match is None or end != len(text):
            raise InputError(
                f"{text!r} is not an address: unexpected {text[end : end + 1]!r} at character {end}. "
                "Write NAME, NAME:CALL, NAME[UNIT] or NAME:CALL[UNIT], with calls counted from 1 and units "
                "from 0. Put a backslash before ':', '[' or ']' inside a name."
            )
        call = int(match["call"]) if match["call"] else None
        return cls(_ESCAPED.sub(r"\1", match["name"]), call, _units(match["units"], text))

    @property
    def place(self) -> str:
        """The address without its units, as text."""
        return str(Address(self.name, self.call))

    def __str__(self) -> str:
        call = f":{self.call}" if self.call is not None else ""
        return _SPECIAL.sub(r"\\\1", self.name) + call + "".join(map(str, self.units))


def split_units(text: str) -> tuple[str, tuple[Units, ...]]:
    r"""Split an address or pattern into its place, as written, and its units.

    Args:
        text: An address or pattern, with or without brackets.

    Returns:
        The text before the brackets, still escaped, and the units of each pair of brackets.

    Raises:
        InputError: If the brackets do not name units, or are not at the end.

    Example:
        >>> place, units = split_units(r"h.*.a\[0\]:2[1,4:6]")
        >>> place, "".join(map(str, units))
        ('h.*.a\\[0\\]:2', '[1,4:6]')
    """
    match = _PLACE.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r} is not an address. Write NAME, NAME[3], NAME[0,4:8] or NAME[-1@1]. Put a backslash "
            "before '[' or ']' inside a name."
        )
    return match["place"], _units(match["units"], text)


def of_call(address: str, call: int) -> str:
    """Return the address of a call of an operation: from the second call on with its number.

    Args:
        address: The address of the operation.
        call: The number of the call, from 1.

    Example:
        >>> of_call("fc1", 1), of_call("fc1", 2)
        ('fc1', 'fc1:2')
    """
    return address if call == 1 else f"{address}:{call}"


def is_pattern(text: str) -> bool:
    """Return whether a text contains wildcards (an unescaped ``*`` or ``?``)."""
    return any(token in _WILDCARDS for token in _TOKENS.findall(text))


def matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern.

    ``*`` matches any characters except a dot, ``?`` a single such character, ``**`` any characters. ``**.``
    also matches nothing.

    Args:
        pattern: The pattern.
        name: The name, escaped as in an address.

    Example:
        >>> [matches("h.*", name) for name in ("h.0", "h.0.attn", "wte")]
        [True, False, False]
        >>> [matches("**.attn", name) for name in ("attn", "h.0.attn", "h.0.xattn")]
        [True, True, False]
    """
    return _compiled(pattern).fullmatch(name) is not None


def tokens(pattern: str) -> list[str]:
    r"""Split a pattern into wildcards and single literal characters.

    Wildcards are ``*``, ``**``, ``?``, and ``**.`` after a dot or at the beginning. An escaped character
    stays escaped (``\c``).
    """
    parts: list[str] = []
    for token in _TOKENS.findall(pattern):
        parts += [token] if token in _WILDCARDS or token.startswith("\\") else list(token)
    return parts


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. An escaped wildcard is literal; other escapes are kept as written."""
    expression = ""
    for token in _TOKENS.findall(pattern):
        if token in _WILDCARDS:
            expression += _WILDCARDS[token]
        else:
            literal = token[1:] if token in (r"\*", r"\?") else token
            expression += re.escape(literal)
    return re.compile(expression, re.DOTALL)


def _units(brackets: str, text: str) -> tuple[Units, ...]:
    """Parse each pair of brackets; errors name the whole address."""
    try:
        return tuple(Units.parse(inner) for inner in _BRACKETS.findall(brackets))
    except InputError as error:
        raise InputError(f"{text!r} is not an address: {error}") from None


def _unit(text: str) -> int | UnitRange:
    match = _RANGE.fullmatch(text)
    return UnitRange(*(int(bound) if bound else None for bound in match.groups())) if match else int(text)


def without_call(address: str) -> str:
    """Return the address of a module's output without the number of the call.

    Example:
        >>> without_call("features.6:2"), without_call("features.6")
        ('features.6', 'features.6')
    """
    return _CALL.sub("", address)
