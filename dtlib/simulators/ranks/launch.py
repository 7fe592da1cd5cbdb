"""Starts ranks that pass messages on this machine, and brings home what they have to say.

Caller and ranks share a directory, in which each rank leaves its report. A rank is two processes:
the one that was started watches the one that works, so that its end is known, with its exit code,
whatever started it.
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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dtlib.simulators.ranks.errors import RankError, death
from dtlib.simulators.ranks.frames import dumps
from dtlib.simulators.ranks.member import GRACE_S, fail, perform
from dtlib.simulators.ranks.messages import Link
from dtlib.simulators.ranks.processes import ONE_THREAD
from dtlib.simulators.ranks.report import failed, write
from dtlib.simulators.ranks.result import Result
from dtlib.simulators.ranks.surroundings import enter, search_path, surroundings

__all__ = ["Command", "launch", "serve"]

START_S = 60.0  # for all ranks to be there
LEAVE_S = 5.0  # for processes that are done, or killed, to be gone
TICK_S = 0.01
WATCH_S = 0.1
Command = tuple[list[str], dict[str, str]]


def launch(
    commands: list[Command],
    ranks: int,
    program: Callable[..., Any],
    args: Iterable[Any],
    deadline_s: float | None,
) -> Result:
    """Start the ``commands``, each with what it adds to the environment; the result of ``program``
    on the ranks.

    The directory of the run is the last argument of every command.
    """
    import fcntl

    order = surroundings() | {"program": dumps((program, tuple(args))), "deadline_s": deadline_s}
    start_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ranks", ignore_cleanup_errors=True) as name:
        run = Launched(Path(name), ranks)
        (run.directory / "order").write_bytes(pickle.dumps(order))
        with open(run.directory / "lifeline", "w") as lifeline:
            fcntl.flock(lifeline, fcntl.LOCK_EX)  # until this process ends, however it does
            try:
                run.start(commands)
                error = run.until_over(None if deadline_s is None else deadline_s + START_S)
            finally:
                run.close()
        output, warnings = (
            [run.printed(rank, stream) for rank in range(ranks)] for stream in ("out", "err")
        )
    write(sys.stdout, "".join(output))
    write(sys.stderr, "".join(warnings) if error is None else "")
    if error is not None:
        error.results = [run.reports.get(rank, {}).get("value") for rank in range(ranks)]
        raise error
    return Result(
        [run.reports[rank] for rank in range(ranks)], output, time.perf_counter() - start_s
    )


class Launched:
    """The processes of one run, and their reports by rank."""

    def __init__(self, directory: Path, ranks: int) -> None:
        self.directory, self.ranks = directory, ranks
        self.reports: dict[int, dict[str, Any]] = {}
        self.processes: list[subprocess.Popen] = []

    def start(self, commands: list[Command]) -> None:
        path = os.pathsep.join(filter(None, search_path()))
        with open(self.directory / "start", "w") as said:
            for command, environment in commands:
                self.processes.append(
                    subprocess.Popen(
                        [*command, str(self.directory)],
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        cwd=None if surroundings()["directory"] else "/",
                        start_new_session=True,
                        env=os.environ
                        | ONE_THREAD
                        | {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
                        | environment,
                    )
                )

    def until_over(self, limit_s: float | None) -> RankError | None:
        """Collect the reports; the error that the run ended with, if any."""
        began = time.monotonic()
        over = float("inf") if limit_s is None else began + limit_s
        troubled = False
        while len(self.reports) < self.ranks and time.monotonic() < over:
            ended = all(process.poll() is not None for process in self.processes)
            self._collect()
            if not troubled and any(
                report["end"] != "returned" for report in self.reports.values()
            ):
                troubled, over = True, min(over, time.monotonic() + GRACE_S)
            if ended:
                break
            if not self._pids() and time.monotonic() > began + START_S:
                break
            time.sleep(TICK_S)
        bad = [report for report in self.reports.values() if report["end"] != "returned"]
        if bad:
            return self._error(bad)
        if len(self.reports) < self.ranks:
            return self._silence()
        return None

    def printed(self, rank: int, stream: str) -> str:
        """What a rank has written to its standard output ("out") or error ("err")."""
        try:
            return (self.directory / f"{stream}.{rank}").read_text(
                encoding="utf-8", errors="replace"
            )
        except FileNotFoundError:
            return ""

    def close(self) -> None:
        """End what still runs: what was started, and then the ranks themselves."""
        well = len(self.reports) == self.ranks and all(
            report["end"] == "returned" for report in self.reports.values()
        )
        self._wait(LEAVE_S if well else 0.0)
        for process in self.processes:
            process.terminate()
        self._wait(GRACE_S)
        for process in self.processes:
            process.kill()
        self._wait(LEAVE_S)
        until = time.monotonic() + LEAVE_S
        for pid in self._pids():
            while _alive(pid) and time.monotonic() < until:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                time.sleep(TICK_S)

    def _wait(self, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))

    def _pids(self) -> list[int]:
        return [int(file.read_text()) for file in self.directory.glob("pid.*[0-9]")]

    def _collect(self) -> None:
        for rank in range(self.ranks):
            file = self.directory / f"report.{rank}"
            if rank not in self.reports and file.exists():
                try:
                    self.reports[rank] = pickle.loads(file.read_bytes())
                except Exception as error:
                    self.reports[rank] = failed(
                        rank, "returned something that cannot be unpickled by its caller", error
                    ) | {"time_s": time.monotonic(), "value": None}

    def _error(self, bad: list[dict[str, Any]]) -> RankError:
        """The first thing that went wrong: what others lost by it, or were late for, does not
        count.
        """
        first = min(bad, key=lambda report: (report["end"] == "lost", report["time_s"]))
        if first["end"] == "late":
            late = sorted(
                (report for report in bad if report["end"] == "late"),
                key=lambda report: report["rank"],
            )
            doing = "; ".join(f"rank {report['rank']} {report['doing']}" for report in late)
            first = next((report for report in late if report["doing"] == "was busy"), late[0])
            first = first | {"end": "failed", "cause": f"{first['cause']}: {doing}"}
        if first["end"] == "died":
            first = first | {"text": self.printed(first["rank"], "err")}
        return fail(first)

    def _silence(self) -> RankError:
        said = (self.directory / "start").read_text(errors="replace")
        codes = [process.returncode for process in self.processes if process.returncode]
        missing = min(set(range(self.ranks)) - set(self.reports))
        return RankError(
            missing,
            "did not report" if self._pids() else "did not start",
            codes[0] if codes else None,
            said,
        )


def serve(
    rank: int, connect: Callable[[Path, float | None], Link], end: Callable[[int], None]
) -> None:
    """Be rank ``rank`` of a launched run. ``connect`` joins the other ranks, and ``end`` ends all
    of them.
    """
    directory = Path(sys.argv[-1])
    for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        with open(directory / f"{name}.{rank}", "wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    watcher = os.getpid()
    child = os.fork()
    if child:
        _replace(directory / f"pid.{rank}", str(child).encode())
        sys.exit(_guard(child, directory, rank))
    threading.Thread(target=_die_with, args=(watcher, directory), daemon=True).start()
    order = pickle.loads((directory / "order").read_bytes())
    enter(order)

    def late(report: dict[str, Any]) -> None:
        _write(directory, rank, report)
        time.sleep(GRACE_S)
        end(1)

    link = connect(directory, order["deadline_s"])
    world, report = perform(link, *_loaded(order), order["deadline_s"], late)
    _write(directory, rank, report)
    if report["end"] != "returned":
        end(report["exit_code"] or 1)
    world.close()


def _loaded(order: dict[str, Any]) -> tuple[Callable[..., Any], tuple]:
    """The program and its arguments; one that raises what went wrong, if they cannot be had."""
    try:
        return pickle.loads(order["program"])
    except Exception as error:
        problem = error

    def program(_: object) -> None:
        raise problem

    return program, ()


def _guard(child: int, directory: Path, rank: int) -> int:
    """Wait for the process that works; its exit code, and a report if it left none."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not (directory / f"report.{rank}").exists():
        _write(
            directory,
            rank,
            {
                "end": "died",
                "rank": rank,
                "cause": death(code),
                "exit_code": code,
                "frames": [],
                "text": "",
                "value": None,
            },
        )
        return code if code > 0 else 1
    return max(code, 0)


def _die_with(watcher: int, directory: Path) -> None:
    """End this process when the one that watches it is gone, or the caller."""
    import fcntl

    with open(directory / "lifeline") as lifeline:
        while os.getppid() == watcher:
            try:
                fcntl.flock(lifeline, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(WATCH_S)
                continue
            shutil.rmtree(directory, ignore_errors=True)
            break
    os._exit(1)


def _write(directory: Path, rank: int, report: dict[str, Any]) -> None:
    report = report | {"time_s": time.monotonic()}
    try:
        data = dumps(report)
    except Exception as error:
        report = failed(rank, "returned something that cannot be pickled", error) | {
            "time_s": report["time_s"],
            "value": None,
        }
        data = dumps(report)
    _replace(directory / f"report.{rank}", data)


def _replace(file: Path, data: bytes) -> None:
    new = file.with_name(file.name + ".new")
    new.write_bytes(data)
    new.replace(file)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
