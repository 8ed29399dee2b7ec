"""The sender, with a server that is up, slow, refusing, dying or absent."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

from intus import probe
from intus.core.errors import InputError
from intus.core.record import Record
from intus.monitoring import commands
from intus.monitoring.sender import Sender, get_sender
from intus.monitoring.sent_counts import EpochKey
from intus.storage.codec import decode_records

MB = 1 << 20


def record(number: int = 0, nbytes: int = 4000) -> Record:
    return Record(np.full((1, nbytes // 4), number, np.float32), "fc1", run="r", model="m", step=number)


def give(sender: Sender, number: int, nbytes: int = 4000, wait: float = 0.0) -> bool:
    """Send one record, as a pass with one layer does."""
    if not sender.reserve(nbytes, wait):
        return False
    sender.gather(record(number, nbytes), nbytes)
    sender.post()
    return True


def steps(server) -> list[int]:
    return [one.step for one in server.records()]


def test_collected_records_are_one_request(server):
    sender = Sender("127.0.0.1", server.port, MB)
    for number in range(3):
        assert sender.reserve(4000)
        sender.gather(record(number), 4000)
    sender.post()
    sender.post()
    assert sender.drain(5)
    ((records, envelope),) = server.batches()
    assert [one.step for one in records] == [0, 1, 2]
    assert envelope["seq"] == 1
    assert envelope["dropped"] == 0
    assert len(envelope["client"]) == 36
    assert sender.counts().sent == 3
    assert sender.state == "up"
    assert sender._bytes == 0


def test_requests_are_numbered_and_keep_order(server):
    sender = Sender("127.0.0.1", server.port, MB)
    give(sender, 0)
    sender.send_json("/targets", {"name": "digit"})
    give(sender, 1)
    assert sender.drain(5)
    assert [path for path, _ in server.got] == ["/records", "/targets", "/records"]
    assert [envelope["seq"] for _, envelope in server.batches()] == [1, 2]


def test_notes_are_sent_though_the_last_request_is_under_way(server):
    """Before, ``flush`` did not wait for them: they came with the next records, if any did."""
    sender = Sender("127.0.0.1", server.port, MB)
    server.delay = 0.5
    assert give(sender, 0)
    while sender._jobs[0].epoch_counts is None:
        time.sleep(0.001)
    sender.tell(EpochKey("r", "m", None), [{"code": "x", "text": "A note.", "level": "info"}])
    assert sender.drain(10)
    rows = [row for _, envelope in server.batches() for row in envelope["epochs"]]
    assert [len(row["notes"]) for row in rows] == [0, 1]


def test_notes_of_a_model_wait_for_its_first_records(server):
    """Before, they could come with the last records of another model, when the server knew no such run."""
    sender = Sender("127.0.0.1", server.port, MB)
    server.delay = 0.2
    assert give(sender, 0)
    assert give(sender, 1)
    sender.tell(EpochKey("other", "m", 1), [{"code": "x", "text": "A note.", "level": "info"}])
    while sender._jobs:
        time.sleep(0.001)
    assert not [row for _, envelope in server.batches() for row in envelope["epochs"] if row["notes"]]
    assert sender.reserve(4000)
    sender.gather(Record(np.zeros((1, 1000), np.float32), "fc1", run="other", model="m", epoch=1), 4000)
    assert sender.drain(5)
    (records, envelope) = server.batches()[-1]
    assert [one.run for one in records] == ["other"]
    assert [row["notes"][0]["text"] for row in envelope["epochs"]] == ["A note."]


def test_notes_of_a_model_without_records_are_sent_at_a_flush(server):
    sender = Sender("127.0.0.1", server.port, MB)
    assert give(sender, 0)
    sender.tell(EpochKey("other", "m", 1), [{"code": "x", "text": "A note.", "level": "info"}])
    assert sender.drain(5)
    rows = [row for _, envelope in server.batches() for row in envelope["epochs"]]
    assert [(row["run"], len(row["notes"])) for row in rows if row["notes"]] == [("other", 1)]


def test_large_pass_is_split(server, monkeypatch):
    monkeypatch.setattr("intus.monitoring.sender.BATCH_BYTES", 8000)
    sender = Sender("127.0.0.1", server.port, MB)
    for number in range(5):
        sender.reserve(4000)
        sender.gather(record(number), 4000)
    assert sender.drain(5)
    assert [len(records) for records, _ in server.batches()] == [2, 2, 1]


def test_full_queue_drops_and_counts_records(server):
    server.delay = 0.05
    sender = Sender("127.0.0.1", server.port, 10_000)
    start = time.perf_counter()
    kept = [give(sender, number) for number in range(50)]
    assert time.perf_counter() - start < 0.05
    assert kept[:2] == [True, True]
    assert not all(kept)
    assert sender.drain(5)
    counts = sender.counts()
    assert (counts.sent, counts.dropped) == (sum(kept), 50 - sum(kept))
    assert steps(server) == [number for number, ok in enumerate(kept) if ok]
    assert server.batches()[-1][1]["dropped"] == counts.dropped


def test_waiting_for_room_drops_nothing(server):
    server.delay = 0.01
    sender = Sender("127.0.0.1", server.port, 10_000)
    assert all(give(sender, number, wait=5) for number in range(20))
    assert sender.drain(5)
    assert steps(server) == list(range(20))
    assert sender.counts().dropped == 0


def test_waiting_for_room_is_bounded(server):
    server.delay = 1.0
    sender = Sender("127.0.0.1", server.port, 4000)
    assert give(sender, 0)
    start = time.perf_counter()
    assert not any(give(sender, number, wait=0.2) for number in range(1, 10))
    assert 0.2 <= time.perf_counter() - start < 0.5
    assert sender.counts().dropped == 9


def test_record_larger_than_queue_is_dropped_at_once(server):
    sender = Sender("127.0.0.1", server.port, 1000)
    start = time.perf_counter()
    assert not give(sender, 0, wait=5)
    assert time.perf_counter() - start < 0.5


def test_absent_server_is_logged_once(unused_port, caplog):
    sender = Sender("127.0.0.1", unused_port, 10 * MB)
    give(sender, 0)
    assert not sender.drain(10) or sender.state == "down"
    for number in range(100):
        assert not give(sender, number)
    (warning,) = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert warning.name == "intus.monitoring"
    assert "nothing is recorded" in warning.message
    assert f"127.0.0.1:{unused_port}" in warning.message
    assert "intus serve" in warning.message
    assert sender._bytes == 0
    assert sender.counts().dropped == 101
    assert sender.counts().waiting == 0


def test_late_server_gets_targets_and_new_records(unused_port, fake_server, monkeypatch):
    sender = Sender("127.0.0.1", unused_port, MB)
    job = sender.send_json("/targets", {"name": "digit"})
    give(sender, 0)
    assert not sender.wait(job, 10)
    late = fake_server(unused_port)
    try:
        assert sender.drain(5)
        assert late.messages("/targets") == [{"name": "digit"}]
        assert give(sender, 1)
        assert sender.drain(5)
        assert steps(late) == [1]
        assert late.batches()[0][1]["dropped"] == 1
    finally:
        late.die()


def test_restarted_server_gets_everything(server, caplog):
    sender = Sender("127.0.0.1", server.port, MB)
    assert give(sender, 0)
    assert sender.drain(5)
    server.die()
    assert all(give(sender, number) for number in range(1, 6))
    assert not sender.drain(3)
    assert sender.counts().waiting == 5
    server.start()
    assert sender.drain(5)
    assert steps(server) == list(range(6))
    assert sender.counts() == type(sender.counts())(sent=6)
    assert [entry.message for entry in caplog.records if "interrupted" in entry.message]


def test_closed_idle_connection_is_reopened(server, caplog):
    sender = Sender("127.0.0.1", server.port, MB)
    for number in range(3):
        give(sender, number)
        assert sender.drain(5)
        server.hang_up()
        time.sleep(0.02)
    assert steps(server) == [0, 1, 2]
    assert not caplog.records


def test_retried_request_keeps_number(server):
    answers = iter([503, 429, 200])
    server.answer = lambda path: next(answers, 200)
    bodies = []
    sender = Sender("127.0.0.1", server.port, MB)
    post = sender._client.post
    sender._client.post = lambda path, body, content: bodies.append(body) or post(path, body, content)
    give(sender, 0)
    assert sender.drain(5)
    assert [status for _, status in server.answers] == [503, 429, 200]
    envelopes = [decode_records(body)[1] for body in bodies]
    assert len({(one["client"], one["seq"]) for one in envelopes}) == 1


def test_busy_server_is_retried(server, monkeypatch, caplog):
    monkeypatch.setattr("intus.monitoring.breaker.MOST_S", 0.02)
    server.answer = lambda path: 503 if len(server.answers) < 12 else 200
    sender = Sender("127.0.0.1", server.port, MB)
    give(sender, 0)
    assert sender.drain(5)
    assert steps(server) == [0]
    assert not caplog.records


@pytest.mark.parametrize("status", [408, 429, 503, 507])
def test_request_refused_before_its_body_is_read_is_kept(monkeypatch, caplog, status):
    """A server may answer and close the connection with the body unread, so that sending the rest fails."""
    monkeypatch.setattr("intus.monitoring.breaker.MOST_S", 0.02)
    refusals, taken = 8, []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)

        def answer(number: int) -> None:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as stream:
                head = list(iter(stream.readline, b"\r\n"))
                if number >= refusals:
                    length = next(line for line in head if line.lower().startswith(b"content-length"))
                    taken.append(stream.read(int(length.split(b":")[1])))
                line = f"HTTP/1.1 {200 if number >= refusals else status} -\r\n"
                connection.sendall(line.encode() + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=lambda: [answer(number) for number in range(refusals + 1)])
        thread.start()
        sender = Sender("127.0.0.1", listening.getsockname()[1], 16 * MB)
        give(sender, 7, 8 * MB)
        thread.join(60)
        assert sender.drain(5)
    ((one,), _) = decode_records(*taken)
    assert one.step == 7
    assert (sender.counts().sent, sender.counts().dropped, sender.counts().failed) == (1, 0, 0)
    assert not caplog.records


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (413, 1), (500, 3)])
def test_refused_request_is_counted_and_skipped(server, caplog, status, attempts):
    server.answer = lambda path: status if len(server.answers) < attempts else 200
    sender = Sender("127.0.0.1", server.port, MB)
    give(sender, 0)
    give(sender, 1)
    assert sender.drain(5)
    assert len(server.answers) == attempts + 1
    assert steps(server) == [1]
    assert (sender.counts().failed, sender.counts().sent) == (1, 1)
    assert "refused /records: no thanks" in caplog.text


def test_unencodable_record_is_counted_and_skipped(server, caplog):
    sender = Sender("127.0.0.1", server.port, MB)
    sender.gather(Record(np.array([[object()]]), "odd"), 0)
    sender.post()
    give(sender, 1)
    assert sender.drain(5)
    assert steps(server) == [1]
    assert sender.counts().failed == 1
    assert "could not send a batch" in caplog.text


def test_idle_thread_ends_and_restarts(server, monkeypatch):
    monkeypatch.setattr("intus.monitoring.sender.IDLE_S", 0.05)
    sender = Sender("127.0.0.1", server.port, MB)
    for number in range(2):
        give(sender, number)
        assert sender.drain(5)
        thread = sender._thread
        if thread is not None:
            assert thread.daemon
            thread.join(2)
        assert sender._thread is None
    assert steps(server) == [0, 1]


def _in_child(sender: Sender, queue) -> None:
    give(sender, 100)
    queue.put((sender.drain(5), sender._id, sender.counts().sent))
    queue.close()
    queue.join_thread()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_is_new_client_with_empty_queue(server):
    sender = Sender("127.0.0.1", server.port, MB)
    give(sender, 0)
    assert sender.drain(5)
    server.delay = 0.2
    give(sender, 1)  # in transit while the child starts
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(sender, queue))
    child.start()
    drained, client, sent = queue.get(timeout=10)
    child.join(10)
    assert drained
    assert sent == 1
    assert client != sender._id
    assert sender.drain(5)
    assert sorted(steps(server)) == [0, 1, 100]
    assert {envelope["client"] for _, envelope in server.batches()} == {client, sender._id}


def test_concurrent_threads(server):
    sender = Sender("127.0.0.1", server.port, 10 * MB)

    def work(start: int) -> None:
        for number in range(start, start + 20):
            give(sender, number)

    threads = [threading.Thread(target=work, args=(100 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sender.drain(10)
    assert sorted(steps(server)) == sorted(100 * k + n for k in range(4) for n in range(20))
    assert sender._bytes == 0


@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_accounted_for_with_random_failures(server, monkeypatch, seed):
    monkeypatch.setattr("intus.monitoring.breaker.FIRST_S", 0.001)
    monkeypatch.setattr("intus.monitoring.breaker.MOST_S", 0.004)
    chance = random.Random(seed)
    server.answer = lambda path: chance.choice([200, 200, 200, 503, 429, 500, 400])
    server.cut = lambda: chance.random() < 0.2
    server.delay = 0.0005
    sender = Sender("127.0.0.1", server.port, 60_000)
    given = [give(sender, number) for number in range(150)]
    assert any(sender.drain(10) for _ in range(20))
    counts = sender.counts()
    stored = {(one["client"], one["seq"]): [r.step for r in records] for records, one in server.batches()}
    arrived = sorted(step for steps_ in stored.values() for step in steps_)
    assert len(arrived) == len(set(arrived))
    assert counts.sent + counts.dropped + counts.failed == 150
    assert counts.dropped >= given.count(False)
    # a request cut after it was stored, and refused when repeated, is stored and counts as failed
    assert counts.sent <= len(arrived) <= counts.sent + counts.failed
    assert counts.waiting == sender._bytes == 0


SCRIPT = """
import sys, time
import numpy as np
from intus.core.record import Record
from intus.monitoring.sender import get_sender
sender = get_sender("127.0.0.1", int(sys.argv[1]))
sender.reserve(8); sender.gather(Record(np.ones((1, 2), np.float32), "fc1", step=5), 8)
"""


def test_queue_is_sent_at_exit(server):
    subprocess.run([sys.executable, "-c", SCRIPT, str(server.port)], check=True, timeout=20)
    assert steps(server) == [5]


def test_exit_without_server_is_fast(unused_port):
    start = time.perf_counter()
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(unused_port)],
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert time.perf_counter() - start < 6
    assert out.stderr.count("nothing is recorded") == 1
    assert out.stdout == ""


def test_first_requested_queue_size_replaces_default(unused_port):
    first = get_sender("127.0.0.1", unused_port)
    assert first.capacity == 256 * MB
    assert get_sender("127.0.0.1", unused_port, 1).capacity == MB
    assert get_sender("127.0.0.1", unused_port).capacity == MB
    assert get_sender("127.0.0.1", unused_port, 3).capacity == 3 * MB
    assert get_sender("127.0.0.1", unused_port, 2).capacity == 3 * MB


def test_messages_take_room_in_queue(server, caplog):
    server.answer = lambda path: 503 if len(server.answers) < 3 else 200
    sender = Sender("127.0.0.1", server.port, 10_000)
    kept = [sender.send(f"/graph?run={number}", bytes(3000)) for number in range(5)]
    assert sender._bytes == 9000
    assert not sender.reserve(4000)
    assert [job.state for job in kept] == ["waiting"] * 3 + ["dropped"] * 2
    assert caplog.text.count("no room for /graph?run=3 (3000 bytes)") == 1
    assert sender.drain(10)
    assert [job.state for job in kept[:3]] == ["sent"] * 3
    assert sender._bytes == 0


def test_newest_message_of_topic_is_kept_without_server(unused_port, fake_server):
    sender = Sender("127.0.0.1", unused_port, 10_000)
    for number in range(200):
        sender.send_json("/targets", {"number": number, "pad": "x" * 400}, topic="digit")
    assert len(sender._jobs) <= 2  # one may be in transit
    other = sender.send_json("/targets", {"other": 1}, topic="letter")
    assert sender._bytes < 2000
    assert not sender.wait(other, 10)
    late = fake_server(unused_port)
    try:
        assert sender.drain(5)
        assert late.messages("/targets")[-2:] == [{"number": 199, "pad": "x" * 400}, {"other": 1}]
        assert sender._bytes == 0
    finally:
        late.die()


def test_unanswered_attempts_do_not_count_as_failures(server, monkeypatch):
    monkeypatch.setattr("intus.monitoring.breaker.MOST_S", 0.01)
    sender = Sender("127.0.0.1", server.port, MB)
    assert give(sender, 0)
    assert sender.drain(5)
    server.die()
    give(sender, 1)
    assert not sender.drain(3)
    server.answers.clear()
    server.answer = lambda path: 500 if len(server.answers) < 2 else 200
    server.start()
    assert sender.drain(5)
    assert [status for _, status in server.answers] == [500, 500, 200]
    assert steps(server) == [0, 1]


def test_one_sender_per_server_with_largest_queue(unused_port):
    first = get_sender("127.0.0.1", unused_port, 1)
    assert get_sender("127.0.0.1", unused_port, 2) is first
    assert first.capacity == 2 * MB
    assert get_sender("127.0.0.1", unused_port).capacity == 2 * MB


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("", 8082, "host .* got ''"), (None, 8082, "host .* got None"), ("http://x", 8082, "host .* got 'http://x'"),
        ("127.0.0.1:81", 8082, "host .* got '127.0.0.1:81': pass host='127.0.0.1', port=81"),
        ("localhost", 0, "port .* got 0"), ("localhost", "8082", "port .* got '8082'"),
        ("localhost", True, "port .* got True"), ("localhost", 70000, "port .* got 70000"),
    ],
)  # fmt: skip
def test_invalid_host_or_port_is_refused(host, port, message):
    with pytest.raises(InputError, match=message):
        get_sender(host, port)


def test_commands(server):
    assert commands.register_targets(
        "127.0.0.1", server.port, name="digit", targets=[1, 2], layer_pattern="fc.*"
    )
    patterns = {"model_pattern": ".*", "layer_pattern": "fc.*", "run_pattern": ".*"}
    client = get_sender("127.0.0.1", server.port).id
    assert server.messages("/targets") == [{"name": "digit", "client": client, "targets": [1, 2]} | patterns]
    give(get_sender("127.0.0.1", server.port), 0)
    assert commands.flush("127.0.0.1", server.port, run="r")
    assert commands.flush("127.0.0.1", server.port)
    assert commands.clear("127.0.0.1", server.port)
    assert commands.remove("127.0.0.1", server.port, "m")
    assert [path for path, _ in server.got] == [
        "/targets", "/records", "/flush", "/flush", "/clear", "/remove",
    ]  # fmt: skip
    assert server.messages("/flush") == [{"run": "r", "client": client}, {"client": client}]
    assert server.messages("/remove") == [{"model": "m", "client": client}]


def test_commands_without_server_return_false_and_warn(unused_port, caplog):
    start = time.perf_counter()
    assert not commands.register_targets("127.0.0.1", unused_port, name="digit", targets=[1, 2])
    assert not commands.flush("127.0.0.1", unused_port)
    assert not commands.flush("127.0.0.1", unused_port)
    assert not commands.clear("127.0.0.1", unused_port)
    assert time.perf_counter() - start < 8
    assert len([entry for entry in caplog.records if "flush failed" in entry.message]) == 1


def test_flush_timeout_returns_false(server):
    server.delay = 2.0
    start = time.perf_counter()
    assert not commands.flush("127.0.0.1", server.port, timeout=0.3)
    assert time.perf_counter() - start < 1.5


def test_register_targets_refuses_empty_name(server):
    with pytest.raises(InputError, match=r"name must be .*, got ''"):
        commands.register_targets("127.0.0.1", server.port, name="", targets=[1])


def test_refused_records_make_flush_false_and_are_faults(server, caplog):
    server.answer = lambda path: 400 if path == "/records" and not server.answers else 200
    model = nn.Linear(4, 2)
    with probe(model, "127.0.0.1", server.port, run="r", name="m") as watch:
        model(torch.rand(3, 4))
    assert not commands.flush("127.0.0.1", server.port)
    reason = "records of run 'r' of 'm' were lost, because the server refused them: no thanks"
    assert f"flush failed: {reason}" in caplog.text
    assert watch.status()["faults"] == ["R" + reason[1:]]
    assert commands.flush("127.0.0.1", server.port, run="another")


def test_refused_message_is_a_fault(server):
    server.answer = lambda path: 400 if path == "/targets" else 200
    model = nn.Linear(4, 2)
    with probe(model, "127.0.0.1", server.port) as watch:
        model(torch.rand(2, 4))
        assert not commands.register_targets("127.0.0.1", server.port, name="digit", targets=[1, 2])
    (fault,) = watch.status()["faults"]
    assert fault.endswith("refused /targets: no thanks")


def test_status_does_not_raise_for_a_name_or_token_that_no_request_can_hold(server, monkeypatch):
    sender = Sender("127.0.0.1", server.port, MB)
    give(sender, 0)
    assert sender.drain(5)
    assert sender.ledger("\ud800", "m") is None
    monkeypatch.setenv("INTUS_TOKEN", "\u20ac")
    assert sender.ledger("r", "m") is None


@pytest.mark.parametrize("status", [503, 507])
def test_sentence_of_a_server_that_takes_nothing_reaches_the_user(server, caplog, status):
    server.answer = lambda path: status
    model = nn.Linear(4, 2)
    with probe(model, "127.0.0.1", server.port, run="r", name="m") as watch:
        model(torch.rand(3, 4))
    assert not commands.flush("127.0.0.1", server.port, timeout=0.5)
    takes_nothing = f"the server 127.0.0.1:{server.port} takes nothing now: no thanks"
    assert f"flush failed: {takes_nothing}; 1 records wait to be sent" in caplog.text
    assert "does not answer" not in caplog.text
    assert watch.status()["faults"] == ["T" + takes_nothing[1:]]
    server.answer = lambda path: 200
    assert commands.flush("127.0.0.1", server.port)
    assert watch.status()["faults"] == []


def test_queue_that_is_not_sent_in_time_is_said(server, caplog):
    server.delay = 0.5
    sender = get_sender("127.0.0.1", server.port)
    for number in range(5):
        give(sender, number)
    assert not commands.flush("127.0.0.1", server.port, timeout=0.2)
    assert (
        "flush failed: the time ran out; 5 records wait to be sent. It had 0.2 s (timeout=)." in caplog.text
    )


def test_reason_of_records_that_are_left_is_said_at_exit(server, caplog, monkeypatch):
    monkeypatch.setattr("intus.monitoring.sender.EXIT_S", 0.3)
    server.answer = lambda path: 503
    sender = Sender("127.0.0.1", server.port, MB)
    give(sender, 0)
    sender._at_exit()
    at = f"127.0.0.1:{server.port}"
    assert (
        f"1 records could not be sent to {at} before exit: the server {at} takes nothing now" in caplog.text
    )


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def reasons(server) -> list[str]:
    return [
        reason for _, envelope in server.batches() for one in envelope["epochs"] for reason in one["reasons"]
    ]


@pytest.mark.long
def test_records_dropped_before_any_server_answered_have_that_reason(unused_port, fake_server):
    sender = Sender("127.0.0.1", unused_port, MB)
    key = EpochKey("r", "m", 0)
    give(sender, 0)
    until(lambda: sender.state == "down")
    assert not sender.reserve(4000, epoch=key) or sender.release(4000) is None
    server = fake_server(unused_port)
    until(lambda: give(sender, 1) and sender.drain(1))
    server.die()
    assert set(reasons(server)) == {"no server had answered yet"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (503, "its queue was full, because the server .* takes nothing now: no thanks"),
        (429, "its queue was full, because the server or the network was slower"),
        (200, "an array is larger than the queue"),
    ],
)
def test_records_without_room_have_the_reason_of_the_server(server, monkeypatch, status, reason):
    monkeypatch.setattr("intus.monitoring.breaker.MOST_S", 0.02)
    server.answer = lambda path: status
    sender = Sender("127.0.0.1", server.port, 5000)
    assert give(sender, 0)
    until(lambda: server.answers)
    until(lambda: sender._delay is not None or status == 200)
    assert not sender.reserve(4000 if status != 200 else 8000, epoch=EpochKey("r", "m", None))
    server.answer = lambda path: 200
    assert sender.drain(5)
    give(sender, 1)
    assert sender.drain(5)
    assert any(re.match(reason, each) for each in reasons(server))
