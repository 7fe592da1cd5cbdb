"""``run`` for everyday use: any engine, and on this machine processes that are kept for the next
run.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from dtlib.arguments import choice, whole_number
from dtlib.network import Network
from dtlib.ranks.local.cluster import Cluster, check_run
from dtlib.ranks.result import Result

__all__ = ["ENGINES", "run", "shutdown"]

KEPT = 3  # clusters of different sizes
_Key = tuple[int, int, int | None]  # the process that made it, ranks, memory_bytes
_kept: dict[_Key, Cluster] = {}
_busy: list[Cluster] = []
_lock = threading.Lock()


def run(
    program: Callable[..., Any],
    ranks: int = 4,
    engine: str = "local",
    args: Sequence[Any] = (),
    *,
    network: Network | None = None,
    deadline_s: float | None = 60.0,
    memory_bytes: int | None = None,
) -> Result:
    """Run ``program(comm, *args)`` on ``ranks`` ranks; what each returned, by rank.

    ``engine`` is "local", for processes of this machine, of which each may use ``memory_bytes`` of
    shared memory; or "mpi" or "torch", which can use more than one machine: see the modules in
    ``dtlib.ranks.distributed``. Under mpiexec or torchrun those take the ranks that there are.

    On this machine the processes are kept for the next run, and with them the modules that a
    program has imported: after you edit a module, ``shutdown()``.

    >>> run(lambda comm: int(comm.all_reduce(comm.rank)), ranks=3)
    [3, 3, 3]
    """
    choice("engine", engine, ENGINES)
    ranks = whole_number("ranks", ranks)
    if memory_bytes is not None:
        memory_bytes = whole_number("memory_bytes", memory_bytes)
    program, args = check_run(program, args, network, deadline_s, ranks)
    if engine == "local":
        return _run_here(program, args, ranks, network, deadline_s, memory_bytes)
    if network is not None or memory_bytes is not None:
        raise ValueError(
            f"network and memory_bytes are for engine 'local', not {engine!r}, which has what "
            f"there is: got network={network!r}, memory_bytes={memory_bytes!r}"
        )
    return import_module(f"dtlib.ranks.distributed.{engine}").run(program, args, ranks, deadline_s)


ENGINES = ("local", "mpi", "torch")


def shutdown() -> None:
    """End the processes that ``run`` keeps, and the runs they are in."""
    with _lock:
        clusters = [cluster for (owner, *_), cluster in _kept.items() if owner == os.getpid()]
        _kept.clear()
    for cluster in clusters:
        cluster.close()


atexit.register(shutdown)


def _run_here(
    program: Callable[..., Any],
    args: tuple[Any, ...],
    ranks: int,
    network: Network | None,
    deadline_s: float | None,
    memory_bytes: int | None,
) -> Result:
    key = os.getpid(), ranks, memory_bytes
    with _lock:
        cluster = _kept.pop(key, None) or Cluster(ranks, memory_bytes=memory_bytes)
        idle = [other for other, kept in _kept.items() if kept not in _busy]
        for other in idle[: max(0, len(_kept) - KEPT + 1)]:  # the one used last goes last
            _kept.pop(other).close()
        _kept[key] = cluster
        _busy.append(cluster)
    try:
        return cluster.run(program, args, network=network, deadline_s=deadline_s)
    finally:
        _busy.remove(cluster)
