"""Agreements of processes through the store of ``torch.distributed``, which never wait without a limit.

A collective operation would hang if one process did not take part. In the store each process leaves a mark
and waits, for a limited time, for one common decision: yes by the last process that arrives, no by the first
whose time is up. The store takes only the first decision, so all processes read the same, also late ones.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import distributed

from ...core.errors import InputError

#: Seconds that a process waits for the others.
WAIT_S = 60.0
_YES, _NO = b"yes", b"no"
_agreements: Counter[tuple[int, ...]] = Counter()


class Together:
    """An agreement of some processes; see ``backends.sharding.Together``.

    Args:
        store: A store that all of them reach, with keys of this agreement alone.
        ranks: The processes.
        rank: This process.
        about: A text that must be the same in every process.

    Raises:
        InputError: If a process does not come within ``WAIT_S`` seconds, or its text differs.
    """

    def __init__(self, store: Any, ranks: Sequence[int], rank: int, about: str) -> None:
        self._store, self._ranks, self._rank = store, ranks, rank
        self._numbers: Counter[float] = Counter()
        self.sends = rank == min(ranks)
        store.set(f"about/{rank}", json.dumps(about))
        if not self._decide("begin"):
            here = [one for one in ranks if store.check([f"about/{one}"])]
            missing = [str(one) for one in ranks if one not in here]
            why = f"rank {', '.join(missing)} is missing" if missing else "one came too late"
            raise InputError(
                "The model is sharded over several processes, which can run a probe set only together, but "
                f"probe() was not called in all of them within {WAIT_S:g} s: {why}. Call "
                "probe() with the same probe_set in every process; one of them sends."
            )
        abouts = {one: json.loads(store.get(f"about/{one}")) for one in ranks}
        if different := [one for one in ranks if abouts[one] != abouts[min(ranks)]]:
            raise InputError(
                "The model is sharded over several processes, which must run the same probe set at the same "
                f"steps, but rank {different[0]} has {abouts[different[0]]} and rank {min(ranks)} has "
                f"{abouts[min(ranks)]}. Pass the same probe_set and every to probe() in each."
            )

    def agree(self, number: float) -> bool:
        """Return whether all processes run a pass now; see ``backends.sharding.Together``."""
        self._numbers[number] += 1  # a training that starts again comes to the same number again
        return self._decide(f"pass/{number:g}/{self._numbers[number]}")

    def _decide(self, key: str) -> bool:
        decision, mine = f"{key}/decision", _NO
        if self._store.add(f"{key}/here", 1) == len(self._ranks):
            mine = _YES
        elif self._decided(decision):
            return bool(self._store.get(decision) == _YES)
        return bool(self._store.compare_set(decision, "", mine.decode()) == _YES)

    def _decided(self, key: str) -> bool:
        """Wait for a key; False if the time is up. ``Store.wait`` would block the store for other threads."""
        deadline, pause = time.monotonic() + WAIT_S, 0.001
        while not self._store.check([key]):
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(1.5 * pause, 0.2)
        return True


def job() -> str | None:
    """Return a name that every process of the default group finds when it asks.

    Returns:
        The name; "" without a group, None if the group's store fails.
    """
    if not distributed.is_available() or not distributed.is_initialized():
        return ""
    store = distributed.distributed_c10d._get_default_store()
    try:
        return str(store.compare_set("intus/job", "", uuid.uuid4().hex).decode())
    except (RuntimeError, ValueError):  # of a store that is gone
        return None


def together(ranks: tuple[int, ...], about: str) -> Together | None:
    """Return the agreement of these processes; None if there is no other than this one.

    Args:
        ranks: The processes, by rank.
        about: A text that must be the same in every process.

    Raises:
        InputError: If not every process agrees.
    """
    if not ranks:
        return None
    store = distributed.distributed_c10d._get_default_store()
    _agreements[ranks] += 1
    prefix = f"intus/{'-'.join(map(str, ranks))}/{_agreements[ranks]}"
    return Together(
        distributed.distributed_c10d.PrefixStore(prefix, store), ranks, distributed.get_rank(), about
    )
