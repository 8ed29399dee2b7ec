"""The text that a server prints when it starts: addresses, and the next steps."""

from __future__ import annotations

from pathlib import Path

from ..storage.tables import read_url
from .options import ServerOptions


def announcement(options: ServerOptions, ports: list[int], token: str | None) -> str:
    """Return the addresses of the roles and, if all of them run, the next steps.

    Args:
        options: The server's options.
        ports: The ports of the aggregator, the evaluator and the frontend, or one for all.
        token: The new token, which nobody knows yet; None if the user chose one, or none.
    """
    host, role, place = options.host, options.role, bracketed(options.host)
    page = f"http://{place}:{ports[-1]}/" + (f"?token={token}" if token else "")
    if role == "all":
        lines = [f"Page: {page} · probes send to {host}:{ports[0]}", _next(host, ports[0])]
        url = read_url(options.database)
        kept = (
            Path(str(url.database)).resolve()
            if url.get_backend_name() == "sqlite"
            else url.render_as_string()
        )
        lines.append(f"Scores are kept in {kept}. Press Ctrl+C to stop the server.")
    elif role == "frontend":
        lines = [f"Page: {page}"]
    else:
        lines = [f"The {role} listens on {place}:{ports[0]}"]
    if token:
        lines.append(
            "Other users of this machine need the token of the page's address. Your scripts here find it by "
            "themselves; elsewhere, set INTUS_TOKEN for them. --no-token lets everybody in."
        )
    elif options.given_token and role in ("all", "frontend"):
        lines.append(
            f"To open the page, give the token: http://{place}:{ports[-1]}/?token=TOKEN. Training scripts on "
            "other machines read it from the environment variable INTUS_TOKEN."
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
