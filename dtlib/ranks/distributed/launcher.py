"""Starts ranks that pass messages on this machine, and brings home what they have to say.

Caller and ranks share a directory. The caller leaves the order there; each rank leaves what it
prints, its process number, and its report. Whatever happens, the caller ends all that it started.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dtlib.ranks import serialization
from dtlib.ranks.distributed.transport import ALL, LibraryTransport
from dtlib.ranks.failures import RankError, Report, death, perform, stack_frames, write
from dtlib.ranks.result import Result
from dtlib.ranks.surroundings import ONE_THREAD, enter, here, python_path

__all__ = ["Command", "demand", "join", "launch", "perform_in_time", "serve"]

START_S = 60.0  # for all ranks to be there
GRACE_S = 1.0  # for other ranks to say how they are, once one has failed
TICK_S = 0.01
Command = tuple[list[str], dict[str, str]]  # what to run, and what to add to its environment


def demand(engine: str, module: str, packages: str) -> None:
    """Find out that a library is missing before a run begins."""
    if find_spec(module) is None:
        raise ImportError(f"engine {engine!r} needs {module}: pip install {packages}")


def launch(
    commands: list[Command],
    ranks: int,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    deadline_s: float | None,
) -> Result:
    """The ranks' results of ``commands``, whose last argument is to be the run's directory."""
    order = {
        "surroundings": here(),
        "program": serialization.dumps((program, args)),
        "deadline_s": deadline_s,
        "caller": os.getpid(),
    }
    start_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ranks", ignore_cleanup_errors=True) as name:
        run = _Launched(Path(name), ranks)
        (run.directory / "order").write_bytes(pickle.dumps(order))
        try:
            run.start(commands)
            run.wait(deadline_s)
        finally:
            run.close()
        error = run.error()
        output = [run.read(f"out.{rank}") for rank in range(ranks)]
        warnings = [run.read(f"err.{rank}") for rank in range(ranks)]
    write(sys.stdout, "".join(output))
    reports = [run.reports.get(rank) for rank in range(ranks)]
    if error is not None:
        error.results = [report and report.value for report in reports]
        raise error
    write(sys.stderr, "".join(warnings))
    values, counters = [r.value for r in reports], [r.counters for r in reports]
    return Result(values, counters, output, time.perf_counter() - start_s)


class _Launched:
    """The processes of one run, and their reports by rank."""

    def __init__(self, directory: Path, ranks: int) -> None:
        self.directory, self.ranks = directory, ranks
        self.reports: dict[int, Report] = {}
        self._times_s: dict[int, float] = {}
        self._processes: list[subprocess.Popen] = []
        self._gone: dict[int, int | None] = {}  # who ended first, without a report; exit codes

    def start(self, commands: list[Command]) -> None:
        environment = os.environ | ONE_THREAD
        environment |= {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}
        environment["PYTHONPATH"] = python_path()
        with open(self.directory / "said", "w") as said:
            for command, more in commands:
                self._processes.append(
                    subprocess.Popen(
                        [*command, str(self.directory)],
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        cwd=here()["directory"] or "/",
                        start_new_session=True,
                        env=environment | more,
                    )
                )

    def wait(self, deadline_s: float | None) -> None:
        """Collect the reports until all are here, or nothing more is to be expected."""
        over_s = time.monotonic() + START_S + (deadline_s or threading.TIMEOUT_MAX - START_S)
        while len(self.reports) < self.ranks and time.monotonic() < over_s:
            gone = {rank: _end_of(pid) for rank, pid in self._pids().items() if not _alive(pid)}
            self._collect()
            if not self._gone:
                self._gone = {rank: gone[rank] for rank in gone if rank not in self.reports}
            failed = any(report.end != "returned" for report in self.reports.values())
            if failed or self._gone:
                over_s = min(over_s, time.monotonic() + GRACE_S)
            if all(process.poll() is not None for process in self._processes):
                break
            time.sleep(TICK_S)
        self._collect()

    def close(self) -> None:
        """End what still runs: what was started, and the ranks themselves."""
        fine = all(
            r in self.reports and self.reports[r].end == "returned" for r in range(self.ranks)
        )
        until_s = time.monotonic() + (5.0 if fine else 0.5)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until_s - time.monotonic()))
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid in self._pids().values():  # a launcher may have put them into groups of their own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for name in self.directory.glob("shared.*"):  # what a library leaves when it is aborted
            for path in name.read_text().split():
                Path(path).unlink(missing_ok=True)

    def error(self) -> RankError | None:
        """What the run failed with: the first thing that went wrong, not what came of it."""
        if error := self._first("failed"):
            return error
        for rank, code in self._gone.items():
            cause = "ended in the middle of the run" if code is None else death(code)
            if others := sorted(set(self._gone) - {rank}):  # a launcher may end them all at once
                cause += f"; so did ranks {others}, and nobody says which one was the first"
            return RankError(rank, cause, code, self.read(f"err.{rank}"))
        if error := self._first("late"):  # those that waited for one that is gone are late too
            return error
        if len(self.reports) < self.ranks:
            silent = min(set(range(self.ranks)) - set(self.reports))
            cause = "did not report" if silent in self._pids() else "did not start"
            return RankError(silent, cause, None, self.read("said"))
        return self._first("stopped")

    def _first(self, end: str) -> RankError | None:
        """The first report of this kind, as an error."""
        ranks = [rank for rank in self.reports if self.reports[rank].end == end]
        if not ranks:
            return None
        return self.reports[min(ranks, key=lambda rank: self._times_s[rank])].error()

    def read(self, name: str) -> str:
        try:
            return (self.directory / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def _pids(self) -> dict[int, int]:
        files = self.directory.glob("pid.*[0-9]")
        return {int(file.suffix[1:]): int(file.read_text()) for file in files}

    def _collect(self) -> None:
        for rank in range(self.ranks):
            file = self.directory / f"report.{rank}"
            if rank in self.reports or not file.exists():
                continue
            try:
                self._times_s[rank], data = pickle.loads(file.read_bytes())
                self.reports[rank] = serialization.loads(data)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever the program has put into it
                cause = "returned what its caller cannot unpickle"
                self.reports[rank] = Report.failed(rank, cause, error)
                self._times_s.setdefault(rank, time.monotonic())


def serve(
    rank: int,
    connect: Callable[[Path, float | None], LibraryTransport],
    end: Callable[[int], None],
) -> None:
    """Be rank ``rank`` of a launched run. ``connect`` joins the other ranks; ``end`` ends them."""
    directory = Path(sys.argv[-1])
    for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        with open(directory / f"{name}.{rank}", "wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    _put(directory / f"pid.{rank}", str(os.getpid()).encode())
    order = pickle.loads((directory / "order").read_bytes())
    threading.Thread(target=_end_with, args=(order["caller"], directory), daemon=True).start()
    enter(order["surroundings"], environment=False)  # it has been started in that, and more
    transport = connect(directory, order["deadline_s"])

    def late(report: Report) -> None:
        _leave_report(directory, rank, report)
        time.sleep(GRACE_S)
        end(1)

    report = perform_in_time(
        transport, lambda: serialization.loads(order["program"]), order["deadline_s"], late
    )
    _leave_report(directory, rank, report)
    if report.end != "returned":
        end(report.exit_code or 1)
    transport.close()


def perform_in_time(
    transport: LibraryTransport,
    load: Callable[[], tuple[Callable[..., Any], tuple]],
    deadline_s: float | None,
    late: Callable[[Report], None],
) -> Report:
    """``perform``; but after ``deadline_s``, ``late`` is called with a report, in a thread."""
    transport.exchange(b"")  # the run begins when all are here
    transport.counters.began_s = time.perf_counter()
    main, rank = threading.get_ident(), transport.members[transport.rank]

    def too_late() -> None:
        peer = transport.doing["waits_for"]
        doing = "was busy" if peer is None else "waited"
        doing += "" if peer is None else " for all" if peer == ALL else f" for rank {peer}"
        cause = f"did not finish within {deadline_s:g} s (deadline_s): it {doing}"
        frames = stack_frames(traceback.extract_stack(sys._current_frames()[main]))
        late(Report(rank, "failed" if peer is None else "late", cause=cause, frames=frames))

    timer = None
    if deadline_s is not None:
        timer = threading.Timer(min(deadline_s, threading.TIMEOUT_MAX), too_late)
        timer.daemon = True
        timer.start()
    try:
        return perform(transport, load)
    finally:
        if timer is not None:
            timer.cancel()


def join(transport: LibraryTransport, report: Report, start_s: float) -> Result:
    """The result of a run that has ended well on every rank, on every rank."""
    reports = [
        serialization.loads(entry) for entry in transport.exchange(serialization.dumps(report))
    ]
    transport.close()
    values, counters = [r.value for r in reports], [r.counters for r in reports]
    return Result(values, counters, [""] * len(reports), time.perf_counter() - start_s)


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended is there until its parent asks how."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _end_of(pid: int) -> int | None:
    """The exit code of an ended process, as long as Linux has it (the last field of its stat)."""
    with contextlib.suppress(OSError, ValueError):
        status = int(Path(f"/proc/{pid}/stat").read_text().split()[-1])
        return os.waitstatus_to_exitcode(status)
    return None


def _end_with(caller: int, directory: Path) -> None:
    """End this process when the caller's is gone, and remove what that cannot remove any more."""
    while _alive(caller):
        time.sleep(0.5)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


def _leave_report(directory: Path, rank: int, report: Report) -> None:
    try:
        data = serialization.dumps(report)
    except Exception as error:
        cause = "returned something that cannot be pickled"
        data = serialization.dumps(Report.failed(report.rank, cause, error))
    _put(directory / f"report.{rank}", pickle.dumps((time.monotonic(), data)))


def _put(file: Path, data: bytes) -> None:
    """Write a file that its reader sees whole or not at all."""
    new = file.with_name("new." + file.name)
    new.write_bytes(data)
    new.replace(file)
