"""Calls a learner's function so that nothing it does stops the notebook: endless loops, exits,
floods of output.

On the main thread of Linux and macOS a timer signal ends the call, even while it sleeps; should the
call disarm the timer, a second thread notices. Elsewhere the call runs in a thread that is sent an
exception; a thread that sleeps is left behind and ends when it wakes.

The limit of all this: Python acts on a signal or an exception between two of its own instructions.
A single call that stays in C, such as ``sum(range(10**11))``, runs to its end first, holds up every
thread of the process, and only then is told that it ran too long. To stop it earlier, restart the
kernel.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

__all__ = ["Outcome", "TimeUp", "call_within"]

TICK_S = 0.01
GRACE_S = 0.5
KEPT_CHARACTERS = 1000


class TimeUp(BaseException):
    """Raised inside a call that ran past its deadline; not an Exception, so that ``except
    Exception`` lets it pass.
    """


@dataclass
class Outcome:
    """What came of a call: a value or an error, or neither because it was ``timed_out``; and what
    it printed first.
    """

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    printed: str = ""


class _Beginning(io.TextIOBase):
    """A text stream that keeps only the first characters, so that a flood costs no memory."""

    def __init__(self) -> None:
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text[: KEPT_CHARACTERS - len(self.text)]
        return len(text)


def call_within(seconds: float, function: Callable[..., Any], *inputs: Any) -> Outcome:
    """``function(*inputs)`` with its standard output caught, stopped after ``seconds``.

    Everything the function raises comes back in the outcome, ``SystemExit`` and its own
    ``KeyboardInterrupt`` included. An interrupt by the user passes through.

    >>> call_within(1, lambda n: n + 1, 2)
    Outcome(value=3, error=None, timed_out=False, printed='')
    """
    by_signal = (
        hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    )
    beginning = _Beginning()
    with contextlib.redirect_stdout(beginning):
        outcome = (_call_under_alarm if by_signal else _call_in_thread)(
            seconds, lambda: function(*inputs)
        )
    outcome.printed = beginning.text
    return outcome


class _Alarm:
    """Ends the frames below ``base`` by raising TimeUp in them, again and again; also the timer
    signal's handler.

    A bare ``except:`` in a loop swallows it. So from the second time on it also traces those frames
    and raises once more some lines later, one line later every time, until an attempt falls outside
    every ``try``.
    """

    def __init__(self) -> None:
        self.base: FrameType | None = None
        self.rounds = 0
        self.lines_to_go = 0
        self.off = True

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if not self.off and frame is not self.base:
            self.arm(frame)
            raise TimeUp

    def arm(self, frame: FrameType | None) -> None:
        self.rounds += 1
        if self.rounds == 1:
            return
        self.lines_to_go = (self.rounds - 2) % 20
        while frame is not None and frame is not self.base:
            frame.f_trace = self._trace
            frame = frame.f_back
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.off:
            return None
        if event == "line":
            if self.lines_to_go == 0:
                raise TimeUp
            self.lines_to_go -= 1
        return self._trace


class _Interrupt:
    """The handler of Ctrl-C: notes that the user pressed it, and hands on to the handler before."""

    def __init__(self, previous: Callable[[int, FrameType | None], Any]) -> None:
        self.previous = previous
        self.pressed = False

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self.pressed = True
        self.previous(signum, frame)


@contextlib.contextmanager
def _handlers(alarm: _Alarm, seconds: float):
    """Installs the handlers, and puts everything back as it was: an outer timer goes on where it
    would be.
    """
    previous = signal.getsignal(signal.SIGINT)
    interrupt = _Interrupt(previous if callable(previous) else signal.default_int_handler)
    tracer, started = sys.gettrace(), time.monotonic()
    outer_alarm = signal.signal(signal.SIGALRM, alarm)
    if callable(previous):
        signal.signal(signal.SIGINT, interrupt)
    outer_s, outer_interval_s = signal.setitimer(signal.ITIMER_REAL, seconds, TICK_S)
    try:
        yield interrupt
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.settrace(tracer)
        if callable(previous):
            signal.signal(signal.SIGINT, previous)
        signal.signal(signal.SIGALRM, outer_alarm)
        if outer_s:
            left_s = max(outer_s - (time.monotonic() - started), TICK_S)
            signal.setitimer(signal.ITIMER_REAL, left_s, outer_interval_s)


def _raise_in(thread: int | None, alarm: _Alarm) -> None:
    """Sends TimeUp to the thread of that identity, which raises it at its next instruction."""
    import ctypes  # absent where there are no threads

    class InThread(TimeUp):
        """Python builds the exception in the thread that it is raised in: the place to trace that
        thread.
        """

        def __init__(self) -> None:
            super().__init__()
            alarm.arm(sys._getframe(1))

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(InThread))


class _Watchdog:
    """The second line of defense on the main thread, for a call that stops the timer, or takes or
    blocks its signal.
    """

    def __init__(self, alarm: _Alarm, seconds: float) -> None:
        self.alarm = alarm
        self.patience_s = seconds + GRACE_S
        self.bit = False
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        with contextlib.suppress(RuntimeError):  # no threads, as in a browser
            self.thread.start()

    def _watch(self) -> None:
        main = threading.main_thread().ident
        if self.ended.wait(self.patience_s):
            return
        while not (self.ended.wait(TICK_S) or self.alarm.off):
            self.bit = True
            if signal.getsignal(signal.SIGALRM) is self.alarm:
                signal.pthread_kill(main, signal.SIGALRM)  # wakes a sleeper
            _raise_in(main, self.alarm)

    def end(self) -> None:
        """Returns when nothing more is sent, and takes back what was sent and has not arrived."""
        self.alarm.off = True
        self.ended.set()
        if self.thread.ident:
            self.thread.join()
        if self.bit:
            import ctypes

            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(threading.main_thread().ident), None
            )


def _run(alarm: _Alarm, outcome: Outcome, work: Callable[[], Any]) -> None:
    """Calls ``work`` with the alarm on; its value or its error goes into the outcome."""
    alarm.base = sys._getframe()
    alarm.off = False
    try:
        outcome.value = work()
    except BaseException as error:
        outcome.error = error
    alarm.off = True


def _call_under_alarm(seconds: float, work: Callable[[], Any]) -> Outcome:
    alarm, outcome = _Alarm(), Outcome()
    with _handlers(alarm, seconds) as interrupt:
        watchdog = _Watchdog(alarm, seconds)
        _run(alarm, outcome, work)
        try:
            watchdog.end()
        except TimeUp:  # the last one that was sent arrived only now
            watchdog.end()
    if interrupt.pressed:
        raise KeyboardInterrupt
    return Outcome(timed_out=True) if alarm.rounds else outcome


def _call_in_thread(seconds: float, work: Callable[[], Any]) -> Outcome:
    alarm, outcome = _Alarm(), Outcome()
    worker = threading.Thread(target=_run, args=(alarm, outcome, work), daemon=True)
    try:
        worker.start()
    except RuntimeError:  # no threads, as in a browser: then without a deadline
        _run(alarm, outcome, work)
        return outcome
    try:
        worker.join(seconds)
    finally:
        timed_out = worker.is_alive() and not alarm.off
        if timed_out:
            _stop(worker, alarm)
    return Outcome(timed_out=True) if timed_out else outcome


def _stop(worker: threading.Thread, alarm: _Alarm, ticks: int = 50) -> None:
    """Raises TimeUp in a thread until it ends, or gives up on one that sleeps."""
    for _ in range(ticks):
        if alarm.off:
            return
        _raise_in(worker.ident, alarm)
        worker.join(TICK_S)
