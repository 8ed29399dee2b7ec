"""``intus examples``: run the scripts one after another against a server."""

from __future__ import annotations

import importlib
import importlib.util
import time
import urllib.error
import urllib.request

from ..core.errors import InputError, MissingExtraError, ServeError, did_you_mean

#: Name of an example, and the packages that it needs besides.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "mlp": (),
    "lstm": (),
    "transformer": (),
    "trainer": ("transformers", "accelerate"),
    "lightning": ("lightning",),
}
DEFAULT = ("mlp", "lstm", "transformer")


def examples(names: list[str], host: str, port: int, epochs: int) -> int:
    """Train each for some epochs; returns an exit code. Raises InputError for a name that is none, ServeError
    where no server answers, MissingExtraError for a package that is not installed."""
    chosen = names or list(DEFAULT)
    for name in chosen:
        if name not in EXAMPLES:
            raise InputError(f"There is no example {name!r}. {did_you_mean(name, EXAMPLES)}")
        for package in EXAMPLES[name]:
            if importlib.util.find_spec(package) is None:
                what = f"The example {name!r} needs {package}. Install it with: pip install {package}"
                raise MissingExtraError(what)
    page = _page(host, port)
    run = f"examples {time.strftime('%H:%M:%S')}"
    for name in chosen:
        importlib.import_module(f".{name}", __package__).train(host, port, epochs, run)
    print(f"\nLook at them, as runs of the name {run!r}: {page}")
    return 0


def _page(host: str, port: int) -> str:
    """Where the page is: a server of all roles shows it on every port of its own."""
    here = f"http://{host}:{port}/"
    try:
        with urllib.request.urlopen(here, timeout=5) as answer:
            shown = answer.headers.get_content_type() == "text/html"
    except urllib.error.HTTPError:
        shown = False  # an aggregator alone, or a server that asks for a token
    except (OSError, ValueError) as error:
        raise ServeError(
            f"No server answers at {host}:{port} ({error}). Start one in another terminal: intus serve"
        ) from None
    return here if shown else f"the page of the server at {host}, http://{host}:8080/ by default"
