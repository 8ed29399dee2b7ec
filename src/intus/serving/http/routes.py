"""The routes of the three roles, for clients and for the previous role."""

from __future__ import annotations

import queue
from collections.abc import Callable

from ...storage.codec import decode_records
from ..aggregation.service import AggregatorService
from ..data_point import DataPoint
from ..decoding import read
from ..errors import AwayError, BusyError
from ..evaluation.evaluator import Evaluator
from ..evaluation.targets import Target
from ..frontend import Frontend
from ..interfaces import Link
from ..messages import (
    LEGACY_KINDS,
    AcceptedReply,
    AggregatorReply,
    ArrivalOrderRequest,
    ClaimRequest,
    ClearRequest,
    DoubtRequest,
    FlushRequest,
    IngestReply,
    LegacyArray,
    LegacyTargetRequest,
    NoticesRequest,
    PointEnvelope,
    RemovedReply,
    RemoveRequest,
    ResultsRequest,
    RunQuery,
    RunRemoval,
    RunRequest,
    SketchesQuery,
    SketchesReply,
    SketchMessage,
    SketchRequest,
    StatusReport,
    TargetRequest,
    TargetsRemoval,
    TargetsReply,
    TriggerFields,
)
from .endpoints import CheckedRequest, Endpoint, get, post
from .turns import Turns

MAX_SMALL = 1 << 16


def aggregator_routes(aggregator: AggregatorService, limit: int) -> list[Endpoint]:
    """Return the routes of the aggregator."""

    def count_malformed() -> None:
        aggregator.malformed += 1

    def records(request: CheckedRequest) -> IngestReply:
        return aggregator.records(*decode_records(request.body), request.body)

    def legacy(route: str) -> Endpoint:
        def take(request: CheckedRequest) -> IngestReply:
            return aggregator.records([request.body.record(route)], {})

        summary = "Take one array, as the client of 2018 sends it"
        return post(
            f"/{route}", summary, LegacyArray, take, limit, reply=IngestReply, refused=count_malformed
        )

    def clear(request: CheckedRequest) -> RemovedReply:
        return RemovedReply([*map(list, aggregator.clear(request.body.client, request.body.run))])

    def remove(request: CheckedRequest) -> RemovedReply:
        scope = request.body
        return RemovedReply([*map(list, aggregator.remove(scope.name, scope.client, scope.run))])

    def status(request: CheckedRequest) -> AggregatorReply:
        return read({"trigger": aggregator.aggregator.trigger} | aggregator.status(), AggregatorReply)

    return [
        post(
            "/records",
            "Take records, as safetensors with JSON metadata",
            bytes,
            records,
            limit,
            reply=IngestReply,
            refused=count_malformed,
            admit=aggregator.admit,
            turns=Turns(),
        ),
        post(
            "/set_trigger_fields",
            "Set the fields whose change completes a data point, for runs that begin from now on",
            TriggerFields,
            lambda request: aggregator.set_trigger(request.body),
            MAX_SMALL,
            refused=count_malformed,
        ),
        post(
            "/clear", "Delete a run, or all of a client", ClearRequest, clear, MAX_SMALL, reply=RemovedReply
        ),
        post(
            "/remove",
            "Delete a model of a run or client",
            RemoveRequest,
            remove,
            MAX_SMALL,
            reply=RemovedReply,
        ),
        get("/status", "The aggregator's counts, and the trigger fields", AggregatorReply, status),
        *map(legacy, LEGACY_KINDS),
        *_common_routes(aggregator, limit, count_malformed),
    ]


def evaluator_routes(evaluator: Evaluator, limit: int) -> list[Endpoint]:
    """Return the routes of the evaluator."""

    def admit() -> None:
        if evaluator.backlog() > limit * 4:
            raise BusyError("Too many data points wait to be scored. Send this again in a second.")

    def datapoint(request: CheckedRequest) -> AcceptedReply:
        records, envelope = decode_records(request.body)
        checked = read(envelope, PointEnvelope, "The envelope of the data point: ")
        outcomes: queue.SimpleQueue[bool | AwayError] = queue.SimpleQueue()
        evaluator.point(
            DataPoint.read(records, checked),
            last=checked.last,
            waiting=None if checked.waiting is None else checked.waiting.moment(),
            done=lambda point, scored: outcomes.put(scored),
            back=outcomes.put,
        )
        while True:  # the sender keeps it until the reply
            try:
                outcome = outcomes.get(timeout=5 if evaluator.closing.is_set() else 0.5)
            except queue.Empty:
                if evaluator.closing.is_set():
                    raise AwayError("The evaluator is being stopped. Send this to it again.") from None
                continue
            if isinstance(outcome, AwayError):
                raise outcome
            return AcceptedReply(int(outcome))

    summary = "Score a data point; answers when its scores are stored"
    return [
        post("/datapoint", summary, bytes, datapoint, limit * 4, reply=AcceptedReply, admit=admit),
        *_common_routes(evaluator, limit),
        *_report_routes(evaluator, limit),
    ]


def frontend_routes(frontend: Frontend, limit: int) -> list[Endpoint]:
    """Return the routes of the frontend."""

    def results(request: CheckedRequest) -> AcceptedReply:
        table = request.body.results()
        predicted = [each.predictions() for each in request.body.predictions]
        unscored = request.body.unscored
        moment = None if unscored is None else unscored.moment()
        frontend.results(table, request.body.scores, predicted, moment)
        return AcceptedReply(len(table))

    def sketch(request: CheckedRequest) -> None:
        of = request.body
        unscored = None if of.unscored is None else of.unscored.moment()
        frontend.keep_sketch(of.run, of.model, of.sketch.sketch(), unscored)

    def sketches(request: CheckedRequest) -> SketchesReply:
        asked = request.body
        found = frontend.sketches(asked.run, asked.model, asked.training, asked.at)
        return SketchesReply([SketchMessage(**each._asdict()) for each in found])

    def claim(request: CheckedRequest) -> None:
        frontend.claim_target(request.body.name, request.body.owner)

    def arrival_order(request: CheckedRequest) -> None:
        order = request.body
        frontend.arrival_order(order.run, order.model, order.mode)

    summary = "Verify the scores of labels that were matched by order of arrival"
    return [
        post("/results", "Store scores", ResultsRequest, results, limit, reply=AcceptedReply),
        post("/sketch", "Keep a sample of a layer's rows", SketchRequest, sketch, limit),
        post("/sketches", "The samples that are kept", SketchesQuery, sketches, limit, reply=SketchesReply),
        post("/claim", "Restrict a target to the runs of its owner", ClaimRequest, claim, limit),
        post("/order", summary, ArrivalOrderRequest, arrival_order, limit),
        *_common_routes(frontend, limit),
        *_report_routes(frontend, limit),
        get("/targets", "All targets", TargetsReply, lambda request: {"targets": frontend.targets()}),
    ]


def _common_routes(
    role: AggregatorService | Link, limit: int, refused: Callable[[], None] = lambda: None
) -> list[Endpoint]:
    """Return the routes that every role has."""

    def target(request: CheckedRequest) -> None:
        role.put_target(Target.parse(request.body))

    def legacy_target(request: CheckedRequest) -> None:
        role.put_target(Target.parse(request.body.request()))

    def flush(request: CheckedRequest) -> None:
        scope = request.body
        if isinstance(role, AggregatorService):
            role.flush(scope.run, scope.model, request.wait, scope.client)
        else:
            role.flush(scope.run, scope.model, request.wait)

    doubting = "Take a doubt of which items rows were that were sent before"
    waiting = "Score everything received, and wait up to Prefer: wait=SECONDS"
    legacy = "Register labels, as the client of 2018 does"
    table = [
        ("/run", "Take what a user says of a run", RunRequest, lambda request: role.put_run(request.body)),
        ("/doubts", doubting, DoubtRequest, lambda request: role.put_doubt(request.body)),
        ("/targets", "Register labels", TargetRequest, target),
        ("/flush", waiting, FlushRequest, flush),
        ("/register_classification_targets", legacy, LegacyTargetRequest, legacy_target),
        ("/register_clustering_targets", legacy, LegacyTargetRequest, legacy_target),
    ]
    return [
        post(
            "/graph",
            "Take a model's graph",
            bytes,
            lambda request: role.put_graph(request.query.run, request.query.model, request.body),
            limit,
            query=RunQuery,
            refused=refused,
        ),
        *(post(path, text, body, work, limit, refused=refused) for path, text, body, work in table),
    ]


def _report_routes(role: Link, limit: int) -> list[Endpoint]:
    """Return the routes for notices and counts of the previous roles, and for what they delete."""

    def remove(request: CheckedRequest) -> RemovedReply:
        run, model = request.body.run, request.body.model
        return RemovedReply([[run, model or ""]] if role.remove(run, model) else [])

    return [
        post(
            "/run/remove",
            "Delete a run, or one model of it, as the previous role asks",
            RunRemoval,
            remove,
            MAX_SMALL,
            reply=RemovedReply,
        ),
        post(
            "/targets/remove",
            "Delete the targets of a client, as the previous role asks",
            TargetsRemoval,
            lambda request: role.clear(request.body.owner),
            MAX_SMALL,
        ),
        post(
            "/notices",
            "Store notices",
            NoticesRequest,
            lambda request: role.notices(request.body.notices),
            limit,
        ),
        post(
            "/status",
            "Receive the counts of another role",
            StatusReport,
            lambda request: role.report(request.body),
            limit,
        ),
    ]
