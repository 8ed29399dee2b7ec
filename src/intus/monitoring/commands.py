"""Commands to the server other than records: targets, flush, clear and remove."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from ..core.errors import ServeError, did_you_mean
from ..core.names import check_name
from .client import Client
from .jobs import Job
from .sender import Sender, get_sender
from .targets import RegisteredTarget, are_ragged, check_pattern, plain_ids, plain_labels

HOST, PORT = "127.0.0.1", 8082
ANSWER_S = 5.0


def register_targets(
    host: str = HOST,
    port: int = PORT,
    *,
    name: str,
    targets: Any,
    groups: Any = None,
    types: Any = None,
    model_pattern: str = ".*",
    layer_pattern: str = ".*",
    run_pattern: str = ".*",
) -> bool:
    """Register labels with the server, which then scores every matching layer of fitting size against them.

    Label ``i`` belongs to item ``i``: to the row with this id in ``Probe.items``, or else to the ``i``-th row
    of the epoch in order of arrival, which requires a data loader that does not shuffle. Labels that a
    training process registers apply to its own runs. Labels of a process without a probe apply to all runs
    that have no labels of that name from their own process. Labels of the same name and patterns replace
    earlier ones for what is recorded from then on; with other patterns they stand beside them, and where both
    match, the later count.

    Args:
        host: The server's host name.
        port: The server's port for probes, 8082 by default.
        name: The name of the target, shown on the page.
        targets: A list, numpy array, torch tensor or pandas Series with one label per row (int, float, str or
            bool), or lists with one label per position, which may differ in length. None and NaN mean no
            label, and so does -100 among classes numbered from 0; -1 is a class.
        groups: What items belong to, such as a document, an episode or a subject: an id per item, a whole
            number or a string. Items of a group are held out together, and intervals count groups, not items.
            Default: each item is a group of its own.
        types: What each label's row is an instance of, such as its word: ids of the shape of ``targets``.
            ``linear_selectivity`` needs them, whose control task gives each type a random label; servers
            compute it with ``--scores default,linear_selectivity``. Default: none.
        model_pattern: Regular expression for the names of models, in RE2 syntax (no lookarounds or
            back-references). All by default.
        layer_pattern: Regular expression for the addresses of layers. All by default.
        run_pattern: Regular expression for the names of runs. All by default.

    Returns:
        Whether the server has received them. If it is down, they stay in the queue while there is room, and
        are sent when it comes up.

    Raises:
        InputError: If the name is empty, a pattern is not a regular expression, the targets are empty, not
            labels or not nested alike, or ``groups`` or ``types`` do not fit them.

    Example:
        >>> register_targets("127.0.0.1", 8082, name="digit", targets=[3, 1, 4])  # doctest: +SKIP
        True
    """
    check_name("name", name, " such as 'digit'")
    sender = get_sender(host, port)
    patterns = {
        "model_pattern": check_pattern("model_pattern", model_pattern),
        "layer_pattern": check_pattern("layer_pattern", layer_pattern),
        "run_pattern": check_pattern("run_pattern", run_pattern),
    }
    labels = plain_labels(name, targets)
    ids = plain_ids("groups", groups, labels), plain_ids("types", types, labels)
    target = RegisteredTarget(name, labels, *ids, model_pattern, layer_pattern, run_pattern)
    sender.targets.pop(target.key, None)
    sender.targets[target.key] = target  # the newest last
    for tap in list(sender.taps):
        tap.targets.check(target)
    during = sorted({tap.run for tap in list(sender.taps) if not tap.is_over})
    typed = types is not None
    job = queue_targets(
        sender, name, labels, groups=ids[0], types=ids[1], typed=typed, during=during, **patterns
    )
    return sender.wait(job, ANSWER_S)


def queue_targets(
    sender: Sender,
    name: str,
    labels: list[Any],
    *,
    groups: list[Any] | None = None,
    types: list[Any] | None = None,
    typed: bool = False,
    model_pattern: str = ".*",
    layer_pattern: str = ".*",
    run_pattern: str = ".*",
    owner: str = "",
    during: Sequence[str] = (),
) -> Job:
    """Queue validated labels. They replace those of the same name, patterns and owner for later records.

    In the queue they replace such labels too, but not with records in between, which are scored on these.

    Args:
        sender: The sender for the server.
        name: The name of the target.
        labels: The labels, from ``plain_labels``.
        groups: The ids of groups, from ``plain_ids``.
        types: The ids of types, from ``plain_ids``.
        typed: Whether the script gave the types.
        model_pattern: Regular expression for the names of models.
        layer_pattern: Regular expression for the addresses of layers.
        run_pattern: Regular expression for the names of runs.
        owner: The client that owns them; this process by default.
        during: The runs that this process records now.

    Returns:
        The queued request.
    """
    sender.post()
    topic = json.dumps([name, model_pattern, layer_pattern, run_pattern, owner, sender.requests])
    ids: dict[str, Any] = {"groups": groups, "types": types, "exact": are_ragged(labels) or None}
    ids["typed"] = typed or None
    ids["during"] = list(during) or None
    message = {
        "name": name,
        "client": owner or sender.id,
        "targets": labels,
        "model_pattern": model_pattern,
        "layer_pattern": layer_pattern,
        "run_pattern": run_pattern,
    } | {key: given for key, given in ids.items() if given is not None}
    return sender.send_json("/targets", message, topic)


def flush(
    host: str = HOST,
    port: int = PORT,
    *,
    run: str | None = None,
    model: str | None = None,
    timeout: float = 120.0,
) -> bool:
    """Wait until the server has scored everything that this process recorded.

    If the process recorded nothing, wait for everything that the server has. Call it at the end of a script:
    the last epoch is complete only when the server knows that no other follows.

    Args:
        host: The server's host name.
        port: The server's port for probes, 8082 by default.
        run: Wait only for this run.
        model: Wait only for this model.
        timeout: The maximum number of seconds to wait.

    Returns:
        Whether all is scored. False if the server is down, the time ran out, or the server refused records;
        the reason is logged once and no exception is raised.

    Raises:
        InputError: If the host or port is invalid.

    Example:
        >>> flush("127.0.0.1", 8082)  # doctest: +SKIP
        True
    """
    deadline = time.monotonic() + timeout
    sender = get_sender(host, port)
    for tap in list(sender.taps):
        tap.before_flush()
    unsent = "" if sender.drain(timeout) else sender.unsent()
    remaining = max(deadline - time.monotonic(), 0.1)
    selection = {key: value for key, value in (("run", run), ("model", model)) if value is not None}
    scored = _call(sender, "/flush", selection | {"client": sender.id}, remaining, unsent, timeout)
    for reason in sender.refused(run, model):
        scored = False
        sender.troubles.count(f"/flush {reason}", "intus: flush failed: %s", reason)
    for follower in list(sender.followers):
        follower.catch_up(max(deadline - time.monotonic(), 1.0))
        if follower.removed:
            follower.end()
    return scored


def clear(host: str = HOST, port: int = PORT, *, run: str | None = None) -> bool:
    """Delete the runs that this process sent, with their scores, and the targets that it registered.

    Args:
        host: The server's host name.
        port: The server's port for probes, 8082 by default.
        run: Delete this run instead, with all its models, whoever sent it.

    Returns:
        Whether it was done. If the server is down or has no such ``run``, False, and the reason is logged.

    Raises:
        InputError: If the host or port is invalid.
    """
    sender = get_sender(host, port)
    if run is None:
        sender.targets.clear()
    return _call_after_drain(sender, "/clear", {} if run is None else {"run": run})


def remove(host: str, port: int, model: str, *, run: str | None = None) -> bool:
    """Delete a model from the runs that this process sent.

    Args:
        host: The server's host name.
        port: The server's port for probes.
        model: The name of the model. It is required also with ``run``; see ``clear`` for a whole run.
        run: Delete the model from this run alone, whoever sent it.

    Returns:
        Whether something was deleted. If not, because the server is down, has no such ``run`` or no such
        model of it, or this process sent no run of the model, the reason is logged.

    Raises:
        InputError: If the host or port is invalid.
    """
    message = {"model": model} | ({} if run is None else {"run": run})
    return _call_after_drain(get_sender(host, port), "/remove", message)


def _call_after_drain(sender: Sender, path: str, message: dict[str, Any]) -> bool:
    """Send a request after everything in the queue."""
    sender.drain(ANSWER_S)
    return _call(sender, path, message | {"client": sender.id}, ANSWER_S)


def _call(
    sender: Sender, path: str, message: dict[str, Any], timeout: float, unsent: str = "", given: float = 0.0
) -> bool:
    """Send a request, and return whether it succeeded; a failure is logged once per run and model.

    If something is ``unsent``, the request failed for that reason, whatever the answer is. ``given`` are the
    seconds that the caller gave it and what came before it, which is said if they are used up.
    """
    client = Client(sender.host, sender.port, timeout)
    used_up = time.monotonic() + 0.85 * timeout  # the server gets less, so that its answer comes in time
    try:
        answer = client.post(path, json.dumps(message).encode(), wait=0.9 * timeout)
        ok, why = answer.ok, answer.why
        if answer.status == 403:
            sender.log_refusal(path, answer)
            return False
        if ok and answer.reply.get("removed") == [] and ("run" in message or path == "/remove"):
            ok, why = False, _nothing_removed(client, message)
    except ServeError as error:
        ok, why = False, str(error)
    finally:
        client.close()
    if unsent:
        ok, why = False, unsent
    if not ok and given and time.monotonic() >= used_up:
        why = f"{why.rstrip('.')}. It had {given:g} s (timeout=)."
    if not ok:
        code = f"{path} {message.get('run', '')} {message.get('model', '')}"
        sender.troubles.count(code, "intus: %s failed: %s", path[1:], why)
    return ok


def _nothing_removed(client: Client, message: dict[str, Any]) -> str:
    """Return why a server had nothing to delete, with the names that it has."""
    run, model = message.get("run"), message.get("model", "")
    if run is None:
        return f"this process sent no run of the model {model!r}. Pass run= too"
    reply = client.get("/api/runs").reply  # 404 from a server without a page
    stored = [(str(one.get("run")), str(one.get("model"))) for one in reply.get("runs", ())]
    models = [of_model for of_run, of_model in stored if of_run == run]
    if models:
        return f"the run {run!r} has no model {model!r}. {did_you_mean(model, models)}"
    return f"the server has no run {run!r}. {did_you_mean(run, [of_run for of_run, _ in stored])}"
