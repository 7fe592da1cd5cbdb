"""``run`` for everyday use: it keeps the processes of the last few clusters, so that the next run
starts at once.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from dtlib.arguments import choice, whole_number
from dtlib.network import Network
from dtlib.simulators.ranks.cluster import Cluster
from dtlib.simulators.ranks.result import Result

__all__ = ["ENGINES", "run", "shutdown"]

KEPT = 3  # clusters of different sizes
_pool: dict[int, Cluster] = {}
_users: Counter[Cluster] = Counter()
_lock = threading.RLock()


def run(
    program: Callable[..., Any],
    ranks: int = 4,
    engine: str = "local",
    args: Iterable[Any] = (),
    *,
    network: Network | None = None,
    deadline_s: float | None = 60.0,
) -> Result:
    """Run ``program(comm, *args)`` on ``ranks`` ranks; what each returned, by rank, with the
    account of the run.

    ``engine`` is "local", for processes of this machine; or "mpi" or "torch", which can use more
    than one: see the modules ``mpi`` and ``torch_dist``. Under mpiexec or torchrun those take the
    ranks that there are, instead of ``ranks`` new ones.

    On this machine the processes are kept for the next run, and with them what a program has
    changed in them and the modules it has imported: after you edit a module, ``shutdown()``, so
    that the next run imports it anew.

    >>> run(lambda comm: int(comm.all_reduce(comm.rank)), ranks=3)
    [3, 3, 3]
    """
    return ENGINES[choice("engine", engine, ENGINES)](
        program, whole_number("ranks", ranks), args, network, deadline_s
    )


def shutdown() -> None:
    """End the processes that ``run`` keeps, and the runs they are in."""
    with _lock:
        while _pool:
            _pool.popitem()[1].close()


def _local(
    program: Callable[..., Any],
    ranks: int,
    args: Iterable[Any],
    network: Network | None,
    deadline_s: float | None,
) -> Result:
    with _lock:
        cluster = _pool.pop(ranks, None)
        if cluster is None or not cluster.mine:
            cluster = Cluster(ranks)
        unused = [size for size, kept in _pool.items() if not _users[kept]]
        for size in unused[: max(0, len(_pool) - KEPT + 1)]:
            _pool.pop(size).close()
        _pool[ranks] = cluster  # the last one used is the last one to go
        _users[cluster] += 1
    try:
        return cluster.run(program, args, network=network, deadline_s=deadline_s)
    finally:
        _users[cluster] -= 1
        if not _users[cluster]:
            del _users[cluster]


def _of(module: str) -> Callable[..., Result]:
    """The engine in a module that is not imported before it is used."""
    return lambda *run: import_module(f"dtlib.simulators.ranks.{module}").run(*run)


ENGINES = {"local": _local, "mpi": _of("mpi"), "torch": _of("torch_dist")}
atexit.register(shutdown)


def _forget() -> None:
    """A forked process starts without the clusters of its parent, one of whose threads may have
    held the lock.
    """
    global _lock
    _lock = threading.RLock()
    _pool.clear()
    _users.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no ranks but may import this
    os.register_at_fork(after_in_child=_forget)
