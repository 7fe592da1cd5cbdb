"""Exercises: what one is, where all are found, and how to define one.

A chapter's exercises stand in ``dtlib/teaching/exercises/<chapter>.py``. A number, and a function:

    from dtlib.formulas.barrier import idle_ranks_after_failure
    from dtlib.teaching.checks import FunctionCheck, NumberCheck, define

    check_idle = define(
        "barrier-idle",
        chapter="barrier",
        title="One GPU fails",
        kind="predict",
        minutes=2,
        points=1,
        task="How many of 16,384 GPUs wait when one fails?",
        check=NumberCheck(
            lambda: idle_ranks_after_failure(16384),
            unit="GPUs",
            hints=((8, "The whole job waits, and not only the node."),),
            explanation="A step needs every rank, so all the others wait.",
        ),
    )

    check_step_time = define(
        "barrier-step-time",
        chapter="barrier",
        title="The time of a step",
        kind="implement",
        minutes=5,
        points=2,
        task="Write step_time(times): the time of a step from the times of its ranks.",
        check=FunctionCheck(
            lambda times: max(times),
            cases=(([1.0, 1.1, 1.0],), ([2.0],), ([3.0, 1.0],)),
            hints=(
                (lambda times: sum(times) / len(times), "The mean: who waits for whom?"),
                (lambda times: times[-1], "The last in the list need not be the last to end."),
            ),
        ),
    )

In the notebook the learner writes ``idle = ...`` and, below it, ``check_idle(idle)``.
``dtlib.teaching.audit`` says whether an exercise keeps its promises; one test runs it over all of
them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from dtlib.arguments import choice, real_number, whole_number
from dtlib.teaching.function import FunctionCheck
from dtlib.teaching.number import NumberCheck
from dtlib.teaching.verdict import Verdict, hint

__all__ = [
    "EXERCISES",
    "Check",
    "Exercise",
    "FunctionCheck",
    "NumberCheck",
    "define",
    "exercise",
    "load_all",
]

Kind = Literal["predict", "compute", "implement", "design"]


class Check(Protocol):
    """Maps an answer to a verdict, and knows a right answer and the wrong ones with a hint."""

    @property
    def reference(self) -> Any: ...

    def wrong_answers(self) -> Sequence[tuple[Any, str]]: ...

    def __call__(self, answer: Any) -> Verdict: ...


@dataclass(frozen=True)
class Exercise:
    """An exercise of a chapter. Calling it with an answer gives the verdict, and never raises."""

    id: str
    chapter: str
    title: str
    kind: Kind
    minutes: float
    points: int
    task: str
    check: Check

    def __post_init__(self) -> None:
        choice("kind", self.kind, get_args(Kind))
        real_number("minutes", self.minutes, zero=False, array=False)
        whole_number("points", self.points, at_least=0)
        object.__setattr__(
            self, "__doc__", f"{self.title} ({self.kind}, {self.minutes:g} min)\n\n{self.task}"
        )

    def __call__(self, answer: Any) -> Verdict:
        try:
            return self.check(answer)
        except Exception as error:  # Run All goes on, whatever an answer does when it is read
            return hint(
                f"This answer could not be checked ({type(error).__name__}). Is it of the kind "
                "that is asked?"
            )


EXERCISES: dict[str, Exercise] = {}


def define(
    id: str,
    *,
    chapter: str,
    title: str,
    kind: Kind,
    minutes: float,
    points: int,
    task: str,
    check: Check,
) -> Exercise:
    """An Exercise, entered in EXERCISES under its ``id``; the same one defined again, as a reload
    does, replaces it.
    """
    defined = Exercise(id, chapter, title, kind, minutes, points, task, check)
    earlier = EXERCISES.get(id, defined)
    if (earlier.chapter, earlier.title) != (chapter, title):
        raise ValueError(
            f"id {id!r} is taken by {earlier.title!r} of chapter {earlier.chapter!r}: choose "
            "another"
        )
    EXERCISES[id] = defined
    return defined


def load_all() -> dict[str, Exercise]:
    """EXERCISES after importing every chapter's module, for whoever goes through all of them."""
    package = importlib.import_module("dtlib.teaching.exercises")
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    return EXERCISES


def exercise(id: str) -> Exercise:
    """The exercise of that ``id``."""
    if id not in EXERCISES:
        raise KeyError(f"no exercise {id!r}: there are {', '.join(sorted(EXERCISES)) or 'none'}")
    return EXERCISES[id]
