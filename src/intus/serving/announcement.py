"""The text that a server prints when it starts: addresses, and the next steps."""

from __future__ import annotations

from pathlib import Path

from ..storage.tables import read_url


def announcement(host: str, role: str, ports: list[int], database: str | Path, token: str | None) -> str:
    """Return the addresses of the roles and, if all of them run, the next steps.

    Args:
        host: The address to listen on.
        role: The role of this process.
        ports: The ports of the aggregator, the evaluator and the frontend, or one for all.
        database: The database, as the option gives it.
        token: The secret that requests must carry, if there is one.
    """
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
        lines.append(f"Scores are kept in {kept}. Press Ctrl+C to stop the server.")
    elif role == "frontend":
        lines = [f"Page: http://{place}:{ports[0]}/"]
    else:
        lines = [f"The {role} listens on {place}:{ports[0]}"]
    if token and role in ("all", "frontend"):
        lines.append(
            f"To open the page, give the token: http://{place}:{ports[-1]}/?token=TOKEN. Training scripts "
            "read it from the environment variable INTUS_TOKEN."
        )
    return "\n".join(lines)


def _next(host: str, port: int) -> str:
    return f"""\

In a training script (the page has this to copy, with labels):

    import intus

    watch = intus.probe(model, "{host}", {port})
    ...  # your training
    intus.flush("{host}", {port})

No script at hand? Run in another terminal: intus examples{"" if port == 8082 else f" --port {port}"}
"""


def bracketed(host: str) -> str:
    """Return a host in the notation of URLs, with brackets around an IPv6 address."""
    return f"[{host}]" if ":" in host else host
