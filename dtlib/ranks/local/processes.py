"""The operating system's part of a cluster: processes, connections and memory, and their end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from typing import TYPE_CHECKING

from dtlib.ranks.local.mailbox import WAKE
from dtlib.ranks.local.shared_memory import BUSY, SharedMemory
from dtlib.ranks.surroundings import ONE_THREAD, here, python_path

if TYPE_CHECKING:  # multiprocessing is not everywhere that this is imported
    from multiprocessing.connection import Connection

__all__ = ["Workers"]

START = "from dtlib.ranks.local.worker import main; main()"


class Workers:
    """The processes of a cluster, with their memory and connections: all gone after ``close``."""

    def __init__(self, ranks: int, region_bytes: int) -> None:
        self.owner, self.worn = os.getpid(), False
        self.memory: SharedMemory | None = None
        self.controls: list[Connection] = []
        self._processes: list[subprocess.Popen] = []
        self._descriptors: list[int] = []
        self._finalizer = weakref.finalize(
            self, _close, self.owner, self._processes, self.controls, self._descriptors
        )
        try:
            self._start(ranks, region_bytes)
        except OSError as error:
            self.close()
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise OSError(
                    f"{ranks} ranks need {10 + 6 * ranks} open files, and this process may not "
                    "open so many more (ulimit -n): raise the limit, or pass fewer ranks"
                ) from None
            raise
        except BaseException:
            self.close()
            raise

    def _start(self, ranks: int, region_bytes: int) -> None:
        from multiprocessing import Pipe

        self.memory = SharedMemory(ranks, region_bytes)
        self._descriptors.append(self.memory.descriptor)
        pipes = []
        for _ in range(ranks):
            pipes.append(os.pipe())
            self._descriptors.extend(pipes[-1])
        self._outboxes = [put for _, put in pipes]
        for put in self._outboxes:
            os.set_blocking(put, False)
        self._printed = [[self._file(), self._file()] for _ in range(ranks)]
        environment = (
            os.environ
            | ONE_THREAD
            | {
                "PYTHONIOENCODING": "utf-8",
                "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": python_path(),
            }
        )
        for rank, (inbox, _) in enumerate(pipes):
            control, there = Pipe()
            self.controls.append(control)
            passed = [self.memory.descriptor, inbox, *self._outboxes, there.fileno()]
            settings = {
                "rank": rank,
                "ranks": ranks,
                "region_bytes": region_bytes,
                "memory": self.memory.descriptor,
                "inbox": inbox,
                "outboxes": self._outboxes,
                "control": there.fileno(),
                "caller": os.getpid(),
                "descriptors": passed,
            }
            with there:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-c", START, json.dumps(settings)],
                        pass_fds=passed,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=self._printed[rank][0],
                        stderr=self._printed[rank][1],
                        cwd=here()["directory"] or "/",  # Python does not start without one
                        start_new_session=True,
                    )
                )

    @property
    def fit(self) -> bool:
        """Whether the next run can have them."""
        all_alive = bool(self._processes) and all(map(self.alive, range(len(self._processes))))
        return all_alive and not self.worn

    def alive(self, rank: int) -> bool:
        return self._processes[rank].poll() is None

    def kill(self, rank: int) -> None:
        """Kill a rank, and what it has started; it leads a session of its own."""
        if rank < len(self._processes) and self.owner == os.getpid():
            _kill(self._processes[rank])

    def kill_all(self) -> None:
        for rank in range(len(self._processes)):
            self.kill(rank)

    def exit_code(self, rank: int) -> int | None:
        """How the process of a rank ended whose connection has; None if it had to be ended here."""
        try:
            return self._processes[rank].wait(0.2)
        except subprocess.TimeoutExpired:
            self.kill(rank)
            self._processes[rank].wait()
            return None

    def forget_last_run(self) -> None:
        """Clear what was printed, and the network's bookings."""
        for capture in (capture for captures in self._printed for capture in captures):
            os.ftruncate(capture, 0)
            os.lseek(capture, 0, os.SEEK_SET)  # the position is shared with the process that writes
        header = self.memory.header
        header["card_free_s"] = 0
        header["state"] = BUSY

    def printed(self, rank: int, stream: int) -> str:
        """What a rank has written to its standard output (0) or error (1)."""
        capture = self._printed[rank][stream]
        size = os.fstat(capture).st_size
        return os.pread(capture, size, 0).decode("utf-8", errors="replace")

    def ask_where(self, rank: int) -> None:
        """Have a rank write to its standard error where its program is."""
        self._processes[rank].send_signal(signal.SIGUSR1)
        time.sleep(0.05)

    def wake_all(self) -> None:
        """Have every rank that sleeps look whether the run has failed."""
        for outbox in self._outboxes:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):  # awake, or dead
                os.write(outbox, WAKE)

    def close(self) -> None:
        """Kill what lives and close everything. Calling it again is harmless."""
        self._finalizer()
        if self.memory is not None:
            self.memory.close()

    def _file(self) -> int:
        self._descriptors.append(SharedMemory.create(0))
        return self._descriptors[-1]


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _close(
    owner: int,
    processes: list[subprocess.Popen],
    controls: list[Connection],
    descriptors: list[int],
) -> None:
    """The end of ``Workers``; a process that was forked from their owner only lets go of them."""
    for process in processes:
        if owner == os.getpid():
            _kill(process)
            process.wait()
        process.returncode = process.returncode or 0  # in a fork: not its child to wait for
    processes.clear()  # whose numbers may be others' from now on
    for control in controls:
        control.close()
    while descriptors:
        os.close(descriptors.pop())
