"""``intus examples``: run the example scripts one after another against a server."""

from __future__ import annotations

import importlib
import importlib.util
import time
import urllib.error
import urllib.request

from ..core.errors import InputError, MissingExtraError, ServeError, did_you_mean

#: The examples by name, with the additional packages that each needs.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "mlp": (),
    "lstm": (),
    "transformer": (),
    "trainer": ("transformers", "accelerate"),
    "lightning": ("lightning",),
}
DEFAULT = ("mlp", "lstm", "transformer")


def examples(names: list[str], host: str, port: int, epochs: int) -> int:
    """Train each example.

    Args:
        names: The names of the examples; ``DEFAULT`` if empty.
        host: The host of the server.
        port: The server's port for probes.
        epochs: The number of epochs for each.

    Returns:
        The exit code, 0.

    Raises:
        InputError: If there is no such example.
        MissingExtraError: If a package that it needs is not installed.
        ServeError: If no server answers.
    """
    chosen = names or list(DEFAULT)
    for name in chosen:
        if name not in EXAMPLES:
            raise InputError(f"There is no example {name!r}. {did_you_mean(name, EXAMPLES)}")
        for package in EXAMPLES[name]:
            if importlib.util.find_spec(package) is None:
                message = f"The example {name!r} needs {package}. Install it with: pip install {package}"
                raise MissingExtraError(message)
    page = _page(host, port)
    run = f"examples {time.strftime('%H:%M:%S')}"
    for name in chosen:
        importlib.import_module(f".{name}", __package__).train(host, port, epochs, run)
    print(f"\nThey are on the page, as the run {run!r}: {page}")
    return 0


def _page(host: str, port: int) -> str:
    """Return where the page is; a server of all roles shows it on every one of its ports."""
    here = f"http://{host}:{port}/"
    try:
        with urllib.request.urlopen(here, timeout=5) as answer:
            shown = answer.headers.get_content_type() == "text/html"
    except urllib.error.HTTPError:
        shown = False  # an aggregator alone, or a server that requires a token
    except (OSError, ValueError) as error:
        raise ServeError(
            f"No server answers at {host}:{port} ({error}). Start one in another terminal: intus serve"
        ) from None
    return here if shown else f"the page of the server at {host}, http://{host}:8080/ by default"
