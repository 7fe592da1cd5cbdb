"""Predictions: a number the reader writes down before it is revealed, on the page too.

>>> from dtlib.views.prediction import Prediction
>>> box = Prediction(
...     name="gpus",
...     question="How many 80 GB GPUs hold 6.48 TB?",
...     unit="GPUs",
...     answer=81,
...     because="6.48e12 / 80e9 = 81, with nothing left over.",
...     hints=((80, "80 GPUs hold 6.40 TB: 0.08 TB short."),),
... )
>>> box.answer, box.tolerance
(81, 0.0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dtlib.arguments import real_number
from dtlib.printable import printable
from dtlib.tolerance import tolerance_of

__all__ = ["Prediction"]


@dataclass(frozen=True, repr=False)
class Prediction:
    """A question with a number for an answer, right by the rule of ``dtlib.tolerance``.

    - ``answer`` is the number, computed by dtlib and never typed in; a count is a Python int.
    - ``unit`` is what the number counts or is measured in.
    - ``because`` is shown after the reader has answered: where the number comes from.
    - ``hints`` are pairs of a wrong number, or a function that returns it, and a sentence for who
      wrote that number.
    - ``tolerance`` is what the rule says of this answer; the page gets it from here.
    """

    name: str
    question: str
    unit: str
    answer: float
    because: str
    hints: tuple[tuple[float | Callable[[], float], str], ...] = ()
    tolerance: float = field(init=False)

    def __post_init__(self) -> None:
        number = real_number("answer", self.answer, negative=True, array=False)
        tolerance = tolerance_of(self.answer)
        hints = tuple(
            (
                real_number(
                    f"hints[{i}] of {self.name}",
                    wrong() if callable(wrong) else wrong,
                    negative=True,
                    array=False,
                ),
                text,
            )
            for i, (wrong, text) in enumerate(self.hints)
        )
        object.__setattr__(self, "answer", number if tolerance else int(self.answer))
        object.__setattr__(self, "tolerance", tolerance)
        object.__setattr__(self, "hints", hints)

    def __repr__(self) -> str:
        return printable(f"Predict {self.name}, in {self.unit}: {self.question}")

    def _repr_mimebundle_(self, **_: Any) -> Any:
        from dtlib.views import host

        return host.mimebundle(self)
