"""Change any figure of the registry by 1%, a count by one, a flag, a word, or what doubles a number
(unit, direction, convention), and a check of ``fact_checks.py`` fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from dtlib.facts import registry
from dtlib.facts.fact import CHOICES, ConventionError, Fact, FactError
from dtlib.facts.sweeps import Sweep, sweep, sweeps
from tests.fact_checks import CHECKS, Check, Facts, sweep_rows

FACTS = {one.key: one for one in registry.all_facts()}


def changed_values(value: float | int | bool | str) -> Iterator[float | int | bool | str]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        yield {"rms": "layer", "layer": "rms"}[value]
    elif isinstance(value, int):
        yield from {value + 1, value - 1, round(value * 1.01), round(value * 0.99)} - {value}
    else:
        yield from (value * 1.01, value * 0.99)


def changes(fact: Fact) -> Iterator[Fact]:
    """The fact with one slip in it; a slip that a fact refuses by itself needs no check."""
    fields = {"value": changed_values(fact.value)} | {
        field: [each for each in CHOICES[field] if each != getattr(fact, field)]
        for field in ("unit", "direction", "convention")
    }
    for field, values in fields.items():
        for value in values:
            with suppress(FactError):
                yield replace(fact, **{field: value})


def fails(check: Check, facts: dict[str, Fact]) -> bool:
    try:
        check.run(Facts(facts))
    except (AssertionError, ConventionError):
        return True
    return False


def readers() -> dict[str, list[Check]]:
    """The checks that read a fact, by its key."""
    found = defaultdict(list)
    for check in CHECKS:
        facts = Facts(FACTS)
        check.run(facts)
        for key in facts.read:
            found[key].append(check)
    return found


def unnoticed(fact: Fact, checks: list[Check]) -> list[str]:
    """The changes of a fact that none of these checks sees."""
    return [
        f"{fact} -> {slip}"
        for slip in changes(fact)
        if not any(fails(check, FACTS | {fact.key: slip}) for check in checks)
    ]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_registry_agrees_with_the_source(check):
    assert check.kind in ("relation", "table", "transcription") and check.source
    check.run(Facts(FACTS))


def test_every_fact_bites():
    holding = readers()
    assert [slip for fact in FACTS.values() for slip in unnoticed(fact, holding[fact.key])] == []


@pytest.mark.parametrize(
    ("key", "value", "noticed_by"),
    [
        ("llama-3-405b.snapshot", 45, "time_between_interruptions"),
        ("llama-3-405b.interruptions", 446, "interruptions"),
        ("bloom-176b.achieved", 150.10e12, "flops_of_bigscience"),
        ("gpt-3-175b.tied", False, "gpt_3"),
    ],
)
def test_slips_that_once_passed(key, value, noticed_by):
    (check,) = (check for check in CHECKS if check.name == noticed_by)
    assert fails(check, FACTS | {key: replace(FACTS[key], value=value)})


def test_a_fact_that_nothing_reads_is_noticed():
    assert unnoticed(FACTS["opt-175b.gpus"], []) != []


@pytest.mark.parametrize("key", sweeps())
def test_every_row_of_a_sweep_bites(key):
    measured = sweep(key)
    sweep_rows(measured)

    def slips() -> Iterator[Sweep]:
        yield replace(measured, ranks=measured.ranks + 1)
        yield replace(measured, collective="all_gather")
        for column in ("payload_bytes", "time_s"):
            for place in range(len(measured.time_s)):
                values = np.array(getattr(measured, column), dtype=float)
                for factor in (1.01, 0.99):
                    values[place] = getattr(measured, column)[place] * factor
                    yield replace(measured, **{column: values.copy()})

    for slip in slips():
        with pytest.raises(AssertionError):
            sweep_rows(slip)
