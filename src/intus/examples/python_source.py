"""Python's standard library as text, with labels for every character from ``tokenize``."""

import io
import keyword
import tokenize
from pathlib import Path

import torch

LENGTH = 64
FILES = ("ast", "argparse", "csv", "json/decoder", "textwrap")
CHARACTERS = [chr(code) for code in range(32, 127)] + ["\n"]


def read() -> tuple[torch.Tensor, list[list[str]], list[list[str]]]:
    """Read the source files.

    Returns:
        The codes of the characters, (windows, 64); the kind of token that each character belongs to; and
        whether it is inside brackets; both as lists of windows.
    """
    folder = Path(tokenize.__file__).parent
    text, kinds, depths = "", [], []
    for name in FILES:
        source = (folder / f"{name}.py").read_text(encoding="ascii", errors="ignore").expandtabs(4)
        of_file = token_kinds(source)
        text += source
        kinds += of_file
        depths += _depths(source, of_file)
    known = {character: number for number, character in enumerate(CHARACTERS)}
    codes = torch.tensor([known.get(character, 0) for character in text])
    count = len(codes) // LENGTH
    windows = [slice(k * LENGTH, (k + 1) * LENGTH) for k in range(count)]
    return (
        codes[: count * LENGTH].view(count, LENGTH),
        [kinds[window] for window in windows],
        [depths[window] for window in windows],
    )


def token_kinds(source: str) -> list[str]:
    """Return the kind of token that each character belongs to; "space" between tokens."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    out = ["space"] * len(source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type].lower()
        if kind == "name" and keyword.iskeyword(token.string):
            kind = "keyword"
        if kind in ("name", "keyword", "number", "string", "comment", "op"):
            first, last = (starts[line - 1] + column for line, column in (token.start, token.end))
            out[first:last] = [kind] * (last - first)
    return out


def _depths(source: str, kinds: list[str]) -> list[str]:
    """Return whether each character is inside brackets, without counting those in strings and comments."""
    depth, out = 0, []
    for character, kind in zip(source, kinds, strict=True):
        depth += (kind == "op") * ((character in "([{") - (character in ")]}"))
        out.append("inside" if depth > 0 else "outside")
    return out
