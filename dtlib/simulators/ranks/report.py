"""How a rank's program ended, as one process tells another."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from dtlib.simulators.ranks.errors import RankError

__all__ = ["ended", "failed", "flush", "frames_of", "shown", "write"]

LONGEST = 2000  # characters of what an error says


def ended(rank: int, error: BaseException) -> dict[str, Any]:
    """The report on an error that a program on ``rank`` ended with."""
    if isinstance(error, RankError):  # it says all there is to say
        return failed(error.rank, error.cause, error) | {"text": ""}
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        call = f"called sys.exit({_said(repr, error.code)})"
        return failed(rank, f"{call} in the middle of the run (exit code {code})", error, code)
    return failed(rank, f"raised {type(error).__name__}: {_said(str, error)}", error)


def failed(
    rank: int, cause: str, error: BaseException, exit_code: int | None = None
) -> dict[str, Any]:
    return {
        "end": "failed",
        "rank": rank,
        "cause": _short(cause),
        "exit_code": exit_code,
        "frames": frames_of(traceback.extract_tb(error.__traceback__)),
        "text": _short("".join(traceback.format_exception_only(error))),
    }


def frames_of(stack: Iterable[traceback.FrameSummary]) -> list[tuple[str, int, str]]:
    """A stack without this package. The caller adds the source lines: it knows the cells."""
    return [
        (frame.filename, frame.lineno or 0, frame.name)
        for frame in stack
        if os.path.dirname(frame.filename) != os.path.dirname(__file__)
    ]


def shown(report: dict[str, Any]) -> str:
    """A traceback with the source lines, which only the caller knows if they were typed into a
    notebook.
    """
    if not report["frames"]:
        return report["text"]
    summary = traceback.StackSummary.from_list(
        [traceback.FrameSummary(*frame) for frame in report["frames"]]
    )
    return "Traceback (most recent call last):\n" + "".join(summary.format()) + report["text"]


def flush() -> None:
    """Write out what was printed, as far as the program has left something to print to."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def write(stream: TextIO | None, text: str) -> None:
    """Write what ranks have printed, to a stream that may not know all of its characters."""
    if stream is None:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))


def _said(how: Callable[[Any], str], value: Any) -> str:
    try:
        return how(value)
    except Exception as error:
        return f"<{how.__name__}() of it raised {type(error).__name__}>"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text)} characters)"
