"""Calls a reader's function with a time limit, so that an endless loop does not stop the notebook.

On the main thread of Linux and macOS a timer signal ends the call. Elsewhere it is made in a thread
that is left behind when it is late. This is for honest mistakes and no defense against hostile
code; and a call that stays in C, such as ``sum(range(10**11))``, runs to its end first.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from dtlib.arguments import real_number

__all__ = ["Outcome", "call_within"]

TICK_S = 0.01


class TimeUp(BaseException):
    """Raised in a call that runs too long; ``except Exception`` lets it pass."""


@dataclass
class Outcome:
    """What came of a call: a value or an error, or neither because it was ``timed_out``."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    goes_on: bool = False  # in the background, where it could not be stopped
    printed: bool = False
    replaced: tuple[str, ...] = ()  # builtins that it replaced or deleted, and that are back


class _Sink(io.TextIOBase):  # keeps no output: a flood costs no memory
    written = False

    def write(self, text: str) -> int:
        self.written = True
        return len(text)


def call_within(seconds: float, function: Callable[..., Any], *inputs: Any) -> Outcome:
    """``function(*inputs)`` without its output, stopped after ``seconds``.

    What it raises comes back in the outcome, ``SystemExit`` included; ``KeyboardInterrupt`` passes.

    >>> call_within(1, lambda n: n + 1, 2).value
    3
    """
    real_number("seconds", seconds, unit="s", zero=False, array=False)
    names, sink, came = vars(builtins), _Sink(), Outcome()
    before, after = names.copy(), {}

    def call() -> Any:
        return function(*inputs)

    def work() -> None:
        try:
            came.value = call()
        except BaseException as error:
            came.error = error
        finally:  # before anything else is called: it may need what was replaced
            after.update(names)
            names.update(before)

    on_main = threading.current_thread() is threading.main_thread()
    with contextlib.redirect_stdout(sink):
        if on_main and hasattr(signal, "setitimer"):
            late, goes_on = _late_under_alarm(seconds, work), False
        else:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            thread.join(seconds)
            late = goes_on = thread.is_alive()
    outcome = Outcome(timed_out=True, goes_on=goes_on) if late else came
    after = after or names.copy()
    names.update(before)
    if isinstance(outcome.error, KeyboardInterrupt):
        raise outcome.error
    outcome.replaced = tuple(n for n in before if n not in after or after[n] is not before[n])
    outcome.printed = sink.written
    return outcome


def _late_under_alarm(seconds: float, work: Callable[[], None]) -> bool:
    """Calls ``work``; a timer raises TimeUp in what it calls, and again if that was swallowed.

    A bare ``except:`` in a loop swallows what interrupts a sleep. So TimeUp is also raised by a
    trace some lines later, one more each time, until that falls outside of every ``try``.
    """
    base, tracer, rounds, lines = sys._getframe(), sys.gettrace(), 0, 0

    def ring(signum: int, frame: FrameType | None) -> None:
        nonlocal rounds, lines
        rounds, lines = rounds + 1, (rounds + 1) % 20
        # More time for each round: those lines must be reached on a busy machine too.
        signal.setitimer(signal.ITIMER_REAL, TICK_S * rounds)
        if frame is base or frame.f_code is work.__code__:
            return
        while frame is not base:
            if frame.f_code is not work.__code__:
                frame.f_trace = trace
            frame = frame.f_back
        sys.settrace(trace)
        raise TimeUp

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines -= event == "line"
        if lines < 0:
            raise TimeUp
        return trace

    handler = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.settrace(tracer)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)
    return rounds > 0
