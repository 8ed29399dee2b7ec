"""The Python blocks of the docs; one after ``<!-- environment: jax -->`` is for the tests of JAX alone."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^(?:<!-- environment: (\w+) -->\n+)?```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def python_blocks(page: Path, environment: str = "") -> str:
    """Return the blocks of a page that run in an environment, as one program; ``""`` is the main one."""
    return "\n".join(code for name, code in _BLOCK.findall(page.read_text()) if name == environment)


def environments(page: Path) -> set[str]:
    """Return the environments other than the main one that a page has blocks for."""
    return {name for name, _ in _BLOCK.findall(page.read_text()) if name}


def run_blocks(page: Path, port: int, environment: str = "") -> None:
    """Run the blocks of a page, with the server of a test instead of the reader's own.

    Args:
        page: The page.
        port: The server's port.
        environment: The environment that the blocks are for.
    """
    code = python_blocks(page, environment).replace("8082", str(port))
    exec(compile(code, str(page), "exec"), {"__name__": "__docs__"})
