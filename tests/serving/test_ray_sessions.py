"""Ray's clusters: when an engine starts one, and when it ends it."""

from __future__ import annotations

import pytest

from intus.core.errors import ServeError
from intus.engines.base import Task, WorkerDiedError

pytestmark = pytest.mark.ray


def test_engine_that_is_closed_starts_no_cluster():
    """Ray starts one for any call of it, also in threads that still wait for a task."""
    import ray

    from intus.engines.ray import RayEngine

    engine = RayEngine(workers=1)
    answer = engine.submit(Task(int, ("7",), nbytes=1))
    engine.close()
    engine.close()
    for call in (answer, lambda: engine.submit(Task(int, ("7",), nbytes=1))):
        with pytest.raises(WorkerDiedError, match="was shut down"):
            call()
    assert not ray.is_initialized()


def test_engine_in_a_process_that_uses_ray():
    """The engine uses it as it is, and leaves it."""
    import ray

    from intus.engines.ray import RayEngine

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        with pytest.raises(ServeError, match="uses Ray already"):
            RayEngine(workers=1, address="127.0.0.1:1")
        engine = RayEngine(workers=2)
        assert engine.submit(Task(int, ("7",), nbytes=1))() == 7
        engine.close()
        again = RayEngine(workers=2)  # there are CPUs again
        assert again.submit(Task(int, ("8",), nbytes=1))() == 8
        again.close()
        assert ray.get(ray.remote(lambda: 9).remote()) == 9
    finally:
        ray.shutdown()
