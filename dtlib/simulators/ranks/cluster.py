"""The caller's side: hands programs to the processes of the ranks, and notices what happens to
them.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from dtlib.arguments import real_number, whole_number
from dtlib.network import Network
from dtlib.simulators.ranks import frames
from dtlib.simulators.ranks.errors import RankError, death
from dtlib.simulators.ranks.mailbox import WAKE, unread
from dtlib.simulators.ranks.meeting import SLOTS_BYTES
from dtlib.simulators.ranks.memory import PAGE, default_region_bytes
from dtlib.simulators.ranks.processes import Processes
from dtlib.simulators.ranks.report import failed, shown, write
from dtlib.simulators.ranks.result import Result
from dtlib.simulators.ranks.surroundings import surroundings
from dtlib.simulators.ranks.throttle import forget_bookings
from dtlib.simulators.ranks.wires import HINTS, MAX_RANKS, STATES, WAITING, post_failure

__all__ = ["Cluster"]

GRACE_S = 0.4  # for ranks to hear of a failure and say what they were doing
TICK_S = 0.1
STUCK_S = 0.3  # when all ranks have slept for so long and no message is on its way, maybe none will ever wake
CONFIRMED = 2  # times in a row that they must show that they are not just slow to wake
LONGEST_S = 1e6  # that a socket can be told to wait
PACKAGE = os.path.dirname(__file__)


class Cluster:
    """``ranks`` processes that wait for programs, kept between runs. It is a context manager, or
    ends with ``close``.

    ``memory_bytes`` is how much shared memory each rank may use at most. After a run that failed,
    the next one gets new processes.
    """

    def __init__(self, ranks: int = 4, *, memory_bytes: int | None = None) -> None:
        self.ranks = whole_number("ranks", ranks, at_most=MAX_RANKS)
        if sys.platform in ("win32", "emscripten", "wasi"):
            raise OSError(
                "real ranks are processes that share memory, which needs Linux or macOS, not "
                f"{sys.platform}: "
                "on Windows use WSL; anywhere, dtlib.simulators.execute runs the same schedules in "
                "one process"
            )
        memory_bytes = (
            default_region_bytes(self.ranks)
            if memory_bytes is None
            else whole_number("memory_bytes", memory_bytes, at_least=PAGE)
        )
        self.region_bytes = SLOTS_BYTES + -(-memory_bytes // PAGE) * PAGE
        self._owner, self._closed, self._lock = os.getpid(), False, threading.RLock()
        self._finalizer: weakref.finalize | None = None
        self._runner: int | None = None  # the thread that is in the middle of a run
        self._start()

    def run(
        self,
        program: Callable[..., Any],
        args: Iterable[Any] = (),
        *,
        network: Network | None = None,
        deadline_s: float | None = 60.0,
    ) -> Result:
        """Run ``program(comm, *args)`` on every rank, within ``deadline_s`` (None: any time).

        A described ``network`` is imposed on everything the ranks send, so that it takes as long as
        it would there. What the ranks print is printed here when the run is over, in the order of
        the ranks. If anything happens to any of them, the run ends everywhere with a ``RankError``.
        """
        if not callable(program):
            raise TypeError(f"program must be a function program(comm, ...), got {program!r}")
        if network is not None and not isinstance(network, Network):
            raise TypeError(f"network must be a Network, got {network!r}")
        if deadline_s is not None:
            real_number("deadline_s", deadline_s, unit="s", zero=False, array=False)
        if not self.mine:
            raise RuntimeError(
                "this Cluster belongs to the process that made it, and this one was forked from it"
            )
        packed = frames.pack((program, tuple(args)))
        with self._lock:  # runs from several threads take turns
            if (
                self._runner is not None
            ):  # in this same thread, which a signal or the collection of garbage has interrupted
                raise RuntimeError(
                    "this Cluster is in the middle of a run: one that a signal handler starts "
                    "needs its own"
                )
            try:
                self._runner = threading.get_ident()
                return self._run(packed, network, deadline_s)
            finally:
                self._runner = None
                if self._closed:  # in the middle of it
                    self._close()

    def _run(
        self, program: frames.Parts, network: Network | None, deadline_s: float | None
    ) -> Result:
        start_s = time.perf_counter()
        orders = [frames.pack(surroundings() | {"network": network, "start_s": start_s}), program]
        if self._closed:
            raise RuntimeError("this Cluster is closed")
        if not self.processes.alive:  # the last run failed, or somebody has killed a rank since
            self._close()
            self._start()
        if self._closed:
            raise RuntimeError("this Cluster was closed in the middle of a run")
        finished = False
        try:
            watch = Watch(self.processes, orders, deadline_s)
            error = watch.until_over()
            output = [self.processes.printed(rank, 0) for rank in range(self.ranks)]
            warnings = [self.processes.printed(rank, 1) for rank in range(self.ranks)]
            finished = error is None
        finally:
            if not finished:
                self._close()
        write(sys.stdout, "".join(output))
        write(sys.stderr, "".join(warnings) if error is None else "")
        if error is not None and self._closed:
            raise RuntimeError("this Cluster was closed in the middle of a run") from error
        if error is not None:
            raise error
        return Result(watch.reports, output, time.perf_counter() - start_s)

    def kill(self, rank: int) -> None:
        """Kill the process of ``rank``, as a failing machine would; a run that is under way ends
        with a ``RankError``.
        """
        rank = whole_number("rank", rank, at_least=0, at_most=self.ranks - 1)
        if self.processes.workers:
            self.processes.workers[rank].kill()

    def close(self) -> None:
        """End the processes, and with them a run that is under way."""
        if (
            not self.mine
        ):  # a forked process has none of it, and the thread that may hold the lock is not in it
            return
        self._closed = True
        if (
            self._runner is not None
        ):  # whose run must not lose what it is waiting on: it ends, and then closes all
            for worker in self.processes.workers:
                worker.kill()
        if self._runner != threading.get_ident():
            with self._lock:
                self._close()
                self._finalizer.detach()

    def _close(self) -> None:
        try:
            self.processes.close()
        except (
            KeyboardInterrupt
        ):  # a second one, while the first is dealt with: nothing is to be left even so
            self.processes.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def mine(self) -> bool:
        """Whether this process made it; a process that was forked from that one must not use it."""
        return self._owner == os.getpid()

    def _start(self) -> None:
        self.processes = Processes(self.ranks, self.region_bytes)
        if self._finalizer is not None:  # of processes that have been closed
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _close_in_owner, self.processes, self._owner)


class Watch:
    """One run, from the orders to the reports."""

    def __init__(
        self, processes: Processes, orders: list[frames.Parts], deadline_s: float | None
    ) -> None:
        self.processes, self.ranks = processes, len(processes.workers)
        self.start_s = time.perf_counter()
        self.deadline_s = deadline_s
        self.reports: list[dict[str, Any] | None] = [None] * self.ranks
        self.pending = set(range(self.ranks))
        self.error: RankError | None = None
        self.over_s = float("inf") if deadline_s is None else self.start_s + deadline_s
        self._too_late = f"did not finish within {deadline_s} s (deadline_s)"
        self._asleep: tuple[bytes, float] = (b"", 0.0)
        self._confirmed = 0
        processes.forget_printed()
        forget_bookings(processes.memory)
        for rank, control in enumerate(processes.controls):
            control.settimeout(None if deadline_s is None else min(deadline_s, LONGEST_S))
            try:
                for parts in orders:
                    frames.send(control, parts)
            except TimeoutError:
                self._late(self._too_late)
            except (BrokenPipeError, ConnectionResetError):
                self._died(rank)

    def until_over(self) -> RankError | None:
        """Collect the reports; the error that the run ended with, if any."""
        poll = select.poll()
        ranks = {control.fileno(): rank for rank, control in enumerate(self.processes.controls)}
        for descriptor in ranks:
            poll.register(descriptor, select.POLLIN)
        while self.pending:
            left_s = self.over_s - time.perf_counter()
            heard = poll.poll(max(0.0, min(left_s, TICK_S)) * 1000)
            for descriptor, _ in heard:
                if ranks[descriptor] in self.pending:
                    self._hear(ranks[descriptor])
                poll.unregister(descriptor)
            if (
                not heard
            ):  # something that a rank has started may hold its connection even when it is dead
                for rank in [
                    rank for rank in self.pending if self.processes.workers[rank].poll() is not None
                ]:
                    self._died(rank)
            if self.pending and time.perf_counter() >= self.over_s:
                if self.error is not None:
                    break
                self._late(self._too_late)
            elif self.pending and self.error is None and self._all_stuck():
                self._late("waits for ever, and so do all others")
        if self.error is not None:
            self.error.results = [report and report.get("value") for report in self.reports]
        return self.error

    def _hear(self, rank: int) -> None:
        try:
            parts = frames.receive(self.processes.controls[rank])
        except EOFError:
            self._died(rank)
            return
        except TimeoutError:
            self._late(self._too_late)
            return
        self.pending.discard(rank)
        try:
            report = self.reports[rank] = frames.unpack(parts)
        except Exception as error:
            report = failed(
                rank, "returned something that cannot be unpickled by its caller", error
            )
        if report["end"] == "failed":
            self._fail(
                RankError(report["rank"], report["cause"], report["exit_code"], shown(report))
            )

    def _died(self, rank: int) -> None:
        self.pending.discard(rank)
        code = self.processes.exit_code(rank)
        self._fail(RankError(rank, death(code), code, _without_us(self.processes.printed(rank, 1))))

    def _fail(self, error: RankError) -> None:
        """The first failure is the one that is reported; all ranks are told, and given a moment."""
        if self.error is not None:
            return
        self.error = error
        self.over_s = time.perf_counter() + GRACE_S
        post_failure(self.processes.memory, error)
        for descriptor in (*self.processes.outboxes, self.processes.lock[1]):
            self._wake(descriptor)

    def _wake(self, descriptor: int) -> None:
        with contextlib.suppress(
            BlockingIOError, BrokenPipeError
        ):  # full: not asleep; broken: dead
            os.write(descriptor, WAKE)

    def _late(self, cause: str) -> None:
        """End the run because of the first rank that is busy with something else than waiting for
        others.
        """
        states = self._states()
        late = next(
            (rank for rank in sorted(self.pending) if states[rank] < WAITING), min(self.pending)
        )
        self.processes.workers[late].send_signal(signal.SIGUSR1)  # it writes down where it is
        time.sleep(0.05)
        doing = "; ".join(
            f"rank {rank} {self._doing(rank, states[rank])}" for rank in range(self.ranks)
        )
        self._fail(
            RankError(late, f"{cause}: {doing}", None, _without_us(self.processes.printed(late, 1)))
        )

    def _doing(self, rank: int, state: int) -> str:
        if rank not in self.pending:
            return "had finished"
        if state < WAITING:
            return "was busy"
        return "waited for all" if state - WAITING == rank else f"waited for rank {state - WAITING}"

    def _all_stuck(self) -> bool:
        """Whether every rank has been waiting, for the same one, for a long time, and no message is
        on its way.

        A rank whose other threads keep it from running may have a message that it has not looked
        at. So each one is woken and must go back to sleep, which takes its hint away, before it
        counts.
        """
        states, now = self._states(), time.perf_counter()
        if (
            states != self._asleep[0]
            or min(states[rank] for rank in self.pending) < WAITING
            or any(map(unread, self.processes.outboxes))
        ):
            self._asleep, self._confirmed = (states, now), 0
        if now - self._asleep[1] <= STUCK_S:
            return False
        hints = self.processes.memory.map
        if self._confirmed and any(hints[HINTS + rank] for rank in self.pending):
            return False
        if self._confirmed > CONFIRMED:
            return True
        self._confirmed += 1
        for rank in self.pending:
            hints[HINTS + rank] = 1
            self._wake(self.processes.outboxes[rank])
        return False

    def _states(self) -> bytes:
        return self.processes.memory.map[STATES : STATES + self.ranks]


def _without_us(text: str) -> str:
    """A stack that faulthandler wrote, without the lines of this package and with those of the
    source.
    """
    lines = []
    for line in text.splitlines(keepends=True):
        place = re.match(r'  File "(.*)", line (\d+) in ', line)
        if not place or not place[1].startswith((PACKAGE, "<string>")):
            source = linecache.getline(place[1], int(place[2])).strip() if place else ""
            lines += [line, f"    {source}\n"] if source else [line]
    return "".join(lines)


def _close_in_owner(processes: Processes, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked from it
        processes.close()
