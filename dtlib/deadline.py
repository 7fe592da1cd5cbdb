"""Calls a reader's function with a time limit, so that an endless loop does not stop the notebook.

On the main thread of Linux and macOS a timer signal raises TimeUp in the function, even while it
sleeps, and again after whatever swallowed it. Elsewhere the function runs in a thread of its own
that is told to end once; if it sleeps or swallows that, it goes on in the background.

This is for honest mistakes and no defense against hostile code. A single call that stays in C, such
as ``sum(range(10**11))``, runs to its end first; to stop it earlier, restart the kernel.
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

__all__ = ["Outcome", "TimeUp", "call_within"]

TICK_S = 0.01


class TimeUp(BaseException):
    """Raised in a call that runs too long; ``except Exception`` lets it pass."""


@dataclass
class Outcome:
    """What came of a call: a value or an error, or neither because it was ``timed_out``.

    ``goes_on`` if it could not be stopped, ``printed`` if it wrote to standard output,
    ``replaced`` the names of Python's builtins that it replaced or deleted (they are back).
    """

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    goes_on: bool = False
    printed: bool = False
    replaced: tuple[str, ...] = ()


class _Sink(io.TextIOBase):
    """Standard output that keeps nothing but whether there was any: a flood costs no memory."""

    written = False

    def write(self, text: str) -> int:
        self.written = self.written or bool(text)
        return len(text)


def call_within(seconds: float, function: Callable[..., Any], *inputs: Any) -> Outcome:
    """``function(*inputs)`` without its output, stopped after ``seconds``.

    What it raises comes back in the outcome, ``SystemExit`` included; ``KeyboardInterrupt`` passes.

    >>> call_within(1, lambda n: n + 1, 2).value
    3
    """
    seconds = real_number("seconds", seconds, unit="s", zero=False, array=False)
    on_main = threading.current_thread() is threading.main_thread()
    call = _under_alarm if on_main and hasattr(signal, "setitimer") else _in_thread
    names, sink = vars(builtins), _Sink()
    before, after = names.copy(), {}

    def work() -> Any:
        try:
            return function(*inputs)
        finally:  # before anything else is called: it may need what was replaced
            after.update(names)
            names.update(before)

    with contextlib.redirect_stdout(sink):
        outcome = call(seconds, work)
    after = after or names.copy()  # of a call that goes on
    names.update(before)
    outcome.replaced = tuple(n for n in before if n not in after or after[n] is not before[n])
    outcome.printed = sink.written
    return outcome


class _Alarm:
    """The timer's handler: raises TimeUp in the frames above ``base``, and sets the timer again.

    A bare ``except:`` in a loop swallows what interrupts a sleep. So the same frames are also
    traced, and it is raised once more some lines later, one line later each time, until that
    falls outside of every ``try``. Later alarms leave more time for those lines to be reached.
    """

    def __init__(self, base: FrameType) -> None:
        self.base = base
        self.rounds = self.lines_to_go = 0

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self.rounds += 1
        signal.setitimer(signal.ITIMER_REAL, TICK_S * self.rounds)
        if frame is self.base:
            return
        self.lines_to_go = self.rounds % 20
        while frame is not None and frame is not self.base:
            frame.f_trace = self._trace
            frame = frame.f_back
        sys.settrace(self._trace)
        raise TimeUp

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines_to_go -= 1
            if self.lines_to_go < 0:
                raise TimeUp
        return self._trace


def _under_alarm(seconds: float, work: Callable[[], Any]) -> Outcome:
    alarm, outcome, tracer = _Alarm(sys._getframe()), Outcome(), sys.gettrace()
    handler = signal.signal(signal.SIGALRM, alarm)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        outcome.value = work()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        outcome.error = error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.settrace(tracer)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)
    return Outcome(timed_out=True) if alarm.rounds else outcome


def _in_thread(seconds: float, work: Callable[[], Any]) -> Outcome:
    outcome = Outcome()

    def run() -> None:
        try:
            outcome.value = work()
        except BaseException as error:
            outcome.error = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not thread.is_alive():
        return outcome
    import ctypes  # absent from some builds of Python, and needed by few calls

    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(TimeUp)
    )
    thread.join(50 * TICK_S)
    return Outcome(timed_out=True, goes_on=thread.is_alive())
