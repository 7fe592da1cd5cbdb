"""The caller's side: hands programs to the processes of the ranks, and sees what happens to them.

``Cluster`` is what the course's notebooks use; ``processes`` is the operating system's part of it.
"""

from __future__ import annotations

import linecache
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dtlib.arguments import real_number, shown, whole_number
from dtlib.network import Network
from dtlib.ranks import serialization
from dtlib.ranks.failures import PACKAGE, RankError, Report, death, write
from dtlib.ranks.local.processes import Workers
from dtlib.ranks.local.shared_memory import (
    ALL,
    BUSY,
    MAX_RANKS,
    MOST_TIERS,
    PAGE,
    default_region_bytes,
)
from dtlib.ranks.local.synchronization import SLOTS_BYTES
from dtlib.ranks.result import Result
from dtlib.ranks.surroundings import here

if TYPE_CHECKING:  # multiprocessing is not everywhere that this is imported
    from multiprocessing.connection import Connection

__all__ = ["Cluster", "check_run"]

TICK_S = 0.1  # how often the caller looks whether the ranks still get on
STUCK_S = 0.2  # between two looks at ranks that all wait
GRACE_S = 0.4  # for ranks to hear of a failure and say what they were doing
BACKSTOP_S = 5.0  # after the deadline of a run, all is ended by force
LONGEST_S = 1e7


def check_run(
    program: Any, args: Any, network: Any, deadline_s: Any, ranks: int
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The program and its arguments, once everything about a run has been checked."""
    if not callable(program):
        raise TypeError(f"program must be a function program(comm, ...), got {shown(program)}")
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args must be a tuple of arguments, such as (5,), got {shown(args)}")
    if network is not None and not isinstance(network, Network):
        raise TypeError(f"network must be a Network, got {shown(network)}")
    if network is not None and len(network.tiers) > MOST_TIERS:
        raise ValueError(f"network must have at most {MOST_TIERS} tiers, got {len(network.tiers)}")
    if network is not None and network.members is not None:
        if len(network.members) != ranks:
            raise ValueError(
                f"network must have a place for each of the {ranks} ranks, got {network.members}"
            )
        whole_number("members of network", max(network.members), at_least=0, at_most=MAX_RANKS - 1)
    if deadline_s is not None:
        real_number("deadline_s", deadline_s, unit="s", zero=False, array=False)
    return program, tuple(args)


class Cluster:
    """``ranks`` processes that wait for programs, kept between runs. It is a context manager.

    ``memory_bytes`` is how much shared memory each rank may use at most. After a run that failed,
    or that left threads or open files behind, the next one gets new processes.
    """

    def __init__(self, ranks: int = 4, *, memory_bytes: int | None = None) -> None:
        self.ranks = whole_number("ranks", ranks, at_most=MAX_RANKS)
        if sys.platform in ("win32", "emscripten", "wasi"):
            raise OSError(
                "real ranks are processes that share memory, which needs Linux or macOS, not "
                f"{sys.platform}: on Windows use WSL; anywhere, dtlib.simulators.execute runs the "
                "same schedules in one process"
            )
        if memory_bytes is None:
            memory_bytes = default_region_bytes(self.ranks)
        memory_bytes = whole_number("memory_bytes", memory_bytes, at_least=PAGE)
        self._region_bytes = SLOTS_BYTES + -(-memory_bytes // PAGE) * PAGE
        self._lock, self._closed, self._killed = threading.RLock(), False, set()
        self._running = False
        self._workers: Workers | None = None
        self._renew()

    def run(
        self,
        program: Callable[..., Any],
        args: Sequence[Any] = (),
        *,
        network: Network | None = None,
        deadline_s: float | None = 60.0,
    ) -> Result:
        """Run ``program(comm, *args)`` on every rank, within ``deadline_s`` (None: any time).

        A described ``network`` is imposed on everything the ranks send, so that it takes as long as
        it would there. What the ranks print is printed here when the run is over, in the order of
        the ranks. If anything happens to any of them, the run ends everywhere with a ``RankError``.
        """
        order = serialization.pack(check_run(program, args, network, deadline_s, self.ranks))
        with self._lock:  # runs from several threads take turns
            if self._running:  # in this thread, which a signal has interrupted
                raise RuntimeError("this Cluster is in the middle of a run: another needs its own")
            if self._closed:
                raise RuntimeError("this Cluster is closed")
            self._killed, self._running, fine = set(), True, False
            try:
                if not self._workers.fit:
                    self._renew()
                result = _Run(self._workers, self._killed).carry_out(order, network, deadline_s)
                fine = True
                return result
            except Exception as error:
                if self._closed:  # meanwhile, from another thread
                    text = "this Cluster was closed in the middle of a run"
                    raise RuntimeError(text) from error
                raise
            finally:
                self._running = False
                if not fine or self._closed:
                    self._workers.close()

    def kill(self, rank: int) -> None:
        """Kill the process of ``rank``, as a failing machine would; a run under way ends with a
        ``RankError``.
        """
        rank = whole_number("rank", rank, at_least=0, at_most=self.ranks - 1)
        self._killed.add(rank)
        self._workers.kill(rank)

    def close(self) -> None:
        """End the processes, and with them a run that is under way."""
        self._closed = True
        for rank in range(self.ranks):
            self._workers.kill(rank)
        with self._lock:
            self._workers.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _renew(self) -> None:
        if self._workers is not None:
            self._workers.close()
        self._workers = Workers(self.ranks, self._region_bytes)


class _Run:
    """One run, from the orders to the reports."""

    def __init__(self, workers: Workers, killed: set[int]) -> None:
        self._workers, self._ranks, self._killed = workers, len(workers.controls), killed
        self._waiting = dict(zip(workers.controls, range(self._ranks), strict=True))
        self._reports: dict[int, Report] = {}
        self._error: RankError | None = None
        self._snapshot, self._looked_s = b"", 0.0

    def carry_out(
        self, order: list[Any], network: Network | None, deadline_s: float | None
    ) -> Result:
        """The result of the run; or a ``RankError``."""
        workers, began_s = self._workers, time.perf_counter()
        workers.forget_last_run()
        limit_s = min(BACKSTOP_S + (deadline_s or LONGEST_S), LONGEST_S)
        orders = {
            "surroundings": here(),
            "network": network,
            "began_s": began_s,
            "limit_s": limit_s,
        }
        # Nothing below waits longer than this: with the processes go the connections to them.
        backstop = threading.Timer(limit_s, workers.kill_all)
        backstop.daemon = True
        backstop.start()
        try:
            for rank, control in enumerate(workers.controls):
                try:
                    serialization.send(control, serialization.pack(orders))
                    serialization.send(control, order)
                except OSError:
                    self._died(rank)
            self._watch(None if deadline_s is None else began_s + deadline_s, deadline_s)
        finally:
            backstop.cancel()
        time_s = time.perf_counter() - began_s
        output = [workers.printed(rank, 0) for rank in range(self._ranks)]
        write(sys.stdout, "".join(output))
        reports = [self._reports.get(rank) for rank in range(self._ranks)]
        if self._error is not None:
            self._error.results = [report and report.value for report in reports]
            try:
                raise self._error
            finally:
                self._error = None  # or the two refer to each other, and the memory stays
        write(sys.stderr, "".join(workers.printed(rank, 1) for rank in range(self._ranks)))
        workers.worn = any(report.worn for report in reports)
        values, counters = [r.value for r in reports], [r.counters for r in reports]
        return Result(values, counters, output, time_s)

    def _watch(self, over_s: float | None, deadline_s: float | None) -> None:
        """Wait for the reports of all ranks, or after a failure for those that come soon."""
        from multiprocessing.connection import wait

        while self._waiting:
            for control in wait(list(self._waiting), TICK_S):
                self._hear(control)
            for control, rank in list(self._waiting.items()):
                if not self._workers.alive(rank):  # its own children may hold its connection open
                    del self._waiting[control]
                    self._died(rank)
            now_s = time.perf_counter()
            if self._error is not None:
                if now_s >= self._until_s:
                    return
            elif over_s is not None and now_s >= over_s:
                self._late(f"did not finish within {deadline_s:g} s (deadline_s)")
            elif self._waiting and self._stuck():
                self._late("waits for ever, and so do all others")

    def _hear(self, control: Connection) -> None:
        rank = self._waiting[control]
        try:
            parts = serialization.receive(control)
        except (EOFError, OSError):
            del self._waiting[control]
            self._died(rank)
            return
        del self._waiting[control]
        try:
            report = serialization.unpack(parts)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever the program has put into it
            report = Report.failed(rank, "returned what its caller cannot unpickle", error)
        self._reports[rank] = report
        if report.end == "failed":
            self._fail(report.error())

    def _died(self, rank: int) -> None:
        code = self._workers.exit_code(rank)
        cause = "closed its connection to the caller"
        if code is not None:
            cause = death(code, asked_for=rank in self._killed)
        self._fail(RankError(rank, cause, code, _without_us(self._workers.printed(rank, 1))))

    def _late(self, cause: str) -> None:
        """End the run because of the first rank that is busy with something else than waiting."""
        pending = sorted(self._waiting.values())
        state = self._workers.memory.header["state"]
        late = next((rank for rank in pending if state[rank] == BUSY), pending[0])
        doing = "; ".join(
            f"rank {rank} {self._doing(rank, state[rank])}" for rank in range(self._ranks)
        )
        self._workers.ask_where(late)
        where = _without_us(self._workers.printed(late, 1))
        self._fail(RankError(late, f"{cause}: {doing}", None, where))

    def _doing(self, rank: int, state: int) -> str:
        if rank in self._reports:
            return "had finished"
        if state < ALL:
            return "was busy"
        return "waited for all" if state == ALL else f"waited for rank {state}"

    def _stuck(self) -> bool:
        """Whether all ranks wait and no message is on its way, now and some time ago."""
        now_s, header = time.perf_counter(), self._workers.memory.header
        if now_s < self._looked_s + STUCK_S:
            return False
        snapshot = b"".join(header[name].tobytes() for name in ("state", "posted", "taken"))
        unchanged, self._snapshot, self._looked_s = snapshot == self._snapshot, snapshot, now_s
        waits = all(header["state"][rank] >= ALL for rank in self._waiting.values())
        return unchanged and waits and header["posted"].sum() == header["taken"].sum()

    def _fail(self, error: RankError) -> None:
        """The first failure is the one that is reported; all ranks are told, and given a moment."""
        if self._error is None:
            self._error = error
            self._until_s = time.perf_counter() + GRACE_S
            self._workers.memory.post_failure(error)
            self._workers.wake_all()


def _without_us(text: str) -> str:
    """A stack that faulthandler wrote, without this package's lines, with those of the source."""
    lines = []
    for line in text.splitlines(keepends=True):
        place = re.match(r'  File "(.*)", line (\d+) in ', line)
        if not place or not place[1].startswith((PACKAGE, "<string>")):
            source = linecache.getline(place[1], int(place[2])).strip() if place else ""
            lines += [line, f"    {source}\n"] if source else [line]
    return "".join(lines)
