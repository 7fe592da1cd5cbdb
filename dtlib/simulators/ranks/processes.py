"""The operating system's part of a cluster: processes, sockets, pipes and memory, and the end of
all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import dtlib
from dtlib.simulators.ranks.mailbox import open_tickets
from dtlib.simulators.ranks.memory import Memory, create
from dtlib.simulators.ranks.surroundings import search_path, surroundings

__all__ = ["Processes"]

# One rank is one core's worth of work. These must be set before numpy is imported.
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    "1",
)
START = "from dtlib.simulators.ranks.worker import main; main()"
_all: weakref.WeakSet[Processes] = weakref.WeakSet()


class Processes:
    """The operating system's part of a cluster: everything here is gone after ``close``, however it
    was used.
    """

    def __init__(self, ranks: int, region_bytes: int) -> None:
        self.descriptors: list[int] = []
        self.workers: list[subprocess.Popen] = []
        self.controls: list[socket.socket] = []
        self.memory: Memory | None = None
        _all.add(self)
        try:
            self._open(ranks, region_bytes)
        except BaseException:
            self.close()
            raise

    def _open(self, ranks: int, region_bytes: int) -> None:
        memory = self._keep(create(Memory.total_bytes(ranks, region_bytes)))
        self.memory = Memory(memory, ranks, region_bytes)
        inboxes, lock = [self._pipe(os.pipe()) for _ in range(ranks)], self._pipe(os.pipe())
        tickets, lifeline = self._pipe(open_tickets(ranks)), self._pipe(os.pipe())
        self.outboxes, self.lock = [put for _, put in inboxes], lock
        os.write(lock[1], b".")
        for put in self.outboxes:
            os.set_blocking(put, False)
        self.captures = [(self._keep(create(0)), self._keep(create(0))) for _ in range(ranks)]
        shared = [memory, *self.outboxes, *tickets, *lock, lifeline[0]]
        path = os.pathsep.join(
            [os.path.dirname(os.path.dirname(dtlib.__file__)), *filter(None, search_path())]
        )
        environment = (
            os.environ
            | ONE_THREAD
            | {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
        )
        for rank, (inbox, _) in enumerate(inboxes):
            here, there = socket.socketpair()
            self.controls.append(here)
            with there:
                passed = [*shared, inbox, there.fileno()]
                settings = {
                    "rank": rank,
                    "ranks": ranks,
                    "region_bytes": region_bytes,
                    "memory": memory,
                    "inbox": inbox,
                    "outboxes": self.outboxes,
                    "tickets": tickets,
                    "lock": lock,
                    "lifeline": lifeline[0],
                    "control": there.fileno(),
                    "descriptors": passed,
                }
                with _interrupts_later():
                    self.workers.append(
                        subprocess.Popen(
                            [sys.executable, "-P", "-c", START, json.dumps(settings)],
                            pass_fds=passed,
                            env=environment,
                            stdin=subprocess.DEVNULL,
                            stdout=self.captures[rank][0],
                            stderr=self.captures[rank][1],
                            cwd=None if surroundings()["directory"] else "/",
                            start_new_session=True,
                        )
                    )  # Python needs one
        for inbox, _ in inboxes:
            self._drop(inbox)
        self._drop(lifeline[0])

    @property
    def alive(self) -> bool:
        """Whether the processes of all ranks are there."""
        return bool(self.workers) and all(worker.poll() is None for worker in self.workers)

    def printed(self, rank: int, stream: int) -> str:
        """What a rank has written to its standard output (0) or error (1)."""
        capture = self.captures[rank][stream]
        return os.pread(capture, os.fstat(capture).st_size, 0).decode("utf-8", errors="replace")

    def forget_printed(self) -> None:
        for capture in (capture for captures in self.captures for capture in captures):
            os.ftruncate(capture, 0)
            os.lseek(capture, 0, os.SEEK_SET)  # the position is shared with the process that writes

    def exit_code(self, rank: int) -> int:
        """How the process of a rank ended, once its connection has; it is made sure that it does."""
        worker = self.workers[rank]
        until = time.monotonic() + 0.1
        while worker.poll() is None:
            if time.monotonic() > until:
                worker.kill()
                return worker.wait()
            time.sleep(0.0005)
        return worker.returncode

    def close(self) -> None:
        """Kill what lives and close everything. Calling it again is harmless."""
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(
                    worker.pid, signal.SIGKILL
                )  # what it has started too; it leads a session of its own
            if worker.poll() is None:
                worker.kill()
        for control in self.controls:
            control.close()
        for worker in self.workers:
            worker.wait()
        while self.descriptors:
            os.close(self.descriptors.pop())
        if self.memory is not None:
            self.memory.close()
        self.workers, self.controls, self.memory = [], [], None

    def abandon(self) -> None:
        """Let go of everything, in a process that was forked from the owner's: as long as it held
        an end of the connections, the ranks could not tell that the owner is gone.
        """
        for worker in self.workers:
            worker.returncode = 0  # not a child of this process, which cannot wait for it
        for control in self.controls:
            control.close()
        while self.descriptors:
            os.close(self.descriptors.pop())
        self.workers, self.controls = [], []

    def _keep(self, descriptor: int) -> int:
        self.descriptors.append(descriptor)
        return descriptor

    def _pipe(self, ends: tuple[int, int]) -> tuple[int, int]:
        self.descriptors.extend(ends)
        return ends

    def _drop(self, descriptor: int) -> None:
        self.descriptors.remove(descriptor)
        os.close(descriptor)


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Put off an interrupt of this block: amid the start of a process it would leave one that
    nobody knows of.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is None
    ):
        yield  # no interrupt arrives here, or somebody else than Python deals with it
        return
    came: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if came:
            signal.raise_signal(signal.SIGINT)


def _abandon_all() -> None:
    for processes in list(_all):
        processes.abandon()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no ranks but may import this
    os.register_at_fork(after_in_child=_abandon_all)
