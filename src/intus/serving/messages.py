"""The messages of the servers: every request and every reply, each defined once.

``decoding`` validates requests with these structs, and its errors name the field, the value and what to
write. The OpenAPI document is generated from them too. The training client does not import this module, since
it needs msgspec: a test compares the client's requests with these structs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from ..core.doubt import Doubt
from ..core.errors import InputError
from ..core.followup import UnitExamples, UnitVerification
from ..core.names import LONGEST, STORABLE
from ..core.record import Record
from ..core.results import COLUMNS, Predictions, Results
from ..core.score_info import ScoreInfo
from ..storage.kept_sketch import KeptSketch
from .options import TRIGGERS
from .schedule import Moment

# -- types of values: names that any database can store, numbers that can be compared ------------------

Text = Annotated[str, Meta(max_length=LONGEST, pattern=STORABLE)]
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST, pattern=STORABLE)]
Count = Annotated[int, Meta(ge=0, lt=2**62)]
Int = Annotated[int, Meta(gt=-(2**62), lt=2**62)]
Number = Annotated[float, Meta(gt=-1e300, lt=1e300)]
Epoch = Annotated[float, Meta(gt=-1e15, lt=1e15)]
# No pattern here: with one in a union with a list, msgspec 0.22 crashes when the process ends.
Label = Annotated[
    bool | int | float | Annotated[str, Meta(max_length=LONGEST)] | None,
    Meta(title="a label (a number, a string, true, false, or null for none)"),
]
Labels = Annotated[
    list[Label | list[Label]],
    Meta(min_length=1, title="a list of labels, one per row, or lists of one per position; not empty"),
]
Id = Annotated[
    int | Annotated[str, Meta(max_length=LONGEST)] | None, Meta(title="an id: a whole number or a string")
]
Groups = Annotated[
    list[Id] | None, Meta(description="what each item belongs to; items of a group are held out together")
]
Types = Annotated[
    list[Id | list[Id]] | None, Meta(description="what each label's row is an instance of, such as its word")
]
Model = Annotated[Text, Meta(description="the model's name")]
Run = Annotated[Text, Meta(description="the run's name")]
Derived = Annotated[
    str, Meta(max_length=4 * LONGEST, pattern=STORABLE)
]  # made of names, by escaping or joining
Client = Annotated[Derived, Meta(description="the id of the process that sends")]
Pattern = Annotated[Derived, Meta(description="a regular expression in RE2's syntax")]


class Message(Struct):
    """Base of all messages. Unknown fields are ignored, so that an older server understands newer clients."""


# -- records, from clients to the aggregator -----------------------------------------------------------


class ClientNote(Message):
    """A fact that a client found out about its run, to be shown on the page."""

    code: Annotated[Text, Meta(description="a word for its kind")]
    text: Annotated[str, Meta(description="the sentence to show")]
    level: Literal["info", "warning", "error"] = "warning"


class EpochReport(Message):
    """A client's report of one epoch of a run: records sent so far, and whether more will follow."""

    run: Run
    model: Model
    epoch: Epoch | None = None
    sent: Annotated[Count, Meta(description="records sent so far")] = 0
    dropped: Annotated[Count, Meta(description="records dropped by the client so far")] = 0
    ended: Annotated[bool, Meta(description="whether the epoch has ended")] = False
    left: Annotated[bool, Meta(description="whether the client has left the run")] = False
    failed: Annotated[Count, Meta(description="records that the client could not make so far")] = 0
    idle: Annotated[list[Text], Meta(description="layers that were not to be recorded in the epoch")] = []
    reasons: Annotated[list[Text], Meta(description="why records were dropped")] = []
    notes: Annotated[list[ClientNote], Meta(description="sentences to show on the page")] = []
    total: Annotated[Count, Meta(description="records sent of all epochs of the run so far")] | None = None
    training: Annotated[
        Count, Meta(description="how many trainings the client began before under the same names")
    ] = 0
    delivered: Annotated[Count, Meta(description="records that a server accepted in earlier requests")] = 0
    job: Annotated[Text, Meta(description="a name that the processes of one training share")] = ""
    whole: Annotated[
        Count, Meta(description="records sent when the client last said that these are all so far")
    ] = 0

    @property
    def run_key(self) -> tuple[str, str]:
        """The (run, model) of the report."""
        return self.run, self.model


class RecordsEnvelope(Message):
    """The envelope of records, in the metadata of the safetensors blob."""

    client: Client | None = None
    seq: Annotated[Count, Meta(description="the number of the client's request")] | None = None
    dropped: Annotated[Count, Meta(description="records that the client has dropped so far")] | None = None
    epochs: list[EpochReport] = []

    def part(self, run_key: tuple[str, str]) -> dict[str, Any]:
        """Return the envelope for the records of one (run, model) only, as JSON values."""
        own = [report for report in self.epochs if report.run_key == run_key]
        part: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, epochs=own))
        return part


class RecordFacts(Message):
    """The fields of a valid record, except its array."""

    run: Run
    model: Model
    address: Annotated[Text, Meta(description="the layer's address")]
    mode: Text
    epoch: Epoch | None
    step: Annotated[int, Meta(ge=-1, lt=2**62)] | None
    index: Annotated[int, Meta(ge=0, lt=2**31)]


class IngestReply(Message):
    """The number of accepted records; ``duplicate`` if the request was received before."""

    accepted: Count
    duplicate: bool


#: Fields whose change ends a window.
TriggerFields = Annotated[
    list[Annotated[Name, Meta(extra_json_schema={"enum": [*TRIGGERS, "state"]})]],
    Meta(title="a list of field names", extra_json_schema={"minItems": 1}),
]


# -- the client of 2018 (Vivisect) ---------------------------------------------------------------------

#: The kind of record of each of its routes.
LEGACY_KINDS = {
    "activation_output": "output",
    "activation_input": "input",
    "gradient_output": "grad_output",
    "gradient_input": "grad_input",
    "parameter": "parameter",
}


class LegacyMetadata(Message):
    """The metadata of an array of the client of 2018."""

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
        """Convert to the record of ``route``; raises InputError for lists that are not rectangular."""
        try:
            with np.errstate(over="ignore"):
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


# -- what the user says of a run -----------------------------------------------------------------------

LoggedNumber = Annotated[
    float | Literal["nan", "inf", "-inf"], Meta(description="a number; nan, inf and -inf are texts")
]


class LogEntry(Message):
    """Values that a user logged together."""

    step: Int
    epoch: Epoch | None
    time: Annotated[Number, Meta(description="when, in seconds since 1970")]
    values: Annotated[dict[Name, LoggedNumber], Meta(description="by name")]


class RunRequest(Message):
    """Facts that a user states of a run: configuration and tags, replacing old ones, and logged values."""

    run: Run
    model: Model
    config: dict[str, Any] | None = None
    tags: list[Name] | None = None
    log: list[LogEntry] = []
    training: (
        Annotated[
            Number,
            Meta(description="when the process began the training of these values, in seconds since 1970"),
        ]
        | None
    ) = None


class DoubtRequest(Message):
    """A doubt of which items the rows of a run were, that a client has found out after it sent them."""

    run: Run
    model: Model
    note: Annotated[Text, Meta(description="what the notes of scores of these rows say")]
    withdraw: Annotated[bool, Meta(description="whether these scores have no values any more")] = False
    after: Annotated[Epoch, Meta(description="the epoch that it begins after")] | None = None
    until: Annotated[Epoch, Meta(description="the last epoch")] | None = None
    modes: Annotated[list[Text], Meta(description="the modes of the passes; empty for all")] = []
    address: Annotated[Text, Meta(description="the layer; null for all")] | None = None
    of: Annotated[Text, Meta(description="what the notes of these scores say; empty for all")] = ""
    every: Annotated[
        bool,
        Meta(description="whether it is about all scores of whole epochs, not only those that need items"),
    ] = False
    client: Client | None = None
    training: Annotated[
        Count, Meta(description="how many trainings the client began before under the same names")
    ] = 0
    began: (
        Annotated[
            Number,
            Meta(description="when the training began, in seconds since 1970, as the aggregator knows"),
        ]
        | None
    ) = None

    def doubt(self) -> Doubt:
        """Return the doubt, without the names that it is stored under."""
        began = math.nan if self.began is None else self.began
        ranges = self.after, self.until, tuple(self.modes), self.address
        return Doubt(self.note, self.withdraw, *ranges, began, self.of, self.every)


# -- targets -------------------------------------------------------------------------------------------


Exact = Annotated[
    bool, Meta(description="whether a list has one label for each position of its item, without padding")
]

During = Annotated[
    list[Text], Meta(description="the runs that the client was recording as it registered the labels")
]


Typed = Annotated[
    bool, Meta(description="whether the script gave the types, and so expects the scores that need them")
]


class Patterns(Message):
    """A target's name, and patterns for the runs, models and layers that it applies to."""

    name: Annotated[Name, Meta(description="the target's name, such as 'digit'")]
    model_pattern: Pattern = ".*"
    layer_pattern: Pattern = ".*"
    run_pattern: Pattern = ".*"


LabelsNumber = Annotated[
    Count, Meta(description="which labels of the name they are, from 1, as the evaluator knows")
]


class TargetRequest(Patterns, kw_only=True):
    """The labels of a target."""

    targets: Labels
    groups: Groups = None
    types: Types = None
    typed: Typed = False
    exact: Exact = False
    client: Client = ""
    during: During = []
    number: LabelsNumber = 1
    registered: (
        Annotated[Number, Meta(description="when, in seconds since 1970, as the aggregator knows")] | None
    ) = None
    waiting: (
        Annotated[Number, Meta(description="no epoch waits whose last array came before that time")] | None
    ) = None
    moments: (
        Annotated[
            list[Number],
            Meta(description="when the last array of each epoch that waits came; null for any time since"),
        ]
        | None
    ) = None


class LegacyTargetRequest(Patterns, kw_only=True):
    """The labels of a target in the format of the client of 2018."""

    values: Labels

    def request(self) -> TargetRequest:
        """Convert to the current request."""
        fields = msgspec.structs.asdict(self)
        return TargetRequest(targets=fields.pop("values"), **fields)


class StoredTarget(Patterns, kw_only=True):
    """A target in the database; one of an older version has no groups and types."""

    targets: Labels
    groups: Groups = None
    types: Types = None
    exact: Exact = False
    owner: Annotated[Derived, Meta(description="the client that registered it")] = ""
    during: During = []
    number: LabelsNumber = 1
    registered: Annotated[float, Meta(description="when, in seconds since 1970")] = 0.0
    until: Annotated[float, Meta(description="when a run must have begun to be scored on it")] | None = None
    claimed: Annotated[bool, Meta(description="whether it applies to its owner's runs only")] = False
    runs: Annotated[list[tuple[Text, Text]], Meta(description="(run, model) pairs with scores of it")] = []


class TargetsReply(Message):
    """All targets."""

    targets: list[StoredTarget]


class ClaimRequest(Message):
    """A request to restrict a target to the runs of its owner."""

    name: Annotated[Text, Meta(description="the target's name")]
    owner: Annotated[Derived, Meta(description="the id of the client that registered it")]


# -- data points, from the aggregator to the evaluator -------------------------------------------------


class MomentMessage(Message):
    """An epoch of a run, or a step of one: a ``schedule.Moment``."""

    attempt: Annotated[Count, Meta(description="how often the training was started again")]
    epoch: Annotated[Epoch | None, Meta(description="the epoch; null if it is unknown")]
    step: Annotated[Int, Meta(description="the step, -1 for a whole epoch")]

    @classmethod
    def of(cls, moment: Moment | None) -> MomentMessage | None:
        """Return the message of a moment."""
        if moment is None:
            return None
        return cls(moment.attempt, moment.epoch if math.isfinite(moment.epoch) else None, moment.step)

    def moment(self) -> Moment:
        """Return the moment."""
        return Moment(self.attempt, -math.inf if self.epoch is None else self.epoch, self.step)


class PointEnvelope(Message):
    """The envelope of the records of a data point."""

    kind: Annotated[Name, Meta(description="the kind in results")]
    step: Annotated[Int, Meta(description="the step, -1 for a whole epoch")]
    lacks: Annotated[Text, Meta(description="what is missing, empty if nothing is")]
    last: Annotated[bool, Meta(description="whether it is the last of its batch")]
    clients: Annotated[list[Text], Meta(description="the clients of the run")] = []
    began: Annotated[Number, Meta(description="when the run began, in seconds since 1970")] = 0.0
    attempt: Annotated[Count, Meta(description="how often the training was started again")] = 0
    previous: Annotated[
        tuple[Epoch, Int] | None,
        Meta(description="the epoch and step before it of the same layer, in an earlier epoch"),
    ] = None
    pooled: Annotated[bool, Meta(description="whether several processes sent rows of the same items")] = False
    number: Annotated[
        Count, Meta(description="its number among the data points of its epoch, in the network's order")
    ] = 0
    arrived: Annotated[
        Number, Meta(description="when the last array of its epoch came, in seconds since 1970; 0 if unknown")
    ] = 0.0
    training: Annotated[Number, Meta(description="when its training began, in seconds since 1970")] = 0.0
    waiting: Annotated[
        MomentMessage | None,
        Meta(description="the earliest epoch of the run of which the sender has data points that wait"),
    ] = None


class AcceptedReply(Message):
    """The number of stored items."""

    accepted: Count


# -- results and notices, to the frontend --------------------------------------------------------------

_CELLS: dict[type, Any] = {str: Text, int: Int, float: Number}
#: The columns of a table of results: a list for each, with null for missing values.
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


class PredictionsMessage(Message):
    """The predictions of a classifier on held-out rows; see ``core.results.Predictions``."""

    run: Run
    model: Model
    epoch: Epoch | None
    step: Int
    address: Text
    kind: Text
    target: Text
    score: Text
    classes: Annotated[list[Label], Meta(description="the labels, in order", max_length=1000)]
    items: Annotated[bytes, Meta(description="the id of each row's item, as 8-byte integers, little-endian")]
    truth: Annotated[bytes, Meta(description="the class of each row, as 2-byte integers")]
    guess: Annotated[bytes, Meta(description="the predicted class of each row, likewise")]

    @classmethod
    def of(cls, given: Predictions) -> PredictionsMessage:
        """Return the message of predictions."""
        arrays = {"items": given.items.astype("<i8").tobytes()}
        arrays |= {name: getattr(given, name).astype("<u2").tobytes() for name in ("truth", "guess")}
        fields = {name: getattr(given, name) for name in cls.__struct_fields__ if name not in arrays}
        return cls(**fields | arrays | {"classes": list(given.classes)})

    def predictions(self) -> Predictions:
        """Convert to predictions; raises InputError if the arrays do not fit one another."""
        rows = len(self.items) // 8
        if (len(self.items), len(self.truth), len(self.guess)) != (8 * rows, 2 * rows, 2 * rows) or not rows:
            raise InputError("items, truth and guess must be of the same rows, with 8, 2 and 2 bytes each.")
        truth, guess = (np.frombuffer(part, "<u2").astype(np.int64) for part in (self.truth, self.guess))
        if max(truth.max(), guess.max()) >= len(self.classes):
            raise InputError(f"truth and guess must be numbers of the {len(self.classes)} classes.")
        fields = msgspec.structs.asdict(self) | {
            "classes": tuple(self.classes),
            "truth": truth,
            "guess": guess,
        }
        fields["items"] = np.frombuffer(self.items, "<i8").astype(np.int64)
        fields["epoch"] = np.nan if self.epoch is None else self.epoch
        return Predictions(**fields)


class ResultsRequest(Message):
    """A table of results, the descriptions of their scores, and the predictions of classifiers."""

    columns: ResultColumns
    scores: list[ScoreInfo] = []
    predictions: list[PredictionsMessage] = []
    unscored: Annotated[
        MomentMessage | None,
        Meta(description="the earliest epoch of the run that is not scored in full; null if none is known"),
    ] = None

    @classmethod
    def of(
        cls,
        results: Results,
        infos: Sequence[ScoreInfo] = (),
        predicted: Sequence[Predictions] = (),
        unscored: Moment | None = None,
    ) -> ResultsRequest:
        """Return the message of a table; NaN and infinities become null when it is encoded."""
        columns = ResultColumns(**{name: results[name].tolist() for name in COLUMNS})
        messages = [PredictionsMessage.of(each) for each in predicted]
        return cls(columns, list(infos), messages, MomentMessage.of(unscored))

    def results(self) -> Results:
        """Return the table; raises InputError if the columns have different lengths."""
        columns = msgspec.structs.asdict(self.columns)
        return Results(
            {
                name: [COLUMNS[name] if value is None else value for value in values]
                for name, values in columns.items()
                if values is not UNSET
            }
        )


class SketchMessage(Message):
    """A sample of a layer's rows in one epoch; see ``storage.sketches.KeptSketch``."""

    layer: Annotated[Derived, Meta(description="the layer with its kind and mode")]
    training: Annotated[Number, Meta(description="when its training began, in seconds since 1970")]
    epoch: Epoch
    step: Annotated[Int, Meta(description="the step, -1 for a whole epoch")]
    previous: Annotated[
        tuple[Epoch, Int] | None, Meta(description="the epoch and step that it is compared with")
    ]
    number: Annotated[Int, Meta(description="its number among the layers of its epoch; -1 for none")]
    content: Annotated[bytes, Meta(description="the sample, empty if it was not asked for")] = b""

    def sketch(self) -> KeptSketch:
        """Return what is to be kept."""
        return KeptSketch(**msgspec.structs.asdict(self))


class SketchRequest(Message):
    """A sample of a layer's rows to keep."""

    run: Run
    model: Model
    sketch: SketchMessage
    unscored: Annotated[
        MomentMessage | None,
        Meta(description="the earliest epoch of the run that is not scored in full; null if none is known"),
    ] = None


class SketchesQuery(Message):
    """A question for the samples of rows of a training, without their contents, or for one of them."""

    run: Run
    model: Model
    training: Annotated[Number, Meta(description="when the training began, in seconds since 1970")]
    at: Annotated[
        tuple[Derived, Epoch, Int] | None,
        Meta(description="the layer, epoch and step of the one to return; null for all"),
    ] = None


class SketchesReply(Message):
    """The samples of rows that are kept."""

    sketches: list[SketchMessage]


class Notice(Struct, frozen=True):
    """A notice to show on the page.

    >>> Notice("dropped", "The probe dropped arrays.").level
    'warning'
    """

    code: Annotated[Text, Meta(description="a word for its kind")]
    text: Annotated[str, Meta(description="the sentence to show")]
    level: Literal["info", "warning", "error"] = "warning"
    run: Run = ""
    model: Model = ""

    def __post_init__(self) -> None:
        # The text may quote an exception, so replace characters that cannot be stored.
        text = self.text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")[:LONGEST]
        msgspec.structs.force_setattr(self, "text", text)


class NoticesRequest(Message):
    """Notices to store."""

    notices: list[Notice]


class StoredNotice(Message):
    """A notice in the database: raised ``count`` times, last at ``time``, in seconds since 1970."""

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
    """The news that the rows of a run arrive in the same order in each epoch."""

    run: Run
    model: Model
    mode: Text


# -- counts --------------------------------------------------------------------------------------------

#: Number of (run, model) pairs whose ledger is reported: the newest ones.
COUNTED_RUNS = 1000
_Optional = Count | UnsetType


class AggregatorCounts(Message, forbid_unknown_fields=True):
    """The counts of the aggregator since it started."""

    received: Annotated[_Optional, Meta(description="records placed in a window")] = UNSET
    duplicates: Annotated[_Optional, Meta(description="requests that were received before")] = UNSET
    dropped: Annotated[_Optional, Meta(description="records dropped by clients")] = UNSET
    refused: Annotated[_Optional, Meta(description="records refused")] = UNSET
    lost: Annotated[_Optional, Meta(description="records evicted before they were scored")] = UNSET
    incomplete: Annotated[_Optional, Meta(description="data points scored without all their records")] = UNSET
    late: Annotated[_Optional, Meta(description="records that came after their window was scored")] = UNSET
    pending: Annotated[_Optional, Meta(description="data points not yet passed on")] = UNSET
    bytes: Annotated[_Optional, Meta(description="bytes of the arrays in memory")] = UNSET
    malformed: Annotated[_Optional, Meta(description="requests that could not be read")] = UNSET
    journal: Annotated[
        _Optional,
        Meta(description="bytes of the journal; absent if there is none"),
    ] = UNSET
    reading: Annotated[
        _Optional,
        Meta(description="bytes of the journal still to be read after a start; absent when it is read"),
    ] = UNSET


class EvaluatorCounts(Message, forbid_unknown_fields=True):
    """The counts of the evaluator since it started."""

    scored: Annotated[_Optional, Meta(description="data points scored")] = UNSET
    failed: Annotated[_Optional, Meta(description="data points that could not be scored")] = UNSET
    pending: Annotated[_Optional, Meta(description="data points in the queue")] = UNSET


class FrontendCounts(Message, forbid_unknown_fields=True):
    """The counts of the frontend since it started."""

    results: Annotated[_Optional, Meta(description="rows of results stored")] = UNSET
    notices: Annotated[_Optional, Meta(description="notices stored")] = UNSET


class RunLedger(Message):
    """The outcome of the arrays that the clients of one (run, model) sent.

    ``sent = under_way + unknown + refused + kept``, and ``kept = waiting + scored + failed + lost``.
    """

    run: Annotated[str, Meta()]
    model: Annotated[str, Meta()]
    since: Annotated[Number, Meta(description="when the run began, in seconds since 1970")] = 0.0
    sent: Annotated[Count, Meta(description="arrays sent, by the clients' own count if they report it")] = 0
    under_way: Annotated[Count, Meta(description="arrays sent that did not arrive yet")] = 0
    unknown: Annotated[
        Count,
        Meta(
            description="arrays sent of which this server knows nothing, such as those before its start, or "
            "that did not come from a process that has gone"
        ),
    ] = 0
    refused: Annotated[Count, Meta(description="arrays refused")] = 0
    kept: Annotated[Count, Meta(description="arrays acknowledged")] = 0
    waiting: Annotated[Count, Meta(description="arrays that wait to be scored")] = 0
    open: Annotated[Count, Meta(description="those of them whose epoch has not ended")] = 0
    queued: Annotated[Count, Meta(description="data points that wait to be scored")] = 0
    postponed: Annotated[
        Count, Meta(description="those of them that wait although a newer epoch has scores")
    ] = 0
    seconds_left: Annotated[
        Number | None,
        Meta(description="until these data points are scored, at the measured rate; null if it is not known"),
    ] = None
    trouble: Annotated[
        str,
        Meta(
            description='why data points cannot be scored or stored now, though they are kept; "" if they can'
        ),
    ] = ""
    scored: Annotated[Count, Meta(description="arrays of data points with scores")] = 0
    failed: Annotated[Count, Meta(description="arrays of data points that could not be scored")] = 0
    lost: Annotated[Count, Meta(description="arrays acknowledged, and dropped before they were scored")] = 0
    dropped: Annotated[
        Count, Meta(description="arrays that clients dropped, which are not among those sent")
    ] = 0
    incomplete: Annotated[Count, Meta(description="data points scored without all their arrays")] = 0
    late: Annotated[Count, Meta(description="arrays that came after their data point was scored")] = 0
    newest: Annotated[
        float | None, Meta(description="the newest epoch with scores; null if none has, or it is not known")
    ] = None
    earliest: Annotated[
        float | None,
        Meta(description="the earliest epoch with arrays that wait to be scored; null if none has"),
    ] = None


class EpochWait(Message):
    """An epoch of a (run, model) that waits for processes that have sent nothing for some time."""

    run: Annotated[str, Meta()]
    model: Annotated[str, Meta()]
    epoch: float | None
    silent: Annotated[int, Meta(description="number of processes that it waits for")]
    processes: Annotated[int, Meta(description="number of processes of the run")]
    silent_s: Annotated[int, Meta(description="seconds since one of them last sent something")]
    left_s: Annotated[int, Meta(description="seconds until the epoch is scored as it is")]
    text: Annotated[str, Meta(description="the same as a sentence")] = ""

    def __post_init__(self) -> None:
        have = "has" if self.silent == 1 else "have"
        alone = self.processes == 1
        who = "The only process" if alone else f"{self.silent} of {self.processes} processes"
        epoch = "the epoch" if self.epoch is None else f"epoch {self.epoch:g}"
        self.text = (
            f"{who} {have} sent nothing for {duration(self.silent_s)}; "
            f"{epoch} waits {duration(self.left_s)} more"
        )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "data point"), counted(2, "data point")
    ('1 data point', '2 data points')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def duration(seconds: int) -> str:
    """Return a duration for people.

    >>> duration(45), duration(250), duration(540)
    ('45 s', '4 min 10 s', '9 min')
    """
    minutes, rest = divmod(seconds, 60)
    return " ".join([f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest or not minutes))


class StatusReport(Message):
    """The counts of another role, as it reports them to the frontend."""

    aggregator: AggregatorCounts | None = None
    evaluator: EvaluatorCounts | None = None
    runs: list[RunLedger] = []
    waits: list[EpochWait] = []


class StatusQuery(Message):
    """A query for the counts, with the ledgers of all runs or of one run or model."""

    run: Run | None = None
    model: Model | None = None


class StatusReply(Message):
    """The counts of each role: current ones of this process, the last reports of others."""

    aggregator: AggregatorCounts
    evaluator: EvaluatorCounts
    frontend: FrontendCounts
    requests: Annotated[dict[str, int], Meta(description="requests refused or failed here, by status")]
    runs: Annotated[list[RunLedger], Meta(description="the ledger of each run, the newest last")]
    waits: Annotated[list[EpochWait], Meta(description="epochs that wait for silent processes")] = []


class AggregatorReply(AggregatorCounts, kw_only=True):
    """The aggregator's counts, and the fields whose change ends a window."""

    trigger: list[str]


# -- flush, clear, remove, graphs ----------------------------------------------------------------------


class FlushRequest(Message):
    """A request to score everything received, or that of a run, a model or a client."""

    run: Run | None = None
    model: Model | None = None
    client: Client | None = None


class ClearRequest(Message):
    """A request to delete a run, or all runs and targets of a client."""

    run: Run | None = None
    client: Client | None = None


class RemoveRequest(Message):
    """A request to delete a model of a run, or of all runs of a client."""

    #: The fields of which one is needed.
    ONE_OF: ClassVar = ("model", "model_name")

    model: Model | UnsetType = UNSET
    model_name: Annotated[Text, Meta(description="the model's name, from a client of 2018")] | UnsetType = (
        UNSET
    )
    run: Run | None = None
    client: Client | None = None

    def __post_init__(self) -> None:
        if self.model is UNSET and self.model_name is UNSET:
            raise ValueError("model is missing; it must be a string (the model's name).")

    @property
    def name(self) -> str:
        """The model's name, from a client of any version."""
        return self.model if self.model is not UNSET else str(self.model_name)


class RemovedReply(Message):
    """The (run, model) pairs that were deleted, with ``""`` for every model of a stored run."""

    removed: list[list[str]]


class RunRemoval(Message):
    """A request of the previous role to delete a run, or one model of it."""

    run: Run
    model: Model | None = None


class TargetsRemoval(Message):
    """A request of the previous role to delete the targets of a client, "" for those without a client."""

    owner: Derived


class DoneReply(Message):
    """The reply to a request that succeeded and returns nothing."""


class ErrorReply(Message, omit_defaults=True):
    """The reason why a request was refused or failed."""

    error: str
    lasting: Annotated[bool, Meta(description="whether it stays so until somebody mends it")] = False


class RunQuery(Message):
    """A query for one (run, model)."""

    run: Run = ""
    model: Model = ""


# -- what the page reads ------------------------------------------------------------------------------


class ScoredTarget(Message):
    """A score and the target it was computed for; "" for a score that needs none."""

    score: str
    target: str


class RunSummary(Message):
    """A (run, model) with its epochs, layers and scores."""

    run: str
    model: str
    framework: str
    started: Annotated[float, Meta(description="in seconds since 1970")]
    updated: Annotated[float, Meta(description="in seconds since 1970")]
    points: Annotated[int, Meta(description="number of scores stored")]
    epochs: list[float]
    addresses: Annotated[list[str], Meta(description="layers, in the order of the network if that is known")]
    scores: Annotated[list[str], Meta(description="scores of whole layers")]
    targets: Annotated[list[str], Meta(description="targets that layers have scores of")]
    kinds: list[str]
    layers: Annotated[list[ScoredTarget], Meta(description="scores that layers have, and of which target")]
    first: Annotated[
        list[ScoredTarget],
        Meta(description="the score of a target to show first, where it is not the first of all"),
    ]
    units: Annotated[list[ScoredTarget], Meta(description="scores that units have, and of which hypothesis")]
    has_graph: bool
    logged: Annotated[list[str], Meta(description="names of the values that the user logged")]
    config: dict[str, Any]
    tags: list[str]
    group: Annotated[str, Meta(description="its group: runs whose configurations are equal but for the seed")]


class RunsReply(Message):
    """Every run, the newest first, and the descriptions of their scores and kinds."""

    runs: list[RunSummary]
    scores: Annotated[
        list[ScoreInfo], Meta(description="description of each score, in the order to show them")
    ]
    kinds: Annotated[dict[str, str], Meta(description="the name of each kind, for people")]
    change: Annotated[int, Meta(description="number of the last change that the list contains")]


class PointsReply(Message, omit_defaults=True):
    """Scores as columns of equal length, with null for missing numbers."""

    address: list[str] = []
    unit: list[int] = []
    epoch: list[float | None] = []
    step: list[int] = []
    kind: list[str] = []
    mode: list[str] = []
    target: list[str] = []
    score: list[str] = []
    value: list[float | None] = []
    low: list[float | None] = []
    high: list[float | None] = []
    baseline: list[float | None] = []
    n: list[int] = []
    note: list[str] = []
    training: list[float | None] = []
    revision: Annotated[
        list[int], Meta(description="number of times that the value was replaced by a different one")
    ] = []
    change: (
        Annotated[
            int, Meta(description="with ``after``: the last change that is contained, for the next query")
        ]
        | None
    ) = None
    whole: (
        Annotated[bool, Meta(description="with ``after``: false if points of the epochs before are left out")]
        | None
    ) = None


#: The columns of ``PointsReply``, and one of them as a regular expression.
POINT_COLUMNS = tuple(name for name in PointsReply.__struct_fields__ if name not in ("change", "whole"))
_COLUMN = "|".join(POINT_COLUMNS)


class PointsQuery(Message):
    """A query for scores of a run; ``model`` may be left out if the run has one model."""

    run: Run = ""
    model: Model | None = None
    score: Text | None = None
    target: Text | None = None
    kind: Text | None = None
    address: Text | None = None
    level: Literal["layer", "unit"] = "layer"
    since: Annotated[Epoch, Meta(description="only of this epoch and later ones")] | None = None
    after: (
        Annotated[
            Count,
            Meta(
                description="the number of a change, 0 at first: of the epochs that did not change after it, "
                "points are left out, unless the reply is whole"
            ),
        ]
        | None
    ) = None
    group: Annotated[
        bool, Meta(description="the mean over the runs of the run's group, and its interval")
    ] = False
    columns: (
        Annotated[
            str,
            Meta(
                description="names of columns, separated by commas; all by default",
                extra_json_schema={"pattern": f"^({_COLUMN})(,({_COLUMN}))*$"},
            ),
        ]
        | None
    ) = None


class PointQuery(Message):
    """A query for the predictions of a classifier's score at one point; without epoch or step the newest."""

    run: Run
    model: Model
    address: Text
    target: Text
    score: Text
    kind: Text = "output"
    epoch: Epoch | None = None
    step: Int | None = None


class ConfusionReply(Message):
    """The classes that a classifier takes for each other; all lists are empty if there are no predictions."""

    classes: list[str]
    matrix: Annotated[list[list[int]], Meta(description="rows by true and predicted class")]
    f1: Annotated[list[float | None], Meta(description="F1 of each class, with its 95 % interval")]
    low: list[float | None]
    high: list[float | None]


class AboveQuery(PointQuery, kw_only=True):
    """A query for the difference to another point; what is left out is as at the point itself."""

    other_run: Run | None = None
    other_model: Model | None = None
    other_address: Text | None = None
    other_epoch: Epoch | None = None


class GapReply(Message):
    """The difference of two scores on the same held-out items, with its 95 % interval."""

    value: float | None
    low: float | None
    high: float | None
    p: Annotated[float | None, Meta(description="two-sided p-value of no difference")]
    n: Annotated[int, Meta(description="held-out rows that both predict")]
    note: str


class FollowupQuery(Message):
    """A query for the examples and the verification of a unit; without epoch those at the newest."""

    run: Run
    model: Model
    target: Annotated[Text, Meta(description="the hypothesis")]
    unit: Annotated[Text, Meta(description="layer and number, such as conv1[3]; empty for none")] = ""
    epoch: Epoch | None = None


class StoredUnit(Message):
    """A unit of which examples or a verification are stored at an epoch."""

    unit: str
    epoch: float | None


class FollowupReply(Message):
    """The units of which something is stored, and what is stored of the requested one."""

    units: list[StoredUnit]
    unit: str
    epoch: float | None
    examples: UnitExamples | None = None
    verification: UnitVerification | None = None


class LogQuery(RunQuery):
    """A query for the logged values of a run."""

    most: Annotated[int, Meta(ge=10, description="about how many of each name; all by default")] | None = None


class LogReply(Message):
    """Logged values as columns, ordered by name, step and time; nan, inf and -inf are texts."""

    name: list[str]
    step: list[int]
    time: Annotated[list[float], Meta(description="in seconds since 1970")]
    epoch: list[float | None]
    value: list[LoggedNumber]
    training: Annotated[
        list[float | None], Meta(description="when the training of the value began, in seconds since 1970")
    ]
    note: Annotated[list[str], Meta(description="says if another training has begun since")]
    total: Annotated[
        dict[str, int], Meta(description="how many values of each name are of the newest training with any")
    ]


class ChangeRunRequest(Message):
    """A request to rename, tag or delete a run."""

    run: Run
    name: Annotated[Name, Meta(description="its new name")] | None = None
    tags: list[Name] | None = None
    remove: bool = False


class NoticesQuery(Message):
    """A query for the notices of one run, or of all."""

    run: Run | None = None


class FindingMessage(Message):
    """A sentence that follows from the scores of a run, and what it is about."""

    kind: str
    text: str
    target: str
    address: str
    epoch: float | None
    step: int
    model: str


class FindingsReply(Message):
    """The findings of a run since the server started, as of when its scores were last looked through."""

    change: Annotated[int, Meta(description="larger after every change of the run; 0 if there is none")]
    findings: list[FindingMessage]
    made: Annotated[
        float | None, Meta(description="when that was, in seconds since 1970; null if it was not done")
    ] = None
    behind: Annotated[
        bool, Meta(description="whether scores came since, which are looked through later or by a flush")
    ] = False
