"""Checks of a function: it is called on copies of several inputs, and what it returns is judged."""

from __future__ import annotations

import copy
import dis
import inspect
import linecache
import reprlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtlib.deadline import Outcome, call_within
from dtlib.teaching.answers import MOST_ITEMS, Endless, plain
from dtlib.teaching.number import not_a_number, wrong_number
from dtlib.teaching.verdict import NOT_ATTEMPTED, Verdict, hint, passed
from dtlib.tolerance import is_right

__all__ = ["FunctionCheck"]

ROUNDING = 1e-6  # what the order of additions may change: nobody rounds what a function returns
NEAR = 0.01
MOST_SHOWN = 40  # characters of a result that a judge has words for
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
    """What it returns, made plain within its time limit: a generator works only when asked."""
    return plain(function(*inputs))


def _is_stub(answer: Any) -> bool:
    """Whether the body of a function is only ``...``, ``pass`` or a docstring."""
    return inspect.isfunction(answer) and all(
        step.opname in ("RESUME", "NOP", "RETURN_VALUE")
        or (step.opname in ("LOAD_CONST", "RETURN_CONST") and step.argval is None)
        for step in dis.get_instructions(answer)
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


def _kind(value: Any) -> str:
    for types, name in (
        (bool, "a truth value"),
        ((int, float), "a number"),
        (str, "a text"),
        ((list, tuple), "a list"),
        (np.ndarray, "an array"),
    ):
        if isinstance(value, types):
            return name
    return "None" if value is None else f"a {type(value).__name__}"


def _equal(a: Any, b: Any) -> bool:
    """Whether plain ``a`` is of the kind of ``b`` and agrees with it, numbers up to rounding."""
    kind = _kind(b)
    if _kind(a) != kind:
        return False
    if kind == "a number":
        return is_right(a, b, ROUNDING) or (a != a and b != b)
    if kind == "a list":
        return len(a) == len(b) and all(map(_equal, a, b))
    if kind == "a dict":
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if kind == "an array":
        return a.shape == b.shape and _equal(plain(a.tolist()), plain(b.tolist()))
    return bool(a == b)


def _error_hint(error: BaseException, function: Any, call: str) -> str:
    """What came up, and in which line of the reader's own."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    places = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if code and frame.f_code.co_filename == code.co_filename
    ]
    place = ", outside of your own lines"
    if places:
        source = linecache.getline(*places[-1]).strip()
        place = f" in line {places[-1][1]}" + (f": {source}" if source else "")
    if isinstance(error, SystemExit):
        return f"{call} called exit(){place}. Return the value; the notebook goes on."
    if isinstance(error, RecursionError):
        return f"{call} called itself without end{place}. Is there a case that ends it?"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{call} raised {text}{place}"


def _difference(result: Any, expected: Any, unit: str) -> str:
    """What is wrong with a result, without what would be right."""
    if _kind(result) != _kind(expected):
        return f"That is {_kind(result)}, and {_kind(expected)} is asked."
    if isinstance(expected, np.ndarray) and result.shape != expected.shape:
        return f"An array of shape {result.shape} does not have the shape asked for."
    if isinstance(expected, (list, tuple)):
        if len(result) != len(expected):
            return f"It has too {'many' if len(result) > len(expected) else 'few'} items."
        pairs = enumerate(zip(result, expected, strict=True))
        return f"The first wrong item is at index {next(i for i, p in pairs if not _equal(*p))}."
    if _kind(expected) == "a number":
        near = isinstance(expected, float) and is_right(result, expected, NEAR)
        return not_a_number(result) or (CLOSE if near else wrong_number(result, expected, unit))
    return "That is not right. Work this input out by hand and compare."


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


@dataclass(frozen=True)
class FunctionCheck:
    """A check of a function, by calling it.

    - ``reference`` is the right function: what it returns on a case is what is asked.
    - ``cases`` are tuples of inputs, passed on as copies; put in those on which naive ideas fail.
    - ``hints`` are pairs of a wrong function and a sentence for what returns the same as it does.
    - ``judge(result, *inputs)`` decides instead of comparing: a sentence, or None if it is right.
    - ``unit`` of the number returned, if it has one: its mistakes get their hints.
    - ``seconds`` is the time limit of one call, and of judging what it returned.
    - ``explanation`` is shown after the pass.

    >>> all_ranks = (lambda n: n, "The one that failed does not wait.")
    >>> check = FunctionCheck(lambda n: n - 1, cases=((1,), (8,)), hints=(all_ranks,))
    >>> check(lambda n: n - 1), check(lambda n: n)
    (Pass, Hint: <lambda>(1) returned 1. The one that failed does not wait.)
    """

    reference: Callable[..., Any]
    cases: tuple[tuple[Any, ...], ...]
    hints: tuple[tuple[Callable[..., Any], str], ...] = ()
    judge: Callable[..., str | None] | None = None
    unit: str = ""
    seconds: float = 2.0
    explanation: str = ""

    def wrong_answers(self) -> Sequence[tuple[Callable[..., Any], str]]:
        return self.hints

    def __call__(self, answer: Any) -> Verdict:
        if answer is ... or _is_stub(answer):
            return NOT_ATTEMPTED
        if not callable(answer):
            return hint("Hand in the function itself: its name, without parentheses after it.")
        for inputs in self.cases:
            verdict = self._on_case(answer, inputs)
            if not verdict.passed:
                return verdict
        return passed(self.explanation)

    def _on_case(self, answer: Callable[..., Any], inputs: tuple[Any, ...]) -> Verdict:
        problem = _refuses(answer, inputs)
        if problem:
            return hint(problem)
        name = getattr(answer, "__name__", type(answer).__name__)
        call = f"{name}({', '.join(map(_shown, inputs))})"
        given = copy.deepcopy(inputs)
        outcome = call_within(self.seconds, _result, answer, *given)
        if _not_written(outcome):
            return NOT_ATTEMPTED
        problem = self._failure(outcome, answer, call)
        if problem is None and not _equal(plain(given), plain(inputs)):
            problem = (
                f"{call} changed its input. Work on a copy: whoever called still needs the "
                "original."
            )
        if problem is None:
            problem = self._fault(outcome.value, answer, call, inputs)
        return hint(problem) if problem else passed()

    def _failure(self, outcome: Outcome, answer: Callable[..., Any], call: str) -> str | None:
        """The hint for a call that returned no value to judge."""
        if outcome.replaced:
            return (
                f"{call} replaced Python's own {', '.join(outcome.replaced)} for everybody. It is "
                "back as it was: give what you assign another name."
            )
        if outcome.timed_out:
            return (
                f"{call} ran longer than {self.seconds:g} s and was "
                + (
                    "left behind: it goes on in the background until you restart the kernel."
                    if outcome.goes_on
                    else "stopped."
                )
                + " Does every loop come to its end?"
            )
        if isinstance(outcome.error, Endless):
            return (
                f"{call} yielded more than {MOST_ITEMS:,} items and was stopped. Does every "
                "loop come to its end?"
            )
        if outcome.error is not None:
            return _error_hint(outcome.error, answer, call)
        if outcome.value is None:
            return (
                f"{call} printed something and returned None: use return in place of print."
                if outcome.printed
                else f"{call} returned None: is there a return on every way through the function?"
            )
        return None

    def _fault(
        self, result: Any, answer: Callable[..., Any], call: str, inputs: tuple[Any, ...]
    ) -> str | None:
        """The hint for a result that is not right."""
        found = self._judged(result, inputs) if self.judge else self._compared(result, inputs)
        if found is None:
            return None
        for wrong, text in self.hints:
            if _equal(
                result, call_within(self.seconds, _result, wrong, *copy.deepcopy(inputs)).value
            ):
                found = text
                break
        if _kind(result) == "a number":
            again = call_within(self.seconds, _result, answer, *copy.deepcopy(inputs))
            if _kind(again.value) == "a number" and not _equal(again.value, result):
                found = RANDOM
        shown = _shown(result)
        if self.judge and len(shown) > MOST_SHOWN:
            return f"{call}: {found}"
        return f"{call} returned {shown}. {found}"

    def _judged(self, result: Any, inputs: tuple[Any, ...]) -> str | None:
        judged = call_within(self.seconds, self.judge, result, *copy.deepcopy(inputs))
        if judged.timed_out:
            return "It is too large to be judged."
        return judged.value if judged.error is None else f"It cannot be read: {judged.error}"

    def _compared(self, result: Any, inputs: tuple[Any, ...]) -> str | None:
        expected = plain(self.reference(*copy.deepcopy(inputs)))
        return None if _equal(result, expected) else _difference(result, expected, self.unit)
