"""Checks of a function: it is called on copies of several inputs, and what it returns is judged."""

from __future__ import annotations

import copy
import dis
import inspect
import linecache
import math
import reprlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtlib.deadline import Outcome, call_within
from dtlib.teaching.answers import MOST_ITEMS, Endless, plain, verdict_within
from dtlib.teaching.number import close, not_a_number, slip
from dtlib.teaching.verdict import NOT_ATTEMPTED, Verdict, hint, passed

__all__ = ["FunctionCheck"]

MOST_SHOWN = 40  # characters of a result that a judge has words for
NEAR = 0.01
CLOSE = "Close, and not exact: look for what is rounded, left out, or drawn at random."
RANDOM = (
    "A second call with the same inputs returned something else. Compute the exact value, "
    "without random numbers."
)

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 12
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 120


def _shown(value: Any) -> str:
    try:
        text = " ".join(_SHORT.repr(value).split())
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 160 else text[:157] + "..."


def _result(function: Callable[..., Any], *inputs: Any) -> Any:
    """What it returns, made plain while its deadline runs: a generator does its work only when
    asked.
    """
    return plain(function(*inputs))


def _is_stub(answer: Any) -> bool:
    """Whether the body of a function is only ``...``, ``pass`` or a docstring, so that all it does
    is return None.
    """
    if not inspect.isfunction(answer):
        return False
    return all(
        step.opname in ("RESUME", "NOP", "RETURN_VALUE")
        or (step.opname in ("LOAD_CONST", "RETURN_CONST") and step.argval is None)
        for step in dis.get_instructions(answer)
    )


def _same(a: Any, b: Any, rtol: float = 0.0) -> bool:
    """Whether plain values agree in structure and shape, numbers within ``rtol``; a tuple may stand
    for a list.

    Only values of one type are asked whether they are equal: a class of the learner's own has no
    say in it.
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            return False
        if a.dtype.kind in "iufc" and b.dtype.kind in "iufc":
            return bool(np.allclose(a, b, rtol=rtol, atol=0, equal_nan=True))
        return _same(plain(a.tolist()), plain(b.tolist()), rtol)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(*pair, rtol) for pair in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key], rtol) for key in a)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return _near(a, b, rtol)
    return type(a) is type(b) and bool(a == b)


def _near(a: float, b: float, rtol: float) -> bool:
    try:
        return a == b or math.isclose(a, b, rel_tol=rtol) or (a != a and b != b)
    except OverflowError:  # a whole number too large for a float
        return False


def _kind(value: Any) -> str:
    for types, name in (
        (bool, "a truth value"),
        ((int, float), "a number"),
        (str, "a text"),
        (dict, "a dict"),
        ((list, tuple), "a list"),
        (set, "a set"),
        (type(None), "None"),
        (np.ndarray, "an array"),
    ):
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


def _place(error: BaseException, function: Any) -> str:
    """The learner's line at which ``error`` came up."""
    code = getattr(inspect.unwrap(function), "__code__", None) or getattr(
        type(function).__call__, "__code__", None
    )
    frames = [
        frame
        for frame in traceback.walk_tb(error.__traceback__)
        if code and frame[0].f_code.co_filename == code.co_filename
    ]
    if not frames:
        return ""
    frame, line = frames[-1]
    source = linecache.getline(frame.f_code.co_filename, line).strip()
    return f" in line {line}" + (f": {source}" if source else "")


def _error_hint(error: BaseException, function: Any, call: str) -> str:
    place = _place(error, function)
    if isinstance(error, SystemExit):
        return f"{call} called exit(){place}. Return the value; the notebook goes on."
    if isinstance(error, RecursionError):
        return (
            f"{call} called itself without end (RecursionError){place}. Is there a case that "
            "ends it?"
        )
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{call} raised {text}{place or ', outside of your own lines'}"


def _equal(result: Any, expected: Any, rtol: float) -> bool:
    return _kind(result) == _kind(expected) and _same(result, expected, rtol)


def _difference(result: Any, expected: Any, rtol: float, unit: str) -> str:
    """What is wrong with a result, without what would be right."""
    if _kind(result) != _kind(expected):
        return f"That is {_kind(result)}, and {_kind(expected)} is asked."
    if isinstance(expected, np.ndarray) and result.shape != expected.shape:
        return f"An array of shape {result.shape} does not have the shape asked for."
    if isinstance(expected, (list, tuple, dict, set)) and len(result) != len(expected):
        return "It has too " + ("many items." if len(result) > len(expected) else "few items.")
    if isinstance(expected, (list, tuple)):
        first = next(
            i for i, pair in enumerate(zip(result, expected, strict=True)) if not _same(*pair, rtol)
        )
        return f"The first wrong item is at index {first}."
    if _kind(expected) == "a number":
        if isinstance(expected, int) and abs(result - expected) == 1:
            return "Off by one: decide whether the first, the last or the rank itself counts."
        return not_a_number(result) or (
            CLOSE if close(result, expected, NEAR) else slip(result, expected, unit)
        )
    return "That is not right. Work this input out by hand and compare."


@dataclass(frozen=True)
class FunctionCheck:
    """A check of a function, by calling it.

    reference    the right function: what it returns on a case is what is asked cases        tuples
    of inputs, each passed on as a deep copy; put in the inputs on which naive ideas fail mistakes
    pairs of a wrong function and the hint for whoever returns the same as it does judge
    instead of comparing: ``judge(result, *inputs)`` returns a hint, or None if the result is right
    unit         of the number returned, if it has one: its slips get their hints rtol
    relative tolerance of numbers seconds      the deadline of one call, and of judging what it
    returned explanation  shown after the pass

    >>> check = FunctionCheck(lambda n: n - 1, cases=((1,), (8,)), mistakes=((lambda n: n, "It failed."),))
    >>> check(lambda n: n - 1), check(lambda n: n)
    (✓ Pass, → Hint: <lambda>(1) returned 1. It failed.)
    """

    reference: Callable[..., Any]
    cases: tuple[tuple[Any, ...], ...]
    mistakes: tuple[tuple[Callable[..., Any], str], ...] = ()
    judge: Callable[..., str | None] | None = None
    unit: str = ""
    rtol: float = 1e-6
    seconds: float = 2.0
    explanation: str = ""

    def __call__(self, answer: Any) -> Verdict:
        for inputs in self.cases:
            # Room for the call, a second one and the judge, which have their own deadlines, and for
            # all the rest.
            verdict = verdict_within(4 * self.seconds, self._on_case, answer, inputs)
            if not verdict.passed:
                return verdict
        return passed(self.explanation)

    def _on_case(self, answer: Any, inputs: tuple[Any, ...]) -> Verdict:
        if answer is ... or _is_stub(answer):
            return NOT_ATTEMPTED
        if not callable(answer):
            return hint("Hand in the function itself: its name, without parentheses after it.")
        call = f"{getattr(answer, '__name__', type(answer).__name__)}({', '.join(map(_shown, inputs))})"
        problem = _refuses(answer, inputs)
        if problem:
            return hint(problem)
        given, before, again = (copy.deepcopy(inputs) for _ in range(3))
        before = plain(before)
        comparable = _same(plain(again), before)  # an object without == differs from its own copy
        outcome = call_within(self.seconds, _result, answer, *given)
        if _not_written(outcome):
            return NOT_ATTEMPTED
        problem = self._failure(outcome, answer, call)
        if problem is None and comparable and not _same(plain(given), before):
            problem = (
                f"{call} changed its input. Work on a copy: whoever called still needs the "
                "original."
            )
        if problem is None:
            found = self._fault(outcome.value, inputs)
            if found and self._varies(answer, inputs, outcome.value):
                found = RANDOM
            problem = found and self._said(call, outcome.value, found)
        return hint(problem) if problem else passed()

    def _said(self, call: str, result: Any, found: str) -> str:
        shown = _shown(result)
        if self.judge and len(shown) > MOST_SHOWN:
            return f"{call}: {found}"
        return f"{call} returned {shown}. {found}"

    def _varies(self, answer: Callable[..., Any], inputs: tuple[Any, ...], result: Any) -> bool:
        """Whether a number comes out differently when the function is called again."""
        if _kind(result) != "a number":
            return False
        again = call_within(self.seconds, _result, answer, *copy.deepcopy(inputs))
        return again.error is None and not again.timed_out and not _same(again.value, result)

    def _failure(self, outcome: Outcome, answer: Any, call: str) -> str | None:
        """The hint for a call that returned no value to judge."""
        if outcome.timed_out:
            return (
                f"{call} ran longer than {self.seconds:g} s and was stopped. Does every loop "
                "come to its end?"
            )
        if isinstance(outcome.error, Endless):
            return (
                f"{call} yielded more than {MOST_ITEMS:,} items and was stopped. Does every "
                "loop come to its end?"
            )
        if outcome.error is not None:
            return _error_hint(outcome.error, answer, call)
        if inspect.iscoroutine(outcome.value):
            outcome.value.close()
            return f"{call} returned a coroutine: write def, without async."
        if outcome.value is None:
            return (
                f"{call} printed something and returned None: use return in place of print."
                if outcome.printed
                else f"{call} returned None: is there a return on every way through the function?"
            )
        return None

    def _fault(self, result: Any, inputs: tuple[Any, ...]) -> str | None:
        """The hint for a result that is not right."""
        fault = self._judged(result, inputs) if self.judge else self._compared(result, inputs)
        if fault is None:
            return None
        for wrong, text in self.mistakes:
            naive = call_within(self.seconds, _result, wrong, *copy.deepcopy(inputs))
            if naive.error is None and _equal(result, naive.value, self.rtol):
                return text
        return fault

    def _judged(self, result: Any, inputs: tuple[Any, ...]) -> str | None:
        judged = call_within(self.seconds, self.judge, result, *copy.deepcopy(inputs))
        if judged.timed_out:
            return "It is too large to be judged."
        return judged.value if judged.error is None else f"It cannot be read: {judged.error}"

    def _compared(self, result: Any, inputs: tuple[Any, ...]) -> str | None:
        expected = _result(self.reference, *copy.deepcopy(inputs))
        return (
            None
            if _equal(result, expected, self.rtol)
            else _difference(result, expected, self.rtol, self.unit)
        )


def _not_written(outcome: Outcome) -> bool:
    """Whether the call met a ``...`` that was to be replaced: returned, yielded first, or computed
    with.
    """
    error, value = outcome.error, outcome.value
    if isinstance(error, NotImplementedError) or (
        isinstance(error, TypeError) and "ellipsis" in str(error).lower()
    ):
        return True
    return value is ... or (isinstance(value, (list, tuple)) and bool(value) and value[0] is ...)


def _refuses(answer: Callable[..., Any], inputs: tuple[Any, ...]) -> str | None:
    """The hint for a function that does not take as many inputs as it is given."""
    try:
        inspect.signature(answer).bind(*inputs)
    except TypeError as error:
        return (
            f"The check calls your function with {len(inputs)} inputs, and its definition does "
            f"not fit: {error}."
        )
    except ValueError:  # a built-in function without a signature
        return None
    return None
