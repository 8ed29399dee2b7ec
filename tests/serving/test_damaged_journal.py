"""Damaged journals: a start never fails, what is left is right, and what is lost is said."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_help import Machine
from serving_help import record

from intus.core.errors import ServeError
from intus.monitoring.client import BINARY, JSON, Client
from intus.serving.aggregation import journal as module
from intus.serving.aggregation.journal import Journal, pack, unpack
from intus.serving.run import Server
from intus.storage.codec import decode_records, encode_records
from intus.storage.database import Database

DAMAGES = ("flip", "cut", "zero tail", "marked zero tail", "zeros", "remove", "empty", "missing")


class Life:
    """A server that gets requests of two runs, is killed now and then, and at the end has a damaged journal.

    A client of run ``s`` reports how much it sent, one of run ``r`` does not.

    Attributes:
        accepted: The accepted numbers of each (run, address, epoch).
        stored: The numbers of the last stored data point of each.
    """

    def __init__(self, folder: Path, random: Random) -> None:
        self.machine, self.random = Machine(folder), random
        self.accepted: dict[tuple, list[int]] = {}
        self.stored: dict[tuple, list[int]] = {}
        self.epoch, self.number, self.sent = {"r": 0, "s": 0}, 0, Counter()

    def reports(self, ended: bool = False) -> list[dict]:
        newest = self.epoch["s"]
        return [
            {"run": "s", "model": "m", "epoch": of, "sent": self.sent[of], "ended": of < newest or ended}
            for of in range(newest + 1)
        ]

    def step(self) -> None:
        match self.random.choices(["send", "next", "store", "kill"], [8, 2, 2, 1])[0]:
            case "send":
                run, address = self.random.choice("rs"), self.random.choice("ab")
                late = run == "r" and self.random.random() < 0.2
                self.send(run, address, max(self.epoch[run] - late, 0))
            case "next":
                self.epoch[self.random.choice("rs")] += 1
            case "store":
                self.store(self.random.randrange(1, 4))
            case "kill":
                self.machine.kill()

    def send(self, run: str, address: str, epoch: int) -> None:
        self.number += 1
        self.sent[epoch] += run == "s"
        epochs = self.reports() if run == "s" else ()
        facts = {"run": run, "address": address, "epoch": epoch, "client": run, "epochs": epochs}
        if self.machine.send(self.number, seq=self.number, **facts).accepted:
            self.accepted.setdefault((run, address, epoch), []).append(self.number)

    def store(self, most: int | None = None) -> None:
        for point, _ in self.machine.evaluator.waiting[:most]:
            self.stored[key_of(point)] = numbers(point.records)
        self.machine.evaluator.store(most)

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(self.machine.folder.rglob("*.log"))}

    def damage(self, kind: str) -> dict[Path, bytes]:
        """Damage a file; return all files as they were before."""
        before, random = self.files(), self.random
        path = random.choice(list(before))
        content = bytearray(before[path])
        at = random.randrange(len(content))
        match kind:
            case "flip":
                content[at] ^= 1 << random.randrange(8)
            case "cut":
                del content[at:]
            case "zero tail":
                content += bytes(random.randrange(1, 4096))
            case "marked zero tail":  # the CRC-32 of nothing is 0
                content += b"ints" + bytes(random.randrange(16, 60))
            case "zeros":
                count = random.randrange(1, 4096)
                content[at : at + count] = bytes(len(content[at : at + count]))
            case "remove":
                del content[at : at + random.randrange(1, 400)]
            case "empty":
                content.clear()
        path.unlink() if kind == "missing" else path.write_bytes(content)
        return before


def key_of(point) -> tuple:
    return point.key.run, point.key.address, point.epoch


def numbers(records) -> list[int]:
    return [int(record.array.flat[0]) for record in records]


def held(files: dict[Path, bytes]) -> Counter:
    """Return how many frames of these files have each number."""
    frames = [piece.frame for content in files.values() for piece in unpack(content) if piece.frame]
    return Counter(n for frame in frames if frame.body for n in set(numbers(decode_records(frame.body)[0])))


def contexts(files: dict[Path, bytes]) -> int:
    """Return how many frames say what a stored epoch is: snapshots, and its rows before a late one.

    Without a snapshot that says that an epoch is stored, what is left of it is scored again, as incomplete.
    Without the rows before a late one, that one is refused, since a part must not replace the whole.
    """
    pieces = (piece for content in files.values() for piece in unpack(content))
    return sum("state" in piece.frame.head or "again" in piece.frame.head for piece in pieces if piece.frame)


@pytest.mark.long
@pytest.mark.parametrize("kind", DAMAGES)
@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(1, 40))
def test_server_starts_on_damaged_journal_and_loses_only_what_was_damaged(
    tmp_path_factory, kind, seed, steps
):
    life = Life(tmp_path_factory.mktemp("life") / "journal", Random(seed))
    life.send("s", "a", 0)
    for _ in range(steps):
        life.step()
    life.machine.journal.close()
    before = life.damage(kind)
    after = life.files()

    life.machine.start()
    said = [each for each in life.machine.evaluator.received_notices if each.code == "damaged"]
    life.store()
    life.machine.send(seq=10_000, client="s", epochs=life.reports(ended=True))
    life.machine.service.flush()
    points = {key_of(point): point for point in life.machine.evaluator.got}
    for point in life.machine.evaluator.got:
        got = numbers(point.records)
        assert len(set(got)) == len(got), "doubled"
        assert set(got) <= set(life.accepted[key_of(point)]), "wrong"
    whole = held(before) - (held(before) - held(after))
    for key, sent in life.accepted.items():
        got = numbers(points[key].records) if key in points else life.stored.get(key, [])
        assert got == sent or said, (key, got, sent)
        if key in points and got != sent:
            assert not points[key].complete, (key, got, sent)
        lost = [number for number in sent if number not in got]
        if key in life.stored and contexts(after) < contexts(before):
            continue
        assert all(whole[number] < held(before)[number] for number in lost), (key, lost)
    if before != after and not cut_between_requests(before, after):
        assert said
    life.machine.stop()


def cut_between_requests(before: dict[Path, bytes], after: dict[Path, bytes]) -> bool:
    """Return whether the newest file of a run only lacks frames at its end, as if they had never come."""
    (changed,) = [path for path in before if after.get(path) != before[path]]
    newest = max(path for path in before if path.parent == changed.parent)
    left = after.get(changed, b"")
    return changed == newest and left != b"" and left in cuts(before[changed])


def cuts(content: bytes) -> list[bytes]:
    return [content[: piece.start] for piece in unpack(content)]


def test_zero_tail_does_not_keep_server_from_starting(tmp_path):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    machine.journal.close()
    (path,) = machine.folder.rglob("*.log")
    with path.open("ab") as file:
        file.write(b"ints" + bytes(16))
    machine.start()
    machine.service.flush()
    assert [numbers(point.records) for point in machine.evaluator.got] == [[1]]
    machine.stop()


@pytest.mark.parametrize("kills", [1, 2])
@pytest.mark.parametrize("stored", [0, 1])
def test_request_cut_by_a_kill_casts_no_doubt_on_epochs_that_arrived_whole(tmp_path, kills, stored):
    """Keep more epochs waiting for their scores than the counts of epochs are remembered for."""
    machine = Machine(tmp_path / "journal")
    for epoch in range(8):
        reports = [{"run": "r", "model": "m", "epoch": epoch, "sent": 1, "ended": True}]
        assert machine.send(epoch, seq=epoch, run="r", epoch=epoch, epochs=reports).accepted
    machine.evaluator.store(stored)
    for _ in range(kills):
        machine.journal.close()
        newest = max(machine.folder.rglob("*.log"))
        content = newest.read_bytes()
        newest.write_bytes(content + content[:100])
        machine.start()
    assert "damaged" in {each.code for each in machine.evaluator.received_notices}
    assert {p.epoch: p.lacks for p in machine.evaluator.got} == dict.fromkeys(range(stored, 8), "")
    machine.stop()


class Killed(BaseException):
    """The end of a process, which nothing in it handles."""


@settings(max_examples=60)
@given(
    part=st.floats(0, 1),
    stored=st.integers(0, 3),
    kills=st.integers(1, 2),
    client=st.sampled_from("c-"),
)
def test_file_that_a_kill_left_half_begun_casts_no_doubt(tmp_path_factory, part, stored, kills, client):
    """Kill a server at any byte of the snapshot of a new file, with and without counts of a client.

    Before, an empty file was left, and of a client without counts all epochs that waited were doubted.
    """
    machine = Machine(tmp_path_factory.mktemp("kills") / "journal")
    key, counts = ("r", "m"), client == "c"
    for epoch in range(4):
        reports = [{"run": "r", "model": "m", "epoch": epoch, "sent": 1, "ended": True}] if counts else ()
        assert machine.send(epoch, seq=epoch, run="r", epoch=epoch, epochs=reports).accepted

    def cut(file, parts, fsync):
        content = b"".join(parts)
        file.write(content[: round(part * len(content))])
        raise Killed

    for _ in range(kills):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, "_write", cut)
            with pytest.raises(Killed):
                machine.journal.log(key).begin(machine.service.aggregator.snapshot(key, machine.time))
        machine.kill()
    machine.evaluator.store(stored)
    machine.service.flush()
    assert {each.code for each in machine.evaluator.received_notices} <= {"continued"}
    assert {p.epoch: p.lacks for p in machine.evaluator.got} == dict.fromkeys(range(4), "")
    assert {p.epoch: numbers(p.records) for p in machine.evaluator.got} == {e: [e] for e in range(4)}
    assert not list(machine.folder.rglob(f"*{module.NEW}"))
    machine.stop()


def test_damaged_frame_is_kept_and_told_by_name(tmp_path):
    machine = Machine(tmp_path / "journal")
    for number in (1, 2, 3):
        machine.send(number, seq=number)
    machine.journal.close()
    (path,) = machine.folder.rglob("*.log")
    pieces, content = list(unpack(path.read_bytes())), bytearray(path.read_bytes())
    content[pieces[2].end - 1] ^= 1
    path.write_bytes(content)
    machine.start()
    machine.service.flush()
    (point,) = machine.evaluator.got
    assert numbers(point.records) == [1, 3]
    assert point.lacks == "arrays may have been lost in a damaged journal"
    (notice,) = machine.evaluator.received_notices
    (kept,) = path.parent.glob("*.damaged")
    assert kept.read_bytes() == bytes(content[pieces[2].start : pieces[2].end])
    assert notice.text.startswith(
        f"The journal of run 'r' of 'm' was damaged: {len(kept.read_bytes())} bytes of "
    )
    assert str(kept) in notice.text
    assert notice.run == ""  # shown beside all runs: this one may have no scores yet
    machine.stop()


def test_frame_inside_damaged_body_is_no_frame(tmp_path):
    """A recorded array may contain what looks like a frame."""
    inner = b"".join(pack({"frame": 5, "time": 0.0}, b"inner"))
    content = bytearray(
        b"".join([*pack({"frame": 0}), *pack({"frame": 1}, b"x" + inner), *pack({"frame": 2})])
    )
    content[content.index(b"xints")] ^= 1
    found = [piece.frame and piece.frame.head["frame"] for piece in unpack(bytes(content))]
    assert found == [0, None, 2]


def test_frame_of_another_version_is_kept_and_told(tmp_path):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    machine.journal.close()
    (path,) = machine.folder.rglob("*.log")
    with path.open("ab") as file:
        file.writelines(pack({"frame": 2, "time": 5.0}, b"no safetensors"))
        file.writelines(pack({"frame": 3, "state": {"group": ["r", "m"]}}))
    machine.start()
    (notice,) = machine.evaluator.received_notices
    assert notice.text.count("cannot be used") == 2
    assert len(list(path.parent.glob("*.damaged"))) == 2
    machine.stop()


def test_newer_format_is_refused_in_a_sentence(tmp_path):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    machine.journal.close()
    before = {path: path.read_bytes() for path in machine.folder.rglob("*.log")}
    (machine.folder / "format").write_text("3\n")
    with pytest.raises(ServeError, match=r"written by a newer version of intus, in format 3; this one reads"):
        machine.start()
    assert {path: path.read_bytes() for path in machine.folder.rglob("*.log")} == before
    (machine.folder / "format").write_bytes(bytes(7))  # a power cut's
    Journal(machine.folder).close()
    assert (machine.folder / "format").read_text() == f"{module.FORMAT}\n"


def test_unreadable_file_is_named(tmp_path):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    machine.journal.close()
    (path,) = machine.folder.rglob("*.log")
    path.rename(path.with_suffix(".old"))
    path.mkdir()
    with pytest.raises(ServeError, match=rf"file '{path}' cannot be read: .*Mend that and start again"):
        machine.start()
    machine.journal.close()


@pytest.mark.long
def test_damage_is_told_on_the_page(tmp_path):
    options = {"database": tmp_path / "x.db", "port": 0}
    with Server(**options) as server, closing(Client(server.host, server.port)) as client:
        for seq in range(2):
            body = encode_records([record(epoch=0)], {"client": "c", "seq": seq, "dropped": 0})
            assert client.post("/records", body, BINARY).ok
        server.process.kill()
        server.process.wait()
    (path,) = (tmp_path / "x.db.journal").rglob("*.log")
    path.write_bytes(path.read_bytes()[:-1])
    with Server(**options) as server, closing(Client(server.host, server.port)) as client:
        assert client.post("/flush", b"{}", JSON).ok
    with Database(tmp_path / "x.db") as database:
        (told,) = [each for each in database.notices("r") if each["code"] == "damaged"]
        (note,) = database.points("r", "m").where(score="mean")["note"]
    assert told["level"] == "error"
    assert f"bytes of {path.name} are no request" in told["text"]
    assert "incomplete: arrays may have been lost in a damaged journal" in note
