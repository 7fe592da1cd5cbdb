"""What is asked of every exercise: an untouched stub, the reference and each listed wrong answer
get the verdict they deserve.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dtlib.teaching.checks import Exercise

__all__ = ["audit", "leaks"]

# A number that stands alone: not the digit of a name (B200) nor a factor in a formula (2(n-1)).
_NUMBER = re.compile(r"(?<![\w.(])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w(])", re.IGNORECASE)
_SCALES = [scale for power in range(-6, 7) for scale in (1000.0**power, 1024.0**power)] + [
    0.01,
    100.0,
    0.125,
    8.0,
]
ODD_ANSWERS: list[Any] = [
    None,
    "6.48",
    "",
    True,
    1j,
    [1],
    [1, 2],
    (3,),
    {},
    np.ones(1),
    np.ones(3),
    float("nan"),
    float("inf"),
    -1,
    0,
    10**400,
    print,
    object(),
    123.456,
]


def _digits(token: str) -> int:
    return len(re.sub(r"e.*|[.,]", "", token.lower()).strip("0"))


def leaks(text: str, value: float) -> bool:
    """Whether ``text`` contains ``value`` as a person might write it: rounded, with separators,
    with any prefix.

    A number of three or more digits counts when it is the value rounded to as many, under any
    decimal or binary prefix; a shorter one only when it is the value.

    >>> leaks("about 6.48 TB", 6.48e12), leaks("16 bytes each", 6.48e12)
    (True, False)
    """
    for token in _NUMBER.findall(text):
        number, digits = float(token.rstrip(",").replace(",", "")), _digits(token)
        if number == value:
            return True
        if digits >= 3 and any(
            f"{value * scale:.{digits - 1}e}" == f"{number:.{digits - 1}e}" for scale in _SCALES
        ):
            return True
    return False


def audit(exercise: Exercise) -> list[str]:
    """Complaints about an exercise, none if it keeps what is promised to a learner.

    >>> from dtlib.teaching.checks import NumberCheck
    >>> check = NumberCheck(lambda: 81, hints=((80, "It is 81."),))
    >>> audit(Exercise("demo", "demo", "Demo", "compute", 1, 1, "How many?", check))
    ['the hint for 80 contains the answer: It is 81.']
    """
    check = exercise.check
    complaints = []
    if exercise(...).status != "not attempted":
        complaints.append("an untouched stub is attempted")
    if not exercise(check.reference).passed:
        complaints.append(f"the reference does not pass: {exercise(check.reference)}")
    wrongs = check.wrong_answers()
    for wrong, text in wrongs:
        verdict = exercise(wrong)
        if verdict.status != "hint" or not verdict.message.endswith(text):
            complaints.append(f"{wrong!r} deserves {text!r} and gets {verdict!r}")
    if len({text for _, text in wrongs}) < len(wrongs):
        complaints.append("two wrong answers share a hint")
    if not callable(check.reference):
        for wrong in [wrong for wrong, _ in wrongs] + ODD_ANSWERS:
            verdict = exercise(wrong)
            if verdict.status == "hint" and leaks(verdict.message, float(check.reference)):
                complaints.append(f"the hint for {wrong!r} contains the answer: {verdict.message}")
    return complaints
