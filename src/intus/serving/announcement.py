"""What a server says when it begins: where things are, and what to do next."""

from __future__ import annotations

from pathlib import Path

from ..storage.tables import read_url


def announcement(host: str, role: str, ports: list[int], database: str | Path, token: str | None) -> str:
    """One line that says where things are, and for who runs all of it what to do next; ports are in the order
    aggregator, evaluator, frontend."""
    place = bracketed(host)
    if role == "all":
        lines = [
            f"Page: http://{place}:{ports[-1]}/ · probes send to {host}:{ports[0]}",
            _next(host, ports[0]),
        ]
        url = read_url(database)
        kept = (
            Path(str(url.database)).resolve()
            if url.get_backend_name() == "sqlite"
            else url.render_as_string()
        )
        lines.append(f"Scores are kept in {kept}. Ctrl+C stops the server.")
    elif role == "frontend":
        lines = [f"Page: http://{place}:{ports[0]}/"]
    else:
        lines = [f"The {role} listens on {place}:{ports[0]}"]
    if token and role in ("all", "frontend"):
        lines.append(
            f"The page asks for the token: open http://{place}:{ports[-1]}/?token=TOKEN. Training scripts "
            "take it from the variable INTUS_TOKEN."
        )
    return "\n".join(lines)


def _next(host: str, port: int) -> str:
    return f"""\

In a training script (the page has the same to copy, with labels):

    import intus

    with intus.probe(model, "{host}", {port}) as watch:
        for watch.epoch in range(epochs):
            ...  # your epoch
    intus.flush("{host}", {port})

No script at hand? In another terminal: intus examples{"" if port == 8082 else f" --port {port}"}
"""


def bracketed(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
