"""Real server processes: requests, interrupts and restarts."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from urllib.parse import urlsplit

import numpy as np
import pytest
from process_help import runs_now, wait_for_end
from serving_help import record

from intus.core.errors import InputError, MissingExtraError, ServeError
from intus.core.results import Results
from intus.serving.announcement import announcement
from intus.serving.http.feed import POLL
from intus.serving.http.remote import RemoteFrontend
from intus.serving.options import ServerOptions
from intus.serving.run import Server, serve
from intus.storage.codec import encode_records
from intus.storage.database import Database
from intus.storage.token_file import read_token

LABELS = [0, 1] * 20


def ask(url: str, path: str, body=None):
    """Return (status, JSON) of a GET, or of a POST if there is a body."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    try:
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        token = read_token(place.hostname, place.port)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET" if body is None else "POST", path, content, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def batch(epoch=0, seq=0, run="r"):
    array = np.random.default_rng(epoch).normal(size=(40, 5)).astype(np.float32)
    return encode_records(
        [record(array=array, epoch=epoch, run=run)], {"client": "c", "seq": seq, "dropped": 0}
    )


class Events:
    """The client of /api/stream."""

    def __init__(self, url: str, last: int | None = None) -> None:
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.hostname, place.port, timeout=10)
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        headers["Authorization"] = f"Bearer {read_token(place.hostname, place.port)}"
        self._connection.request("GET", "/api/stream", headers=headers)
        self.answer = self._connection.getresponse()
        assert self.answer.headers["content-type"].startswith("text/event-stream")

    def next(self) -> dict:
        """Return the data of the next event."""
        event = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            event[name] = value
        assert event["event"] == "change"
        data = json.loads(event["data"])
        assert int(event["id"]) == data["change"]
        return data

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "scores.db"
    with Server(database=path, port=0) as running:
        running.database = path
        yield running


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.long
def test_server_scores_records(server):
    url = server.page_url
    assert ask(url, "/targets", {"name": "parity", "targets": LABELS}) == (200, {})
    for epoch in range(3):
        assert ask(url, "/records", batch(epoch, epoch)) == (200, {"accepted": 1, "duplicate": False})
    assert ask(url, "/flush", {}) == (200, {})
    (run,) = ask(url, "/api/runs")[1]["runs"]
    assert run["epochs"] == [0, 1, 2]
    points = ask(url, "/api/points?run=r&model=m&score=linear_f1&target=parity")[1]
    assert points["epoch"] == [0, 1, 2]
    assert all(0 <= value <= 1 for value in points["value"])


def test_event_stream_reports_changes_of_any_process(server):
    events = Events(server.page_url)
    first = events.next()
    assert first["what"] == []
    ask(server.page_url, "/records", batch(run="live", seq=100))
    ask(server.page_url, "/flush", {})
    news = events.next()
    assert (news["what"], news["runs"]) == (["points"], [["live", "m"]])
    events.close()
    with Database(server.database) as database:  # this process is another one
        database.add(Results.from_rows([{"run": "offline", "model": "m", "address": "a", "score": "mean"}]))
        database.add_notice("code", "text", run="offline", model="m")
    again = Events(server.page_url, last=news["change"])
    missed = again.next()
    assert (missed["what"], missed["runs"]) == (["points", "notices"], [["offline", "m"]])
    assert missed["change"] == news["change"] + 2
    again.close()


@pytest.mark.long
def test_server_answers_after_all_pages_were_closed_and_another_opens(tmp_path):
    with Server(database=tmp_path / "x.db", port=0) as running:
        for _ in range(2):
            events = Events(running.page_url)
            events.next()
            assert ask(running.page_url, "/api/status")[0] == 200
            events.close()
            time.sleep(4 * POLL)  # the server stops to look for changes


@pytest.mark.long
def test_open_stream_does_not_delay_shutdown(tmp_path):
    with Server(database=tmp_path / "x.db", port=0) as running:
        events = Events(running.page_url)
        events.next()
        began = time.monotonic()
        running.stop()
        assert time.monotonic() - began < 5
        assert running.process.returncode in (0, -signal.SIGTERM)
        assert events.answer.read() == b""
        events.close()


@pytest.mark.long
def test_server_scores_received_records_before_exit(tmp_path):
    for epoch, sign in enumerate((signal.SIGINT, signal.SIGTERM)):
        with Server(database=tmp_path / "x.db", port=0) as running:
            if epoch == 0:
                ask(running.page_url, "/targets", {"name": "parity", "targets": LABELS})
            else:
                assert ask(running.page_url, "/api/runs")[1]["runs"][0]["targets"] == ["parity"]
            ask(running.page_url, "/records", batch(epoch, seq=epoch))  # seq 0 is known from before
            running.process.send_signal(sign)
            running.process.wait(timeout=30)
            assert not [line for line in running.log if "Traceback" in line], sign
        with Database(tmp_path / "x.db") as database:
            points = database.points("r", "m", score="linear_accuracy")
        assert points["epoch"].tolist() == [*range(epoch + 1)], sign
        assert set(points["target"].tolist()) == {"parity"}, sign


@pytest.mark.long
def test_separate_roles_equal_single_process(tmp_path):
    aggregator, evaluator, frontend = (f"http://127.0.0.1:{port}" for port in free_ports(3))
    ports = {"aggregator": aggregator, "evaluator": evaluator, "frontend": frontend}
    options = [f"--{name}-port={urlsplit(url).port}" for name, url in ports.items()]
    options.append(f"--database={tmp_path}/x.db")
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "intus.serving",
                f"--role={role}",
                f"--database={tmp_path}/x.db",
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for role in ports
    ]
    try:
        for process in processes:
            assert "127.0.0.1" in process.stdout.readline()
        assert ask(aggregator, "/targets", {"name": "parity", "targets": LABELS}) == (200, {})
        assert ask(aggregator, "/targets", {"name": "short", "targets": [1, 2, 3]}) == (200, {})
        for epoch in range(2):
            assert ask(aggregator, "/records", batch(epoch, epoch))[0] == 200
        assert ask(aggregator, "/flush", {}) == (200, {})
        points = ask(frontend, "/api/points?run=r&model=m&score=linear_f1&target=parity")[1]
        assert points["epoch"] == [0, 1]
        (notice,) = ask(frontend, "/api/notices")[1]["notices"]
        assert "'short' has 3 labels" in notice["text"]
        status = ask(frontend, "/api/status")[1]
        assert status["aggregator"]["received"] == 2
        assert status["evaluator"]["scored"] == 2
        assert ask(aggregator, "/remove", {"model": "m", "client": "c"}) == (200, {"removed": [["r", "m"]]})
        reply = ask(frontend, "/api/runs")[1]
        assert reply == {"runs": [], "scores": [], "kinds": {}, "change": reply["change"]}
    finally:
        for process in processes:
            process.terminate()
        errors = [process.communicate(timeout=30)[1] for process in processes]
    assert not [text for text in errors if "Traceback" in text]


class Apart:
    """The three roles as processes, started and killed one by one."""

    def __init__(self, folder) -> None:
        self.ports = dict(zip(("aggregator", "evaluator", "frontend"), free_ports(3), strict=True))
        self.options = [f"--{name}-port={port}" for name, port in self.ports.items()]
        self.options.append(f"--database={folder}/x.db")
        self.running = {}

    def start(self, *roles) -> None:
        for role in roles:
            command = [sys.executable, "-m", "intus.serving.private", f"--role={role}", *self.options]
            pipe = subprocess.PIPE
            self.running[role] = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
        for role in roles:
            assert "127.0.0.1" in self.running[role].stdout.readline()

    def kill(self, *roles) -> None:
        for role in roles:
            process = self.running.pop(role)
            process.kill()
            process.communicate()

    def ask(self, role, path, body=None):
        return ask(f"http://127.0.0.1:{self.ports[role]}", path, body)


@pytest.mark.long
def test_records_are_kept_while_next_server_is_away(tmp_path):
    apart = Apart(tmp_path)
    try:
        apart.start("aggregator")
        began = time.monotonic()
        assert apart.ask("aggregator", "/targets", {"name": "parity", "targets": LABELS})[0] == 200
        for epoch in range(2):
            assert apart.ask("aggregator", "/records", batch(epoch, epoch))[0] == 200
        assert time.monotonic() - began < 2  # nobody is held up
        status, answer = apart.ask("aggregator", "/flush", {})
        assert status == 502
        assert f"127.0.0.1:{apart.ports['evaluator']}" in answer["error"]
        assert "are kept" in answer["error"]
        apart.kill("aggregator")
        apart.start("aggregator", "evaluator")
        status, answer = apart.ask("aggregator", "/flush", {})
        assert (status, f"127.0.0.1:{apart.ports['frontend']}" in answer["error"]) == (502, True)
        apart.start("frontend")
        assert apart.ask("aggregator", "/flush", {}) == (200, {})
        points = apart.ask("frontend", "/api/points?run=r&model=m&score=linear_f1&target=parity")[1]
        assert points["epoch"] == [0, 1]
        assert apart.ask("aggregator", "/api/status")[1]["aggregator"]["journal"] < 4000
    finally:
        apart.kill(*apart.running)


def reported(apart, wanted):
    """Return what the page's process says of the run, once that is as wanted."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        rows = apart.ask("frontend", "/api/status")[1]["runs"]
        if rows and wanted(rows[0]):
            return rows[0]
        time.sleep(0.1)
    raise AssertionError(rows)


@pytest.mark.long
def test_page_tells_that_the_counts_are_old_while_the_evaluator_is_away(tmp_path):
    apart = Apart(tmp_path)
    try:
        apart.start("aggregator", "evaluator", "frontend")
        assert apart.ask("aggregator", "/records", batch())[0] == 200
        assert apart.ask("aggregator", "/flush", {}) == (200, {})
        assert reported(apart, lambda row: row["scored"] == 1)["trouble"] == ""
        apart.kill("evaluator")
        assert apart.ask("aggregator", "/records", batch(1, 1))[0] == 200
        row = reported(apart, lambda row: row["trouble"])
        assert re.match(r"The aggregator has reported nothing for \d+ s, so these counts", row["trouble"])
        apart.start("evaluator")
        assert apart.ask("aggregator", "/flush", {}) == (200, {})
        assert reported(apart, lambda row: row["scored"] == 2)["trouble"] == ""
        apart.kill("frontend")  # which forgets the counts, and hears of them though they are the same
        apart.start("frontend")
        assert reported(apart, lambda row: True)["scored"] == 2
    finally:
        apart.kill(*apart.running)


@pytest.mark.long
@pytest.mark.parametrize("hung", ["evaluator", "frontend"])
def test_role_that_hangs_is_named_by_a_flush_and_in_the_ledger(tmp_path, hung):
    """The flush waited for ever, since the role takes requests and answers none."""
    apart = Apart(tmp_path)
    try:
        apart.start("aggregator", "evaluator", "frontend")
        assert apart.ask("aggregator", "/records", batch())[0] == 200
        assert apart.ask("aggregator", "/flush", {}) == (200, {})
        apart.running[hung].send_signal(signal.SIGSTOP)
        assert apart.ask("aggregator", "/records", batch(1, 1))[0] == 200
        began = time.monotonic()
        status, answer = apart.ask("aggregator", "/flush", {})
        assert time.monotonic() - began < 60
        assert status == 502
        named = f"The {hung} http://127.0.0.1:{apart.ports[hung]} cannot be reached: it has answered nothing"
        assert named in answer["error"]
        assert "1 data point waits to be scored and is kept" in answer["error"]
        (row,) = apart.ask("aggregator", "/api/status")[1]["runs"]
        assert (row["queued"], named in row["trouble"]) == (1, True)
        apart.running[hung].send_signal(signal.SIGCONT)
        assert apart.ask("aggregator", "/flush", {}) == (200, {})
        assert apart.ask("frontend", "/api/points?run=r&model=m&score=mean")[1]["epoch"] == [0, 1]
    finally:
        apart.kill(*apart.running)


@pytest.mark.long
def test_flush_says_what_waits(tmp_path):
    """It said "0 data points wait" while only a graph or a target did."""
    apart = Apart(tmp_path)
    try:
        apart.start("aggregator")
        assert apart.ask("aggregator", "/targets", {"name": "parity", "targets": LABELS})[0] == 200
        logged = {
            "run": "r",
            "model": "m",
            "log": [{"step": 1, "epoch": None, "time": 1.0, "values": {"loss": 0.5}}],
        }
        for _ in range(2):
            assert apart.ask("aggregator", "/run", logged)[0] == 200
        status, answer = apart.ask("aggregator", "/flush", {})
        assert (status, "1 target and 2 log messages wait to be stored and are kept." in answer["error"]) == (
            502,
            True,
        )
        for epoch in range(3):
            assert apart.ask("aggregator", "/records", batch(epoch, epoch))[0] == 200
        status, answer = apart.ask("aggregator", "/flush", {})
        (row,) = apart.ask("aggregator", "/api/status")[1]["runs"]
        assert (status, row["queued"]) == (502, 3)
        said = "3 data points wait to be scored, and 1 target and 2 log messages to be stored; all are kept."
        assert said in answer["error"]
        assert row["trouble"].startswith("2 log messages and 3 data points wait. The evaluator ")
    finally:
        apart.kill(*apart.running)


@pytest.mark.long
def test_database_that_is_gone_is_told_through_all_roles(tmp_path):
    apart = Apart(tmp_path)
    try:
        apart.start("aggregator", "evaluator", "frontend")
        assert apart.ask("aggregator", "/records", batch())[0] == 200
        assert apart.ask("aggregator", "/flush", {}) == (200, {})
        (tmp_path / "x.db").rename(tmp_path / "moved.db")
        assert apart.ask("aggregator", "/records", batch(1, 1))[0] == 200  # its journal keeps it
        status, answer = apart.ask("aggregator", "/flush", {})
        assert status == 502
        assert "x.db' was deleted or moved while it was in use" in answer["error"]
        assert "1 data point waits to be scored and is kept" in answer["error"]
        (row,) = apart.ask("aggregator", "/api/status")[1]["runs"]
        assert (row["scored"], row["waiting"], row["failed"]) == (1, 1, 0)
        assert "x.db' was deleted or moved" in row["trouble"]
        assert apart.ask("frontend", "/api/runs")[0] == 503
        page = reported(apart, lambda row: row["trouble"])  # also by the process that has no database
        assert (page["scored"], page["waiting"]) == (1, 1)
        assert "x.db' was deleted or moved" in page["trouble"]
        apart.kill("aggregator", "frontend")
        (tmp_path / "x.db-wal").rename(tmp_path / "moved.db-wal")  # with it, a start is refused
        apart.start("aggregator", "frontend")
        assert apart.ask("aggregator", "/flush", {}) == (200, {})
        assert apart.ask("frontend", "/api/points?run=r&model=m&score=mean")[1]["epoch"] == [1]
    finally:
        apart.kill(*apart.running)


@pytest.mark.long
def test_server_with_step_trigger_and_token(tmp_path):
    with Server(database=tmp_path / "x.db", port=0, trigger="epoch,step", token="s3cret") as running:
        url, _, token = running.page_url.partition("?token=")
        assert token == "s3cret"
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(f"{url}api/runs")
        assert "Open the page at the address" in refused.value.read().decode()
        frontend = RemoteFrontend(url.rstrip("/"), "s3cret")
        for step in (10, 20):
            frontend._ask("/records", encode_records([record(step=step)]))
        frontend.flush()
        points = frontend._ask("/api/points?run=r&model=m&score=mean")
        assert (points["epoch"], points["step"]) == ([0, 0], [10, 20])


def test_single_process_listens_on_three_ports(tmp_path):
    ports = free_ports(3)
    options = dict(zip(("aggregator_port", "evaluator_port", "frontend_port"), ports, strict=True))
    with Server(database=tmp_path / "x.db", **options) as running:
        assert running.port == ports[0]
        assert running.page_url.startswith(f"http://127.0.0.1:{ports[2]}/?token=")
        for port in ports:
            assert ask(f"http://127.0.0.1:{port}", "/api/runs") == (
                200,
                {"runs": [], "scores": [], "kinds": {}, "change": 0},
            )


# -- what cannot be started --------------------------------------------------------------------------


def test_port_in_use_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"cannot listen on port {port} of 127.0.0.1: .*in use"):
            serve(port=port, database=tmp_path / "x.db")
        with pytest.raises(
            ServeError, match=f"The server did not start: The server cannot listen on port {port} of"
        ):
            Server(no_token=True, port=port, database=tmp_path / "x.db")


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        (
            {"engine": "dask"},
            InputError,
            "engine must be 'local', 'ray' or a positive number of processes, got 'dask'",
        ),
        ({"workers": 2}, InputError, "are options of the engine 'ray'"),
        ({"engine": "ray", "workers": 0}, InputError, "workers must be a positive whole number, got 0"),
        ({"host": "0.0.0.0"}, ServeError, "A token is required to listen on 0.0.0.0"),
        ({"role": "king"}, InputError, "role must be one of all, aggregator, .*, got 'king'"),
        ({"port": 0, "database": "/nowhere/at/all.db"}, InputError, "Could not open the database"),
        (
            {"port": 0, "trigger": "epoch,colour"},
            InputError,
            "trigger must be some of epoch, step, mode, .*, got 'epoch,colour'",
        ),
        ({"port": 99999}, InputError, "port must be a whole number from 0 to 65535, got 99999"),
        (
            {"port": 0, "grace": float("nan")},
            InputError,
            "grace must be a positive number of seconds, got nan",
        ),
        ({"port": 0, "max_bytes": 0}, InputError, "max_bytes must be a positive number of bytes, got 0"),
        (
            {"port": 0, "journal_bytes": -1},
            InputError,
            "journal_bytes must be a positive number of bytes, got -1",
        ),
        ({"port": 0, "database": "postgresql:///:::"}, (InputError, MissingExtraError), "postgres"),
        (
            {"host": "no.such.host.invalid", "token": "t", "port": 0},
            ServeError,
            "'no.such.host.invalid' is not an address",
        ),
        ({"host": "0.0.0.0", "token": "токен"}, InputError, "token must be of ASCII"),
        ({"prot": 8080}, InputError, "There is no option 'prot'. Did you mean 'port'"),
        ({"fsync": "yes"}, InputError, "fsync must be True or False, got 'yes'"),
        ({"port": True}, InputError, "port must be a whole number .*, got True"),
        (
            {"evaluator_url": "localhost"},
            InputError,
            "evaluator_url must be an address such as http://HOST:PORT",
        ),
        ({"token": " padded"}, InputError, "token must be of ASCII"),
    ],
)
def test_failed_start_names_reason_and_closes_resources(options, error, complaint):
    threads = threading.active_count()
    with pytest.raises(error, match=complaint):
        serve(**options)
    assert threading.active_count() == threads


def test_server_process_imports_no_framework():
    code = (
        "import sys, intus.serving.run; "
        "print([name for name in ('torch', 'tensorflow', 'jax', 'mxnet') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_replies_are_not_delayed_by_nagle(server):
    """Without TCP_NODELAY every reply on a keep-alive connection takes 40 ms or more."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    times = []
    for _ in range(20):
        began = time.monotonic()
        connection.request("POST", "/remove", b'{"model": "nobody"}')
        connection.getresponse().read()
        times.append(time.monotonic() - began)
    connection.close()
    assert min(times[5:]) < 0.03


def test_too_long_header_is_refused(server):
    with socket.create_connection((server.host, server.port), timeout=10) as line:
        line.sendall(b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 200_000 + b"\r\n\r\n")
        assert b" 4" in line.recv(100)[:12]
    assert ask(server.page_url, "/api/runs")[0] == 200


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_missing_ray_error_names_extra(tmp_path):
    with pytest.raises(ServeError, match=r"ray is needed .* pip install 'intus\[ray\]'"):
        Server(database=tmp_path / "x.db", port=0, engine="ray")


def test_serve_in_event_loop_is_refused(tmp_path):
    async def cell():
        serve(database=tmp_path / "x.db", port=0)

    with pytest.raises(ServeError, match=r"server = Server\(\)"):
        asyncio.run(cell())


@pytest.mark.long
def test_server_survives_interrupt_and_ends_with_parent(tmp_path):
    script = f"""
import os, signal, urllib.request
from intus.serving.run import Server

server = Server(database={str(tmp_path / "x.db")!r}, port=0, no_token=True)
try:
    os.killpg(0, signal.SIGINT)  # as the button of a notebook does
    signal.pause()
except KeyboardInterrupt:
    print(urllib.request.urlopen(server.page_url).status, server.process.pid)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, start_new_session=True
    )
    status, pid = done.stdout.split()
    assert (status, done.stderr) == ("200", "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="the test reads /proc")
def test_server_ends_with_parent_that_is_killed(tmp_path):
    script = f"""
import time
from intus.serving.run import Server

server = Server(database={str(tmp_path / "x.db")!r}, port=0, no_token=True)
print(server.process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        server = int(parent.stdout.readline())
        assert runs_now(server)
        parent.kill()
        wait_for_end([server])


@pytest.mark.long
def test_announcement_has_next_steps_and_no_password():
    options = ServerOptions(host="::1", database="postgresql://me:secret@host/scores", token="t0ken")
    text = announcement(options, [8082, 8081, 8080], None)
    assert "Page: http://[::1]:8080/ " in text
    assert 'intus.probe(model, "::1", 8082)' in text
    assert "/?token=TOKEN" in text
    assert "host/scores" in text
    assert "secret" not in text
    assert "t0ken" not in text
    page = "Page: http://127.0.0.1:8080/"
    assert announcement(ServerOptions(role="frontend", no_token=True), [8080], None) == page
    assert announcement(ServerOptions(), [8082, 8081, 8080], "new").startswith(f"{page}?token=new · probes")
