"""``intus examples``: run the scripts one after another against a server."""

from __future__ import annotations

import importlib
import importlib.util
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
    _check_server(host, port)
    for name in chosen:
        importlib.import_module(f".{name}", __package__).train(host, port, epochs)
    print(f"\nLook at them on the page of the server at {host}, http://{host}:8080 by default.")
    return 0


def _check_server(host: str, port: int) -> None:
    try:
        urllib.request.urlopen(f"http://{host}:{port}/api/status", timeout=5).close()
    except urllib.error.HTTPError:
        return  # a server, if a guarded one
    except (OSError, ValueError) as error:
        raise ServeError(
            f"No server answers at {host}:{port} ({error}). Start one in another terminal: intus serve"
        ) from None
