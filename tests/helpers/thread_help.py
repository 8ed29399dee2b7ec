"""Calls from several threads at a time."""

import threading


def run_in_threads(work, count):
    """Call a function with each number below ``count``, on a thread of its own, and wait until all return."""
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a call did not return"
