"""What a script tells the server besides records: targets, flush, clear, remove."""

from __future__ import annotations

import json
import time
from typing import Any

from ..core.errors import InputError, ServeError
from .client import Client
from .jobs import Job
from .sender import Sender, line
from .targets import check_pattern, plain_labels

HOST, PORT = "127.0.0.1", 8082
ANSWER_S = 5.0


def register_targets(
    host: str = HOST,
    port: int = PORT,
    *,
    name: str,
    targets: Any,
    model_pattern: str = ".*",
    layer_pattern: str = ".*",
    run_pattern: str = ".*",
) -> bool:
    """Tell the server what the rows are labelled with; every layer of fitting size is then scored on it.

    ``targets`` is one label per row, or nested lists of one label per position with None for padding; a
    list, numpy array, torch tensor or pandas Series. A label belongs to the row of that number: of the
    batch's ``Probe.items``, else in order of arrival within an epoch, which needs an unshuffled loader.
    The patterns are regular expressions (RE2's: no lookarounds, no back-references) on a model's name, a
    layer's address and a run's name. What a training registers is for its own runs; what a process
    registers that trains nothing is for every run that has no labels of that name from its own.

    Returns whether the server has them; if it is down they stay queued, while
    there is room, and arrive when it comes up.
    Raises InputError for targets that are empty, ragged or no labels.
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"name={name!r} is not a name for targets. Write a word such as 'digit'.")
    sender = line(host, port)
    patterns = {
        "model_pattern": check_pattern("model_pattern", model_pattern),
        "layer_pattern": check_pattern("layer_pattern", layer_pattern),
        "run_pattern": check_pattern("run_pattern", run_pattern),
    }
    return sender.wait(queue_targets(sender, name, plain_labels(name, targets), **patterns), ANSWER_S)


def queue_targets(
    sender: Sender,
    name: str,
    labels: list[Any],
    *,
    model_pattern: str = ".*",
    layer_pattern: str = ".*",
    run_pattern: str = ".*",
    owner: str = "",
) -> Job:
    """Put labels that are checked on their way; they replace those of the same name, patterns and owner, this
    process by default."""
    topic = json.dumps([name, model_pattern, layer_pattern, run_pattern, owner])
    message = {
        "name": name,
        "client": owner or sender.id,
        "targets": labels,
        "model_pattern": model_pattern,
        "layer_pattern": layer_pattern,
        "run_pattern": run_pattern,
    }
    return sender.send_json("/targets", message, topic)


def flush(
    host: str = HOST,
    port: int = PORT,
    *,
    run: str | None = None,
    model: str | None = None,
    timeout: float = 120.0,
) -> bool:
    """Wait, up to ``timeout`` seconds, until the server has scored all that this process recorded, or, where
    it recorded nothing, all that there is.

    Call it at the end of a script: the last epoch never sees a next one that would complete it. Returns
    False, and logs why once, when the server is down or the time ran out; never raises because of that.
    """
    deadline = time.monotonic() + timeout
    sender = line(host, port)
    for tap in list(sender.before_flush):
        tap.probe_runs.training_ends()
    drained = sender.drain(timeout)
    left = max(deadline - time.monotonic(), 0.1)
    only = {key: value for key, value in (("run", run), ("model", model)) if value is not None}
    return _call(sender, "/flush", only | {"client": sender.id}, left) and drained


def clear(host: str = HOST, port: int = PORT) -> bool:
    """Make the server forget all runs, scores and targets. False, logged once, when it is down."""
    return _after_all(line(host, port), "/clear", {})


def remove(host: str, port: int, model: str) -> bool:
    """Make the server forget all runs of a model. False, logged once, when it is down."""
    return _after_all(line(host, port), "/remove", {"model": model})


def _after_all(sender: Sender, path: str, message: dict[str, Any]) -> bool:
    sender.drain(ANSWER_S)
    return _call(sender, path, message, ANSWER_S)


def _call(sender: Sender, path: str, message: dict[str, Any], timeout: float) -> bool:
    client = Client(sender.host, sender.port, timeout)
    try:
        answer = client.post(path, json.dumps(message).encode(), wait=0.9 * timeout)
        ok, why = answer.ok, answer.why
    except ServeError as error:
        ok, why = False, str(error)
    finally:
        client.close()
    if not ok:
        sender.troubles.count(path, "intus: %s was not done: %s", path[1:], why)
    return ok
