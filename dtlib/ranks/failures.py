"""How a program on real ranks ends: it returns, or all ranks and the caller get a ``RankError``."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from dtlib.ranks.communicator import Communicator
from dtlib.ranks.result import Counters
from dtlib.ranks.transport import Transport

__all__ = [
    "Lost",
    "RankError",
    "Report",
    "death",
    "disagreement",
    "perform",
    "stack_frames",
    "write",
]

LONGEST = 2000  # characters of what an error says
PACKAGE = os.path.dirname(__file__)


class RankError(RuntimeError):
    """A run ended because of one rank: ``rank`` says which, ``cause`` what happened to it,
    ``exit_code`` how its process ended (None: it did not), ``traceback`` where it was. It is raised
    on every rank and in the caller; ``results`` is, for the caller, what the ranks that caught it
    still returned (None for the others).
    """

    def __init__(
        self,
        rank: int,
        cause: str,
        exit_code: int | None = None,
        traceback: str = "",
        results: list[Any] | None = None,
    ) -> None:
        super().__init__(rank, cause, exit_code, traceback, results)
        self.rank, self.cause, self.exit_code = rank, cause, exit_code
        self.traceback, self.results = traceback, results

    def __str__(self) -> str:
        where = f"\n\nOn rank {self.rank}:\n{self.traceback.rstrip()}" if self.traceback else ""
        return f"rank {self.rank} {self.cause}{where}"


class Lost(RankError):
    """``rank`` cannot reach another rank; why is known there."""

    def __init__(self, rank: int, said: str) -> None:
        super().__init__(rank, f"lost its connection to another rank ({said})")


def death(exit_code: int, *, asked_for: bool = False) -> str:
    """In words, how a process with this exit code ended (negative: by a signal).

    >>> death(-9)
    'was killed by SIGKILL (exit code -9); if nobody did that, the machine ran out of memory'
    """
    if exit_code >= 0:
        return f"exited in the middle of the run (exit code {exit_code})"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    memory = "; if nobody did that, the machine ran out of memory"
    hint = memory if name == "SIGKILL" and not asked_for else ""
    return f"was killed by {name} (exit code {exit_code}){hint}"


def disagreement(calls: Sequence[str], members: Sequence[int]) -> RankError:
    """The error of ranks that did not all call the same: it names the first unlike most others.

    >>> calls = ["called barrier()", "called split()", "called barrier()"]
    >>> print(disagreement(calls, [0, 1, 2]).cause)  # doctest: +ELLIPSIS
    called split(), but rank 0 called barrier(); all ranks must call the same, ...
    """
    usual = Counter(calls).most_common(1)[0][0]
    odd = next(member for member, call in enumerate(calls) if call != usual)
    return RankError(
        members[odd],
        f"{calls[odd]}, but rank {members[calls.index(usual)]} {usual}; "
        "all ranks must call the same, with the same shape and dtype",
    )


@dataclass
class Report:
    """How the program of ``rank`` ended, as its process tells the caller's.

    ``end`` is "returned"; "failed", because of ``rank`` itself; or "stopped", since the run had
    failed before. ``frames`` and ``text`` are its traceback without source lines, which only the
    caller has where they were typed into a notebook.
    """

    rank: int
    end: str
    value: Any = None
    counters: Counters | None = None
    cause: str = ""
    exit_code: int | None = None
    frames: list[tuple[str, int, str]] = field(default_factory=list)
    text: str = ""
    worn: bool = False  # whether the program left something behind in its process

    @classmethod
    def failed(
        cls, rank: int, cause: str, error: BaseException, exit_code: int | None = None
    ) -> Report:
        """A report on an ``error``, which says what happened in the words of ``cause``."""
        return cls(
            rank,
            "failed",
            cause=_short(cause),
            exit_code=exit_code,
            frames=stack_frames(traceback.extract_tb(error.__traceback__)),
            text=_short(_said(_last_lines, error)),
        )

    @classmethod
    def of_error(cls, rank: int, error: BaseException) -> Report:
        """The report on an error that a program on ``rank`` ended with."""
        if isinstance(error, RankError) and error.results is None:  # of this run: it says all
            report = cls.failed(error.rank, error.cause, error)
            report.text, report.frames = "", report.frames if error.rank == rank else []
            return report
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
            call = f"called sys.exit({_said(repr, error.code)})"
            return cls.failed(
                rank, f"{call} in the middle of the run (exit code {code})", error, code
            )
        return cls.failed(rank, f"raised {type(error).__name__}: {_said(str, error)}", error)

    def error(self) -> RankError:
        """The error for the caller, with the source lines that its traceback shows."""
        shown = self.text
        if self.frames:
            frames = [traceback.FrameSummary(*frame) for frame in self.frames]
            lines = traceback.StackSummary.from_list(frames).format()
            shown = "Traceback (most recent call last):\n" + "".join(lines) + self.text
        return RankError(self.rank, self.cause, self.exit_code, shown)


def perform(
    transport: Transport,
    load: Callable[[], tuple[Callable[..., Any], tuple]],
    failed: Callable[[], bool] = lambda: False,
) -> Report:
    """Run the program that ``load`` gives on this rank, and see that all end together.

    ``failed`` says whether the run has failed elsewhere, so that an error here is its consequence.
    """
    rank, counters = transport.members[transport.rank], transport.counters
    value = None
    try:
        program, arguments = load()
        value = program(Communicator(transport), *arguments)
        _leave(transport)
    except RankError as error:
        report = Report.of_error(rank, error)
        report.end = "stopped" if failed() or isinstance(error, Lost) else "failed"
        report.value = value
        return report
    except BaseException as error:
        return Report.of_error(rank, error)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the program may have closed it
                stream.flush()
    return Report(rank, "returned", value, counters)


def _leave(transport: Transport) -> None:
    """Find out that a rank still wants something of the others, or was sent more than it took."""
    counters = transport.counters
    mine = pickle.dumps((counters.messages_sent, counters.messages_received))
    told = [pickle.loads(entry) for entry in transport.meet("returned from the program", mine)]
    for rank, (_, received) in enumerate(told):
        for source, (sent, _) in enumerate(told):
            if left := sent[rank] - received[source]:
                raise RankError(
                    rank,
                    f"returned without having received {left} message{'s' * (left > 1)} "
                    f"from rank {source}",
                )


def stack_frames(stack: Iterable[traceback.FrameSummary]) -> list[tuple[str, int, str]]:
    """A stack as (file, line, function), without the frames of this package."""
    return [
        (frame.filename, frame.lineno or 0, frame.name)
        for frame in stack
        if not frame.filename.startswith((PACKAGE, "<frozen", "<string>"))
    ]


def write(stream: TextIO | None, text: str) -> None:
    """Write what ranks have printed to a stream that may not know all of its characters."""
    if stream is None:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))


def _said(how: Callable[[Any], str], value: Any) -> str:
    try:
        return how(value)
    except BaseException as error:  # it is the program's own, and may do anything
        return f"<{how.__name__}() of it raised {type(error).__name__}>"


def _last_lines(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text)} characters)"
