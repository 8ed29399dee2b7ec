"""One grammar for every place in a network.

    conv2d_3_7        the operation that is the third conv2d and the seventh operation overall
    conv2d_3          the same, short
    conv2d_3:2        its second pass
    features.6        the output of a module, by its path in the model
    features.6:2      of that module's second call
    features.6[14]    unit 14 of it
    features.0.weight a parameter

The same string is a node of a trace, a box on the page, a line of the plot, a row of a DataFrame and a
key of the store. A module name may hold any character but a dot (the keys of a ``ModuleDict`` do), so the
three that mean something here, and the backslash itself, are escaped with a backslash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import InputError

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SPECIAL = re.compile(r"([\\:\[\]])")
_GRAMMAR = re.compile(
    r"(?P<name>(?:\\.|[^\\:\[\]])*)(?::(?P<call>[1-9][0-9]*))?(?:\[(?P<unit>[0-9]+)\])?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Address:
    """A name, and perhaps which of its calls and which of its units.

    ``name`` is an operation's label or a module's path, ``""`` for the model itself; ``call`` counts
    from 1, ``unit`` from 0.

    >>> Address.parse("features.6:2[14]")
    Address(name='features.6', call=2, unit=14)
    >>> str(Address("conv2d_3_7", unit=5))
    'conv2d_3_7[5]'
    """

    name: str
    call: int | None = None
    unit: int | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address; raises InputError with the place where the text leaves the grammar."""
        match = _GRAMMAR.match(text)
        end = match.end() if match else 0
        if match is None or end != len(text):
            raise InputError(
                f"{text!r} is not an address: at character {end} stands {text[end : end + 1]!r}. "
                "Write NAME, NAME:CALL, NAME[UNIT] or NAME:CALL[UNIT], calls counted from 1, units from 0; "
                "put a backslash before ':', '[' or ']' inside a name."
            )
        call, unit = match["call"], match["unit"]
        return cls(
            _ESCAPED.sub(r"\1", match["name"]),
            int(call) if call else None,
            int(unit) if unit else None,
        )

    def __str__(self) -> str:
        call = f":{self.call}" if self.call is not None else ""
        unit = f"[{self.unit}]" if self.unit is not None else ""
        return _SPECIAL.sub(r"\\\1", self.name) + call + unit
