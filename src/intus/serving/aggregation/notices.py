"""The notices of the aggregator about records that were lost, late or refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...core.record import Record
from ..data_point import size_of
from ..messages import ClientNote, EpochWait, Notice, counted, duration
from .window import RunKey, Window

DROPPED = "the client dropped arrays of this epoch"


def dropped(run_key: RunKey, reasons: Sequence[str] = ()) -> Notice:
    """Return the notice that a client dropped records, for the reasons that it gave if it is not older."""
    why = "; ".join(reasons) or "its queue was full, or no server had answered yet"
    text = f"The probe dropped arrays: {why}. The status counts how many were dropped."
    return Notice("dropped", text, "warning", *run_key)


def in_memory() -> Notice:
    """Return the notice that nothing but scores is written to disk."""
    text = (
        "The server was started with --journal memory: activations are not written to disk, so a crash loses "
        "those that are not scored yet."
    )
    return Notice("memory_only", text, "info")


def damaged_journal(owner: RunKey | Path, clauses: Sequence[str]) -> Notice:
    """Return the notice that a damaged journal lost requests; it is shown beside all runs.

    Args:
        owner: The (run, model), or the folder in the journal if its files no longer say whose they are.
        clauses: What was damaged or missing.
    """
    whose = f"in {owner}" if isinstance(owner, Path) else f"of run {owner[0]!r} of {owner[1]!r}"
    more = f"; and {len(clauses) - 3} more, in the server's log" if len(clauses) > 3 else ""
    text = (
        f"The journal {whose} was damaged: {'; '.join(clauses[:3])}{more}. Requests that were there are "
        "lost, unless the server was ended before it had acknowledged them. Epochs that lack them are marked "
        "as incomplete."
    )
    return Notice("damaged", text, "error")


def continued(arrays: int, runs: int) -> Notice:
    """Return the notice that a server scores what an earlier one had left."""
    text = (
        f"The server was started again and continues from its journal: {counted(arrays, 'array')} of "
        f"{counted(runs, 'run')} {'waits' if arrays == 1 else 'wait'} to be scored. An epoch that was scored "
        "in part when the server ended counts as waiting again, also where it has scores, and is scored "
        "again: the scores stay the same."
    )
    return Notice("continued", text, "info")


def unread_journal(error: Exception) -> Notice:
    """Return the notice that the server takes no data, since it cannot read its journal."""
    text = (
        f"The journal could not be read, and no data are taken: {type(error).__name__}: {error} The data in "
        "it are kept. Start the server again, or with another journal (--journal FOLDER)."
    )
    return Notice("journal", text, "error")


def renewed_journal(run_key: RunKey, change: str, epochs: int) -> Notice:
    """Return the notice that the journal of a (run, model) was written anew from memory."""
    text = (
        f"{change}. The {epochs} epochs that are not scored yet were written anew from memory: nothing is "
        "lost. Delete no file of the journal while the server runs."
    )
    return Notice("journal_renewed", text, "warning", *run_key)


def broken_journal(why: str) -> Notice:
    """Return the notice that no data are taken, and that a crash would lose what is not scored."""
    text = (
        f"{why} No data are taken until it can be, and a crash would lose what is not scored yet: end the "
        "server (Ctrl+C, SIGTERM) only when all is scored."
    )
    return Notice("journal", text, "error")


def from_client(run_key: RunKey, note: ClientNote, *, known: bool) -> Notice:
    """Return the notice of what a client found out; without a known run, it is shown beside all runs."""
    if known:
        return Notice(note.code, note.text, note.level, *run_key)
    return Notice(note.code, f"Run {run_key[0]!r} of {run_key[1]!r}: {note.text}", note.level)


def failed(run_key: RunKey, epoch: float | None) -> Notice:
    """Return the notice that a client could not make records."""
    text = (
        f"The probe could not record some arrays of epoch {epoch}, which is incomplete. The log of the "
        "training and the notices beside this one have the errors."
    )
    return Notice("failed", text, "warning", *run_key)


def absent(window: Window) -> Notice:
    """Return the notice that an epoch lacks layers that earlier ones have."""
    layers = dict[str, list[str]]()
    for of_source in window.absent.values():
        for layer, lacks in of_source.items():
            layers.setdefault(layer, []).extend([lacks] * bool(lacks))
    shown = [(layer, " and ".join(lacks)) for layer, lacks in layers.items()][:10]
    named = ", ".join(f"{layer!r}" + (lacks and f" ({lacks})") for layer, lacks in shown)
    named += ", …" if len(layers) > 10 else ""
    text = (
        f"Epoch {window.epoch} is incomplete: {len(layers)} layers of earlier epochs sent nothing: "
        f"{named}. They did not run as modules, or the probe could not record them."
    )
    return Notice("absent", text, "warning", *window.run_key)


def incomplete(window: Window, lacks: str) -> Notice:
    """Return the notice that an epoch is scored although records of it are missing."""
    text = (
        f"Epoch {window.epoch} is incomplete: {lacks}, and nothing more came for a while. It is scored as it "
        "is, and again if the rest comes."
    )
    return Notice("incomplete", text, "warning", *window.run_key)


def behind(run_key: RunKey) -> Notice:
    """Return the notice that older epochs wait while newer ones are scored."""
    text = (
        "Scoring is slower than the training. The newest epoch is scored first, then older ones on a coarse "
        "grid (the first, and those that 2 divides most often), then the rest, so the curves have gaps for "
        "now. Nothing is left out: what waits is kept, and the status counts it (postponed). To score "
        "faster, give the server more processes (--engine N), or record less (which=, when=)."
    )
    return Notice("behind", text, "warning", *run_key)


def silent(wait: EpochWait) -> Notice:
    """Return the notice that an epoch waits for processes that send nothing."""
    text = (
        f"{wait.text}. If the rest comes, all of it is scored; if nothing comes, what is there is scored as "
        "incomplete."
    )
    return Notice("silent", text, "warning", wait.run, wait.model)


def overdue(
    run_key: RunKey, clients: int, silence: float, number: int, epochs: Sequence[float | None], left: float
) -> Notice:
    """Return the notice that processes are silent, and that what they had still to send has not come yet.

    Args:
        run_key: The run and model.
        clients: The number of processes.
        silence: Seconds that they have sent nothing for, at least.
        number: The number of arrays that have not come.
        epochs: The epochs that lack them, in order.
        left: Seconds until they count as unknown.
    """
    was, has, them = ("was", "has", "it") if number == 1 else ("were", "have", "them")
    text = (
        f"{_processes(clients)} sent nothing for {duration(round(silence))}, and {counted(number, 'array')} "
        f"of {_span(epochs)} that {was} recorded {has} not come: killed, or cut off from the server. What "
        f"still comes is scored. In {duration(round(left))} the status counts {them} as unknown."
    )
    return Notice("silent", text, "warning", *run_key)


def _processes(number: int) -> str:
    return "A process of this training has" if number == 1 else f"{number} processes of this training have"


def gone(
    run_key: RunKey,
    clients: int,
    silence: float,
    lost: int,
    epochs: Sequence[float | None],
    unseen: Sequence[float | None],
) -> Notice:
    """Return the notice that processes have gone, and that what they had still to send will not come.

    Args:
        run_key: The run and model.
        clients: The number of processes.
        silence: Seconds that they have sent nothing for, at least.
        lost: The number of arrays that did not come.
        epochs: The epochs that lack them, in order.
        unseen: Those of them of which nothing came.
    """
    never = f" Of {_span(unseen)} nothing came." if unseen else ""
    text = (
        f"{_processes(clients)} sent nothing for {duration(round(silence))}. "
        f"{counted(lost, 'array')} of {_span(epochs)} "
        f"that {'was' if lost == 1 else 'were'} recorded did not come, and the status counts "
        f"{'it' if lost == 1 else 'them'} as unknown: what a process had not sent when it was "
        f"killed, or a damaged journal had, is lost.{never} What still comes is scored."
    )
    return Notice("gone", text, "warning", *run_key)


def too_big(record: Record, limit: int) -> Notice:
    """Return the notice that a record is larger than the aggregator's memory of ``limit`` bytes."""
    text = (
        f"An array of {size_of(record):,} bytes at {record.address!r} was refused: the aggregator holds at "
        f"most {limit:,} bytes. Send fewer rows, or give it more memory (--max-bytes)."
    )
    return Notice("too_big", text, "warning", record.run, record.model)


def too_many(record: Record, limit: int) -> Notice:
    """Return the notice that an epoch has more than ``limit`` layers and kinds."""
    text = (
        f"An array at {record.address[:100]!r} was refused: one epoch of a run has at most {limit:,} layers "
        "and kinds. Watch fewer (which=, kinds=)."
    )
    return Notice("too_many", text, "warning", record.run, record.model)


def taken_before(run_key: RunKey, number: int, epoch: float | None) -> Notice:
    """Return the notice that an earlier server accepted records that are not in the journal."""
    text = (
        f"A server that ended before this one had taken {number} arrays of this run, up to epoch {epoch}. "
        "Those that it had not scored are lost, since there is no journal of them (--journal memory, or its "
        "folder was deleted or changed): these epochs may be incomplete. The status counts them as unknown. "
        "The first epoch from here on has no cka_epoch, since no rows of an earlier one are known."
    )
    return Notice("taken_before", text, "warning", *run_key)


def evicted(window: Window, lost: int, limit: int) -> Notice:
    """Return the notice that ``lost`` records were evicted from memory before they were scored."""
    text = (
        f"{lost} arrays of epoch {window.epoch} were dropped before they were scored: the aggregator holds "
        f"at most {limit:,} bytes. Send fewer layers, steps or rows (which=, when=, rows=), or give it more "
        "memory (--max-bytes)."
    )
    return Notice("memory", text, "warning", *window.run_key)


def repeated(record: Record) -> Notice:
    """Return the notice that rows of a probe set came again, from another process or model."""
    text = (
        "Rows of the probe set came several times in an epoch, from several processes or from several models "
        "of one name: those that came first count, and the others were left out. Give each model its own "
        "name= and each training its own run=; in data-parallel training, give the probe set to one process."
    )
    return Notice("repeated", text, "warning", record.run, record.model)


def pooled(record: Record) -> Notice:
    """Return the notice that several processes sent rows of the same items in one epoch."""
    text = (
        "Several processes sent rows of the same items in one epoch, and each row counts: their scores are "
        "of the rows of all of them together. If these are trainings of their own, or one that was begun "
        "anew, give each its own run=. The ranks of one training share the items out (DistributedSampler)."
    )
    return Notice("pooled", text, "warning", record.run, record.model)


def too_late(record: Record) -> Notice:
    """Return the notice that a record came after its epoch was scored and evicted from memory."""
    text = (
        f"Arrays of epoch {_plain(record.epoch)} were refused: they came after that epoch was scored and its "
        "rows were dropped from memory. Its scores are those of the rows before. Give the aggregator more "
        "memory (--max-bytes), and each run its own name."
    )
    return Notice("too_late", text, "warning", record.run, record.model)


def doubted(run_key: RunKey) -> Notice:
    """Return the notice that a request came of which it is not known any more whether it came before."""
    text = (
        "A request was refused that came long after newer ones: it is not known any more whether it had come "
        "before. If it had not, its arrays are missing, and their epochs are incomplete."
    )
    return Notice("doubted", text, "warning", *run_key)


def restarted(run_key: RunKey, epoch: float | None, newest: float | None) -> Notice:
    """Return the notice that epochs began again under the same name.

    Args:
        run_key: The run and model.
        epoch: The first of them; None if no record of it has come.
        newest: The newest epoch before.
    """
    first = "An epoch" if epoch is None else f"Epoch {_plain(epoch)}"
    text = (
        f"{first} came after epoch {_plain(newest)} under the same run=: another training began, or this one "
        "set watch.epoch back. From this epoch on, the new scores replace the earlier ones, never both "
        "together; later epochs that came only before stay, with a note, and findings are of the new ones. "
        "To keep both, give each training its own run=. If it was resumed, set watch.epoch = number before "
        "each epoch."
    )
    return Notice("restarted", text, "warning", *run_key)


def resumed(run_key: RunKey, epoch: float | None, newest: float | None) -> Notice:
    """Return the notice that later epochs came under the same name when the training before had ended.

    Args:
        run_key: The run and model.
        epoch: The first of them; None if no record of it has come.
        newest: The newest epoch before.
    """
    first = "a later epoch" if epoch is None else f"epoch {_plain(epoch)}"
    text = (
        f"Another training began with {first} under the same run= when the one up to epoch {_plain(newest)} "
        "had ended, or this one was resumed, which is not known. Its curves go on, and findings are of the "
        "new epochs. If it is another training, give each its own run=."
    )
    return Notice("resumed", text, "info", *run_key)


def superseded(record: Record) -> Notice:
    """Return the notice that rows of an earlier training came after another began under the same name."""
    text = (
        f"Arrays of epoch {_plain(record.epoch)} were refused: they are of an earlier training, and another "
        "has begun since under the same run=. To keep both, give each its own run=."
    )
    return Notice("superseded", text, "warning", record.run, record.model)


def _span(epochs: Sequence[float | None]) -> str:
    """Return the number of epochs, the first and the last.

    >>> _span([3.0]), _span([13, 14, 20])
    ('epoch 3', '3 epochs (13 to 20)')
    """
    if len(epochs) == 1:
        return f"epoch {_plain(epochs[0])}"
    return f"{len(epochs)} epochs ({_plain(epochs[0])} to {_plain(epochs[-1])})"


def _plain(epoch: float | None) -> str:
    """Return the number of an epoch without a fraction that is 0."""
    return str(int(epoch)) if epoch is not None and float(epoch).is_integer() else str(epoch)
