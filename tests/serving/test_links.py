"""The proxy of the next server if that is busy, away or refuses; and the worker thread."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from serving_help import point, record

from intus.core.errors import ServeError
from intus.serving import worker as module
from intus.serving.errors import HeldError
from intus.serving.http import remote as links
from intus.serving.http.remote import RemoteEvaluator, RemoteFrontend
from intus.serving.messages import AggregatorCounts, DoubtRequest, Notice, RunRequest, StatusReport
from intus.serving.worker import Worker
from intus.storage.codec import decode_records


class Next(ThreadingHTTPServer):
    """A server that replies with each of ``statuses`` in turn, then 200, and stores its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.got: list[tuple[str, bytes, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Next

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.server.got.append((self.path, body, self.headers["Authorization"]))
        self.send_response(status)
        self.end_headers()
        reply = b'{"removed": [["r", "m"]]}' if self.path == "/run/remove" else b"{}"
        self.wfile.write(b'{"error": "a sentence"}' if status >= 400 else reply)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(links, "_RETRIES", (0.01, 0.01, 0.01))
    with Next() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_request_to_busy_server_is_retried(server):
    server.statuses = [429, 503]
    RemoteFrontend(server.url, "t0ken").clear("c")
    assert [(path, token) for path, _, token in server.got] == [("/targets/remove", "Bearer t0ken")] * 3


def test_refused_request_is_not_retried(server):
    server.statuses = [400]
    with pytest.raises(ServeError, match=r"/remove answered 400: .*a sentence"):
        RemoteFrontend(server.url).remove("m")
    assert len(server.got) == 1


def test_retries_end_if_server_stays_busy_or_away(server):
    server.statuses = [503] * 9
    with pytest.raises(ServeError, match="answered 503"):
        RemoteFrontend(server.url).clear("c")
    assert len(server.got) == 4
    with pytest.raises(ServeError, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        RemoteFrontend("http://127.0.0.1:1").clear("c")


def test_data_points_of_an_epoch_are_sent_in_order_before_flush(server):
    evaluator = RemoteEvaluator(server.url)
    evaluator.points([point(record(address="a")), point(record(address="b"))])
    evaluator.notices([Notice("code", "text")])
    evaluator.report(StatusReport(AggregatorCounts(received=2)))
    evaluator.flush("r", None)
    evaluator.close()
    paths = [path for path, _, _ in server.got]
    assert sorted(paths[:-1]) == ["/datapoint", "/datapoint", "/notices", "/status"]
    assert paths[-1] == "/flush"
    sent = [decode_records(body) for path, body, _ in server.got if path == "/datapoint"]
    assert [records[0].address for records, _ in sent] == ["a", "b"]
    assert [envelope["last"] for _, envelope in sent] == [False, True]
    assert json.loads(server.got[-1][1]) == {"run": "r", "model": None, "client": None}


def test_data_point_that_cannot_be_scored_now_holds_up_no_other(server):
    server.statuses = [507]
    evaluator = RemoteEvaluator(server.url)
    evaluator.points([point(record(address="a")), point(record(address="b"))])
    evaluator.flush()
    evaluator.close()
    sent = [decode_records(body)[0][0].address for path, body, _ in server.got if path == "/datapoint"]
    assert sent in (["a", "b", "a"], ["a", "a", "b"])  # the pause may be over first


def test_refused_data_point_does_not_stop_queue(server, caplog):
    server.statuses = [400]
    evaluator = RemoteEvaluator(server.url)
    evaluator.points([point(record(address="a")), point(record(address="b"))])
    evaluator.close()
    assert len(server.got) == 2
    assert "intus-to-evaluator failed" in caplog.text


def test_worker_drops_unwanted_items_and_finishes_others():
    begun, go, done = threading.Event(), threading.Event(), []

    def handle(item: int) -> None:
        begun.set()
        go.wait(10)
        done.append(item)

    worker: Worker[int] = Worker("test", handle, lambda item: item)
    for item in (1, 2, 3, 4):
        worker.submit(item)
    begun.wait(10)
    assert (worker.pending, worker.nbytes) == (4, 9)
    threading.Timer(0.05, go.set).start()
    assert worker.drop(lambda item: item % 2 == 1) == ([3], 1)
    worker.wait_for_current(10)
    assert done[0] == 1  # it was being worked on
    worker.wait()
    assert done == [1, 2, 4]
    worker.submit(5)
    worker.close()
    assert done == [1, 2, 4, 5]


@pytest.mark.parametrize("ahead", [1, 3])
@example([("a", 2)] * 12)  # takes minutes if the pauses of one item are added to those of the next
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_items_about_the_same_keep_their_order_while_one_is_held(ahead, asked):
    """Each item is refused some times; others come while it waits."""
    refusals = {number: times for number, (_, times) in enumerate(asked)}
    done: list[int] = []

    def handle(number: int) -> None:
        if refusals[number]:
            refusals[number] -= 1
            raise HeldError("The memory does not suffice.")
        done.append(number)

    worker: Worker[int] = Worker(
        "test", handle, lambda number: 1, ahead=ahead, about=lambda number: asked[number][0]
    )
    with mock.patch.object(module, "FIRST_PAUSE_S", 0.001):
        for number in range(len(asked)):
            worker.submit(number)
            time.sleep(0.0005)
        assert worker.wait(20)
    for about in "ab":
        own = [number for number, (each, _) in enumerate(asked) if each == about]
        assert [number for number in done if number in own] == own
    assert (worker.pending, worker.nbytes, worker.trouble, worker._lines) == (0, 0, "", {})
    worker.close()


def test_removed_run_is_not_brought_back_by_what_waits_of_it(server):
    """Its graph and logged values were sent after the removal."""
    server.statuses = [503] * 3
    evaluator = RemoteEvaluator(server.url)
    for run in ("r", "s"):
        evaluator.put_graph(run, "m", b"")
        evaluator.put_run(RunRequest(run, "m", tags=["a"]))
        evaluator.put_doubt(DoubtRequest(run, "m", "of other rows"))
    evaluator.points([point(record())])
    while not evaluator._worker.trouble:
        time.sleep(0.001)
    assert evaluator._worker.waiting == {"graph": 2, "log message": 2, "doubt": 2, "data point": 1}
    assert evaluator.remove("r")
    evaluator.flush()
    evaluator.close()
    paths = [path for path, _, _ in server.got]
    removed = paths.index("/run/remove")
    assert "/graph?run=r&model=m" in paths[:removed]  # it was tried
    assert "/graph?run=r&model=m" not in paths[removed:]
    assert sorted({*paths} - {"/run/remove", "/flush"}) == [
        "/doubts",
        "/graph?run=r&model=m",
        "/graph?run=s&model=m",
        "/run",
    ]
    told = [json.loads(body)["run"] for path, body, _ in server.got if path in ("/run", "/doubts")]
    assert told == ["s", "s"]
