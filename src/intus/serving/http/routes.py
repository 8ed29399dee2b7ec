"""The HTTP routes that each role has: what it takes from clients, and from the roles before it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from ...core.errors import InputError, IntusError, ServeError
from ...storage.codec import decode_legacy, decode_records
from ..aggregation.journal import FullError
from ..aggregation.service import Collector
from ..checks import check_text, read_json, read_names
from ..evaluation.evaluator import Evaluator
from ..frontend import Frontend
from ..interfaces import AwayError, BusyError, Link
from ..wire import notices_from_json, point_from_wire, results_from_json
from .endpoints import MAX_JSON, Work, get, patience, post, run_and_model

LEGACY = ("activation_output", "activation_input", "gradient_output", "gradient_input", "parameter")
MAX_SMALL = 1 << 16


def collector_routes(collector: Collector, limit: int) -> list[Route]:
    """What takes records."""

    def counted(work: Work) -> Work:
        def call(request: Request, body: bytes) -> Any:
            try:
                return work(request, body)
            except (BusyError, FullError, ServeError):
                raise
            except IntusError:
                collector.malformed += 1
                raise

        return call

    def records(request: Request, body: bytes) -> dict[str, Any]:
        return collector.records(*decode_records(body), body)

    def legacy(request: Request, body: bytes) -> dict[str, Any]:
        return collector.records([decode_legacy(body, request.url.path[1:])], {})

    def trigger(request: Request, body: bytes) -> None:
        collector.set_trigger(read_names(body))

    def status(request: Request) -> dict[str, Any]:
        return {"trigger": list(collector.aggregator.trigger)} | collector.status()

    return [
        post("/records", counted(records), limit),
        post("/set_trigger_fields", counted(trigger), MAX_SMALL),
        get("/status", status),
        *(post(f"/{name}", counted(legacy), min(limit, MAX_JSON)) for name in LEGACY),
        *_chain_routes(collector, limit, counted),
    ]


def evaluator_routes(evaluator: Evaluator, limit: int) -> list[Route]:
    """What takes data points."""

    def datapoint(request: Request, body: bytes) -> dict[str, Any]:
        if evaluator.backlog() > limit * 4:
            raise BusyError("More data points wait to be scored than may; send this again in a second.")
        point, last = point_from_wire(*decode_records(body))
        stored = threading.Event()
        evaluator.point(point, last=last, done=lambda point: stored.set())
        while not stored.wait(0.5):  # who sent it keeps it until then
            if evaluator.closing.is_set() and not stored.wait(5):
                raise AwayError("The evaluator is being stopped; send this to it again.")
        return {"accepted": 1}

    return [
        post("/datapoint", datapoint, limit * 4),
        *_chain_routes(evaluator, limit),
        *_report_routes(evaluator, limit),
    ]


def frontend_routes(frontend: Frontend, limit: int) -> list[Route]:
    """What takes results, and keeps them."""

    def results(request: Request, body: bytes) -> dict[str, Any]:
        table = results_from_json(read_json(body))
        frontend.results(table)
        return {"accepted": len(table)}

    def claim(request: Request, body: bytes) -> None:
        packet = read_json(body)
        frontend.claim_target(*(check_text(packet.get(name), name) for name in ("name", "owner")))

    def order(request: Request, body: bytes) -> None:
        packet = read_json(body)
        run, model, mode = (check_text(packet.get(name), name) for name in ("run", "model", "mode"))
        if not isinstance(packet.get("holds"), bool):
            raise InputError('Expected "holds": true or false.')
        frontend.order(run, model, mode, packet["holds"])

    return [
        post("/results", results, limit),
        post("/claim", claim, limit),
        post("/order", order, limit),
        *_chain_routes(frontend, limit),
        *_report_routes(frontend, limit),
        get("/targets", lambda request: {"targets": frontend.targets()}),
    ]


def _chain_routes(
    role: Collector | Link, limit: int, wrap: Callable[[Work], Work] = lambda work: work
) -> list[Route]:
    """What every role takes and passes on."""

    def graph(request: Request, body: bytes) -> None:
        run, model = run_and_model(request)
        role.put_graph(run, model, body)

    def targets(request: Request, body: bytes) -> None:
        role.put_target(read_json(body))

    def legacy_targets(request: Request, body: bytes) -> None:
        packet = read_json(body)
        values = packet.pop("values", None)
        role.put_target(packet if values is None else packet | {"targets": values})

    def flush(request: Request, body: bytes) -> None:
        packet = read_json(body)
        named = {name: packet[name] for name in ("run", "model", "client") if packet.get(name) is not None}
        for name, value in named.items():
            check_text(value, name)
        if not isinstance(role, Collector):
            named.pop("client", None)
        role.flush(**named, timeout=patience(request))

    def clear(request: Request, body: bytes) -> None:
        role.clear()

    def remove(request: Request, body: bytes) -> None:
        packet = read_json(body)
        role.remove(check_text(packet.get("model", packet.get("model_name")), "model"))

    works = {"/targets": targets, "/flush": flush, "/clear": clear, "/remove": remove}
    works |= {f"/register_{kind}_targets": legacy_targets for kind in ("classification", "clustering")}
    of_json = [post(path, wrap(work), min(limit, MAX_JSON)) for path, work in works.items()]
    return [post("/graph", wrap(graph), limit), *of_json]


def _report_routes(role: Link, limit: int) -> list[Route]:
    """What the roles before tell of themselves."""

    def notices(request: Request, body: bytes) -> None:
        role.notices(notices_from_json(read_json(body)))

    def status(request: Request, body: bytes) -> None:
        packet = read_json(body)
        counts = packet.get("counts")
        runs = counts.pop("runs", []) if isinstance(counts, dict) else None
        told = [counts, *runs] if isinstance(runs, list) else [None]
        if not all(isinstance(row, dict) and all(map(_is_count, row.items())) for row in told):
            raise InputError('Expected {"role": ..., "counts": {name: count, "runs": [{...}, ...]}}.')
        if packet.get("role") not in ("aggregator", "evaluator"):
            raise InputError(f"role={packet.get('role')!r} is not 'aggregator' or 'evaluator'.")
        role.report(packet["role"], {**(counts or {}), "runs": runs})

    return [post("/notices", notices, limit), post("/status", status, limit)]


def _is_count(item: tuple[str, Any]) -> bool:
    name, value = item
    return isinstance(value, str if name in ("run", "model") else int)
