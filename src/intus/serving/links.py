"""The next server of the chain, reached over HTTP: the same methods as the object itself."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from ..core.errors import ServeError
from ..core.results import Results
from ..storage.codec import encode_records
from .point import DataPoint, Notice
from .wire import results_to_json
from .worker import Worker

_RETRIES = (0.1, 0.3, 1.0, 3.0, 10.0)


class Remote:
    """What both stand-ins share. ``url`` is like ``http://127.0.0.1:8081``."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 600.0) -> None:
        self.url, self.token, self.timeout = url.rstrip("/"), token, timeout

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        self._post("/graph?" + urlencode({"run": run, "model": model}), blob)

    def put_target(self, facts: Mapping[str, Any]) -> None:
        self._post("/targets", dict(facts))

    def notices(self, notices: Sequence[Notice]) -> None:
        if notices:
            self._post("/notices", {"notices": [notice._asdict() for notice in notices]})

    def report(self, role: str, counts: Mapping[str, int]) -> None:
        self._post("/status", {"role": role, "counts": dict(counts)})

    def flush(self, run: str | None = None, model: str | None = None) -> None:
        self._post("/flush", {"run": run, "model": model})

    def clear(self) -> None:
        self._post("/clear", {})

    def remove(self, model: str) -> None:
        self._post("/remove", {"model": model})

    def _post(self, path: str, body: bytes | Mapping[str, Any]) -> None:
        self._ask(path, body if isinstance(body, bytes) else json.dumps(body).encode())

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        """The JSON answer; a server that is away or busy is asked again for some seconds."""
        headers = {"Content-Type": "application/octet-stream"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        for delay in (*_RETRIES, None):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                text = error.read().decode("utf-8", "replace")
                if delay is None or error.code not in (429, 502, 503, 504):
                    raise ServeError(f"{self.url}{path} answered {error.code}: {text}") from None
            except OSError as error:
                if delay is None:
                    raise ServeError(f"{self.url} cannot be reached: {error}") from None
            time.sleep(delay)
        raise AssertionError("unreachable")


class RemoteFrontend(Remote):
    """The frontend, as the evaluator sees it."""

    def results(self, results: Results) -> None:
        self._post("/results", {"columns": results_to_json(results)})

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("/targets")["targets"]
        return found


@dataclass(frozen=True, slots=True)
class _Call:
    """Something to send later; ``model`` is whose it is."""

    send: Callable[[], None]
    nbytes: int = 0
    model: str | None = None


class RemoteEvaluator(Remote):
    """The evaluator, as the aggregator sees it. What a training run would have to wait for is sent by a
    thread, in order."""

    def __init__(self, url: str, token: str | None = None) -> None:
        super().__init__(url, token)
        self._worker: Worker[_Call] = Worker(
            "intus-to-evaluator", lambda call: call.send(), lambda c: c.nbytes
        )

    def points(self, batch: Sequence[DataPoint]) -> None:
        for number, point in enumerate(batch, start=1):
            send = partial(self._send, point, last=number == len(batch))
            self._worker.submit(_Call(send, point.nbytes, point.key.model))

    def backlog(self) -> int:
        return self._worker.nbytes

    def notices(self, notices: Sequence[Notice]) -> None:
        self._worker.submit(_Call(partial(super().notices, notices)))

    def report(self, role: str, counts: Mapping[str, int]) -> None:
        self._worker.submit(_Call(partial(super().report, role, counts)))

    def flush(self, run: str | None = None, model: str | None = None) -> None:
        self._worker.wait()
        super().flush(run, model)

    def clear(self) -> None:
        self._worker.drop(lambda call: True)
        super().clear()

    def remove(self, model: str) -> None:
        self._worker.drop(lambda call: call.model == model)
        super().remove(model)

    def close(self) -> None:
        """Send what waits."""
        self._worker.close()

    def _send(self, point: DataPoint, *, last: bool) -> None:
        envelope = {"kind": point.kind, "step": point.step, "lacks": point.lacks, "last": last}
        self._post("/datapoint", encode_records(point.records, envelope))
