"""Many jobs at a time, on threads that a program can leave behind: the first error, or Ctrl-C, ends them all."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

GRACE_S = 3.0
"""How long requests in flight may take to end once there is no more use for them."""

Job = TypeVar("Job")


class Stopped(Exception):
    """This thread is to end: another one's error has been reported, or the program was interrupted."""


def do_all(
    work: Callable[[Job], None],
    jobs: Sequence[Job],
    workers: int,
    stop: threading.Event,
    report: Callable[[int, int], None],
) -> None:
    """`work` for each job, `workers` at a time; `report(done, of)` after each, on the calling thread.

    Raises the first exception that `work` raises. Then, and where this thread is interrupted, `stop` is set, no further
    job is begun, and those begun have GRACE_S to end. The threads are daemons: they cannot hold up the program's end.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    outcomes: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)

    def worker() -> None:
        while not stop.is_set():
            try:
                work(waiting.get_nowait())
            except queue.Empty:
                return
            except BaseException as error:  # it is raised by the caller's thread
                outcomes.put(error)
                return
            outcomes.put(None)

    threads = [threading.Thread(target=worker, daemon=True) for _ in range(min(workers, len(jobs)))]
    try:
        for thread in threads:
            thread.start()
        for done in range(1, len(jobs) + 1):
            if (error := outcomes.get()) is not None:
                raise error
            report(done, len(jobs))
    except BaseException:
        stop.set()
        deadline = time.monotonic() + GRACE_S
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
        raise
