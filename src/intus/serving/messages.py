"""The messages of the servers: every request and every reply, each stated once.

``decoding`` checks what came against these structs, and refuses it with a sentence that names the field, the
value and what to write; the OpenAPI document is made from them too. The training client does not import this
module, since it needs msgspec: a test compares what the client sends with what is stated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from ..core.errors import InputError
from ..core.record import Record
from ..core.results import COLUMNS, Results
from ..core.score_info import ScoreInfo

# -- what values may be: names that any database can store, numbers that can be compared ---------------

_STORABLE = r"^[^\x00\ud800-\udfff]*$"  # PostgreSQL stores no NUL, and no encoding half a surrogate pair
_LONGEST = 1000

Text = Annotated[str, Meta(max_length=_LONGEST, pattern=_STORABLE)]
Name = Annotated[str, Meta(min_length=1, max_length=_LONGEST, pattern=_STORABLE)]
Count = Annotated[int, Meta(ge=0, lt=2**62)]
Int = Annotated[int, Meta(gt=-(2**62), lt=2**62)]
Number = Annotated[float, Meta(gt=-1e300, lt=1e300)]
Epoch = Annotated[float, Meta(gt=-1e15, lt=1e15)]
# No pattern here: with one in a union with a list, msgspec 0.22 crashes when the process ends.
Label = Annotated[
    bool | int | float | Annotated[str, Meta(max_length=_LONGEST)] | None,
    Meta(title="a label (a number, a string, true, false, or null for none)"),
]
Labels = Annotated[
    list[Label | list[Label]],
    Meta(min_length=1, title="a list of labels, one per row, or lists of one per position; not empty"),
]
Model = Annotated[Text, Meta(description="the model's name")]
Run = Annotated[Text, Meta(description="the run's name")]
Client = Annotated[Text, Meta(description="the id of the process that sends")]
Pattern = Annotated[Text, Meta(description="a regular expression in RE2's syntax")]


class Message(Struct):
    """Base of all messages. Unknown fields are ignored, so that an older server understands newer clients."""


# -- records, from clients to the aggregator -----------------------------------------------------------


class EpochReport(Message):
    """What a client says of one epoch of a run: what it has sent so far, and whether more will come."""

    run: Run
    model: Model
    epoch: Epoch | None = None
    sent: Annotated[Count, Meta(description="records sent so far")] = 0
    dropped: Annotated[Count, Meta(description="records dropped by the client so far")] = 0
    ended: Annotated[bool, Meta(description="whether the epoch has ended")] = False
    left: Annotated[bool, Meta(description="whether the client has left the run")] = False

    @property
    def run_key(self) -> tuple[str, str]:
        """The (run, model) it is about."""
        return self.run, self.model


class RecordsEnvelope(Message):
    """What travels beside records, in the metadata of the safetensors blob."""

    client: Client | None = None
    seq: Annotated[Count, Meta(description="the number of the client's request")] | None = None
    dropped: Annotated[Count, Meta(description="records that the client has dropped so far")] | None = None
    epochs: list[EpochReport] = []

    def part(self, run_key: tuple[str, str]) -> dict[str, Any]:
        """Return the envelope of one (run, model)'s records alone, as JSON-able values."""
        own = [report for report in self.epochs if report.run_key == run_key]
        part: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, epochs=own))
        return part


class RecordFacts(Message):
    """What the facts of a usable record are, beside its array."""

    run: Run
    model: Model
    address: Annotated[Text, Meta(description="the layer's address")]
    mode: Text
    epoch: Epoch | None
    step: Annotated[int, Meta(ge=-1, lt=2**62)] | None
    index: Annotated[int, Meta(ge=0, lt=2**31)]


class IngestReply(Message):
    """How many records were accepted; ``duplicate`` if the request had come before."""

    accepted: Count
    duplicate: bool


#: Fields whose change ends a window.
TriggerFields = Annotated[list[Name], Meta(title="a list of field names")]


# -- the client of 2018 (Vivisect) ---------------------------------------------------------------------

#: The kind of record that each of its routes takes.
LEGACY_KINDS = {
    "activation_output": "output",
    "activation_input": "input",
    "gradient_output": "grad_output",
    "gradient_input": "grad_input",
    "parameter": "parameter",
}


class LegacyMetadata(Message):
    """Where an array of the client of 2018 came from."""

    model_name: Model = ""
    operation_name: Annotated[Text, Meta(description="the layer's name")] | None = None
    array_name: Annotated[str | int, Meta(description="which output, or which parameter")] = ""
    epoch: Epoch | None = None
    batch_axis: Annotated[int, Meta(ge=0, lt=64)] | None = 0
    state: Annotated[Text, Meta(description='"train" or "dev"')] | None = None
    run: Run | None = None


class LegacyArray(Message):
    """One array of the client of 2018, as nested lists."""

    metadata: LegacyMetadata
    array: Annotated[list[float | list[Any] | None], Meta(title="a rectangular list of numbers")]

    def record(self, route: str) -> Record:
        """Return the record that came to ``route``; raises InputError for lists that are not rectangular."""
        try:
            array = np.asarray(self.array, dtype=np.float32)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"array must be a rectangular list of numbers: {error}.") from None
        of, parameter, index = self.metadata, route == "parameter", str(self.metadata.array_name)
        address = of.operation_name if of.operation_name is not None else index if parameter else ""
        return Record(
            array,
            address,
            LEGACY_KINDS[route],
            of.run or "",
            of.model_name,
            None,
            of.epoch,
            of.state or "",
            None if parameter else of.batch_axis,
            int(index) if index.isdecimal() else 0,
        )


# -- targets -------------------------------------------------------------------------------------------


class Patterns(Message):
    """A target's name, and which runs and layers it is for."""

    name: Annotated[Name, Meta(description="the target's name, such as 'digit'")]
    model_pattern: Pattern = ".*"
    layer_pattern: Pattern = ".*"
    run_pattern: Pattern = ".*"


class TargetRequest(Patterns, kw_only=True):
    """Labels to score layers against."""

    targets: Labels
    client: Client = ""


class LegacyTargetRequest(Patterns, kw_only=True):
    """Labels as the client of 2018 sends them."""

    values: Labels

    def request(self) -> TargetRequest:
        """Return the request that means the same."""
        fields = msgspec.structs.asdict(self)
        return TargetRequest(targets=fields.pop("values"), **fields)


class StoredTarget(Patterns, kw_only=True):
    """A target as the database keeps it."""

    targets: Labels
    owner: Annotated[Text, Meta(description="the client that registered it")] = ""
    registered: Annotated[float, Meta(description="when, in seconds since 1970")] = 0.0
    until: Annotated[float, Meta(description="when a run must have begun to be scored on it")] | None = None
    claimed: Annotated[bool, Meta(description="whether it is for its owner's runs alone")] = False
    runs: Annotated[list[tuple[Text, Text]], Meta(description="(run, model) pairs with scores of it")] = []


class TargetsReply(Message):
    """All targets."""

    targets: list[StoredTarget]


class ClaimRequest(Message):
    """A target is for its owner's runs alone from now on."""

    name: Annotated[Text, Meta(description="the target's name")]
    owner: Annotated[Text, Meta(description="the id of the client that registered it")]


# -- data points, from the aggregator to the evaluator -------------------------------------------------


class PointEnvelope(Message):
    """What travels beside the records of a data point."""

    kind: Annotated[Name, Meta(description="the kind as results name it")]
    step: Annotated[Int, Meta(description="the step, -1 for a whole epoch")]
    lacks: Annotated[Text, Meta(description="what is missing, empty if nothing is")]
    last: Annotated[bool, Meta(description="whether it is the last of its batch")]
    clients: Annotated[list[Text], Meta(description="the clients of the run")] = []
    began: Annotated[Number, Meta(description="when the run began, in seconds since 1970")] = 0.0


class AcceptedReply(Message):
    """How many were stored."""

    accepted: Count


# -- results and notices, to the frontend --------------------------------------------------------------

_CELLS: dict[type, Any] = {str: Text, int: Int, float: Number}
#: The columns of a table of results: a list for each, null for what does not apply.
ResultColumns: Any = msgspec.defstruct(
    "ResultColumns",
    [
        (name, list[_CELLS[type(missing)] | None] | UnsetType, UNSET)  # type: ignore[misc]
        for name, missing in COLUMNS.items()
    ],
    bases=(Message,),
    module=__name__,
    forbid_unknown_fields=True,
)


class ResultsRequest(Message):
    """A table of results, and what their scores are."""

    columns: ResultColumns
    scores: list[ScoreInfo] = []

    @classmethod
    def of(cls, results: Results, infos: Sequence[ScoreInfo] = ()) -> ResultsRequest:
        """Return the message of a table; NaN and infinities become null when it is encoded."""
        return cls(ResultColumns(**{name: results[name].tolist() for name in COLUMNS}), list(infos))

    def results(self) -> Results:
        """Return the table; raises InputError where the columns are not equally long."""
        columns = msgspec.structs.asdict(self.columns)
        return Results(
            {
                name: [COLUMNS[name] if value is None else value for value in values]
                for name, values in columns.items()
                if values is not UNSET
            }
        )


class Notice(Struct, frozen=True):
    """Something that people should see on the page.

    >>> Notice("dropped", "The probe dropped arrays.").level
    'warning'
    """

    code: Annotated[Text, Meta(description="a word for its kind")]
    text: Annotated[str, Meta(description="the sentence to show")]
    level: Literal["info", "warning", "error"] = "warning"
    run: Run = ""
    model: Model = ""

    def __post_init__(self) -> None:
        # It may quote anything, such as the message of an exception; it must be storable all the same.
        text = self.text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")[:_LONGEST]
        msgspec.structs.force_setattr(self, "text", text)


class NoticesRequest(Message):
    """Notices to store."""

    notices: list[Notice]


class StoredNotice(Message):
    """A notice as the database keeps it: ``count`` times, last at ``time``, in seconds since 1970."""

    id: int
    run: str
    model: str
    level: str
    code: str
    text: str
    count: int
    time: float


class NoticesReply(Message):
    """Notices, the newest first."""

    notices: list[StoredNotice]


class ArrivalOrderRequest(Message):
    """Whether the rows of a run arrive in the same order in each epoch."""

    run: Run
    model: Model
    mode: Text
    holds: Annotated[bool, Meta(description="true to verify the scores, false to withdraw them")]


# -- counts --------------------------------------------------------------------------------------------

#: For how many (run, model) a role tells the counts: those it heard of last.
COUNTED_RUNS = 100
_Optional = Count | UnsetType


class AggregatorCounts(Message, forbid_unknown_fields=True):
    """What the aggregator counts since it began."""

    received: Annotated[_Optional, Meta(description="records placed in a window")] = UNSET
    duplicates: Annotated[_Optional, Meta(description="requests that had come before")] = UNSET
    dropped: Annotated[_Optional, Meta(description="records dropped by clients")] = UNSET
    refused: Annotated[_Optional, Meta(description="records refused, or evicted before they were scored")] = (
        UNSET
    )
    incomplete: Annotated[_Optional, Meta(description="data points scored without all their records")] = UNSET
    late: Annotated[_Optional, Meta(description="records that came after their window was scored")] = UNSET
    pending: Annotated[_Optional, Meta(description="data points not yet passed on")] = UNSET
    bytes: Annotated[_Optional, Meta(description="bytes of the arrays in memory")] = UNSET
    malformed: Annotated[_Optional, Meta(description="requests that could not be read")] = UNSET
    journal: Annotated[_Optional, Meta(description="bytes of the journal on disk")] = UNSET


class EvaluatorCounts(Message, forbid_unknown_fields=True):
    """What the evaluator counts since it began."""

    scored: Annotated[_Optional, Meta(description="data points scored")] = UNSET
    failed: Annotated[_Optional, Meta(description="data points that could not be scored")] = UNSET
    pending: Annotated[_Optional, Meta(description="data points that wait")] = UNSET


class FrontendCounts(Message, forbid_unknown_fields=True):
    """What the frontend counts since it began."""

    results: Annotated[_Optional, Meta(description="rows of results stored")] = UNSET
    notices: Annotated[_Optional, Meta(description="notices stored")] = UNSET


class RunCounts(Message, forbid_unknown_fields=True, omit_defaults=True):
    """What one role counts of one (run, model)."""

    run: Annotated[str, Meta()]
    model: Annotated[str, Meta()]
    received: _Optional = UNSET
    dropped: _Optional = UNSET
    refused: _Optional = UNSET
    incomplete: _Optional = UNSET
    late: _Optional = UNSET
    pending: _Optional = UNSET
    scored: _Optional = UNSET
    failed: _Optional = UNSET


class StatusReport(Message):
    """What another role counts, as it tells the frontend."""

    aggregator: AggregatorCounts | None = None
    evaluator: EvaluatorCounts | None = None
    runs: list[RunCounts] = []


class StatusReply(Message):
    """What each role counts: those of this process as they are now, the others as they last reported."""

    aggregator: AggregatorCounts
    evaluator: EvaluatorCounts
    frontend: FrontendCounts
    requests: Annotated[dict[str, int], Meta(description="requests refused or failed here, by status")]
    runs: Annotated[list[RunCounts], Meta(description="counts of each run, a row for each role")]


class AggregatorReply(AggregatorCounts, kw_only=True):
    """The aggregator's counts, and the fields whose change ends a window."""

    trigger: list[str]


# -- flush, clear, remove, graphs ----------------------------------------------------------------------


class FlushRequest(Message):
    """Score all that came, or all of a run, a model or a client."""

    run: Run | None = None
    model: Model | None = None
    client: Client | None = None


class ClearRequest(Message):
    """Forget everything."""


class RemoveRequest(Message):
    """Forget a model."""

    model: Model | UnsetType = UNSET
    model_name: Annotated[Text, Meta(description="the model's name, from a client of 2018")] | UnsetType = (
        UNSET
    )

    def __post_init__(self) -> None:
        if self.model is UNSET and self.model_name is UNSET:
            raise ValueError("model is missing; it must be a string (the model's name).")

    @property
    def name(self) -> str:
        """The model's name, from a client of any age."""
        return self.model if self.model is not UNSET else str(self.model_name)


class DoneReply(Message):
    """The reply to a request that succeeded and returns nothing."""


class ErrorReply(Message):
    """Why a request was refused, or failed."""

    error: str


class RunQuery(Message):
    """Which (run, model)."""

    run: Run = ""
    model: Model = ""


# -- what the page reads ------------------------------------------------------------------------------


class ScoredTarget(Message):
    """A score and the target it was computed for; "" for a score that needs none."""

    score: str
    target: str


class RunSummary(Message):
    """A (run, model), and what there is to look at in it."""

    run: str
    model: str
    framework: str
    started: Annotated[float, Meta(description="in seconds since 1970")]
    updated: Annotated[float, Meta(description="in seconds since 1970")]
    points: Annotated[int, Meta(description="number of scores stored")]
    epochs: list[float]
    addresses: Annotated[list[str], Meta(description="layers, in the order of the network where it is known")]
    scores: Annotated[list[str], Meta(description="scores of whole layers")]
    targets: Annotated[list[str], Meta(description="targets that layers have scores of")]
    kinds: list[str]
    layers: Annotated[list[ScoredTarget], Meta(description="scores that layers have, and of which target")]
    units: Annotated[list[ScoredTarget], Meta(description="scores that units have, and of which hypothesis")]
    has_graph: bool


class RunsReply(Message):
    """Every run, the newest first, and what their scores and kinds are."""

    runs: list[RunSummary]
    scores: Annotated[list[ScoreInfo], Meta(description="what each score is, in the order to list them")]
    kinds: Annotated[dict[str, str], Meta(description="how people call each kind")]


class PointsQuery(RunQuery):
    """Which scores of a (run, model)."""

    score: Text | None = None
    target: Text | None = None
    kind: Text | None = None
    address: Text | None = None
    level: Literal["layer", "unit"] = "layer"
    columns: (
        Annotated[Text, Meta(description="names of columns, separated by commas; all by default")] | None
    ) = None


class PointsReply(Message, omit_defaults=True):
    """Scores as columns of equal length; null where there is no number."""

    address: list[str] = []
    unit: list[int] = []
    epoch: list[float | None] = []
    step: list[int] = []
    kind: list[str] = []
    target: list[str] = []
    score: list[str] = []
    value: list[float | None] = []
    low: list[float | None] = []
    high: list[float | None] = []
    baseline: list[float | None] = []
    n: list[int] = []
    note: list[str] = []
    revision: Annotated[list[int], Meta(description="how often a score was found to be another")] = []


class NoticesQuery(Message):
    """Notices of one run, or of all."""

    run: Run | None = None
