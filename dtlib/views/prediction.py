"""Predictions: a number the reader writes down before it is revealed, on the page too.

>>> from dtlib.views.prediction import Prediction
>>> box = Prediction(
...     name="gpus", question="How many 80 GB GPUs hold 6.48 TB?", unit="GPUs", answer=81,
...     because="6.48e12 / 80e9 = 81, with nothing left over.", slips=((80, "80 GPUs hold 6.40 TB: 0.08 TB short."),))
>>> box.answer
81.0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtlib.arguments import real_number

__all__ = ["Prediction"]


@dataclass(frozen=True)
class Prediction:
    """A question with a number for an answer.

    answer     the number, computed by dtlib and never typed in unit       what the number counts or
    is measured in because    shown after the reader has answered: where the number comes from slips
    (wrong number, what led there) pairs: the matching one is shown to who wrote that number
    tolerance  how far off still counts as right, relative to the answer
    """

    name: str
    question: str
    unit: str
    answer: float
    because: str
    slips: tuple[tuple[float, str], ...] = ()
    tolerance: float = 0.02

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "answer", real_number("answer", self.answer, negative=True, array=False)
        )
        real_number("tolerance", self.tolerance, array=False)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        from dtlib.views import host

        return host.mimebundle(self)
