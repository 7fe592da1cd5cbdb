"""The exercises on the hierarchy: right answers pass, and each mistake gets its own hint."""

from __future__ import annotations

import numpy as np
import pytest

from dtlib.teaching import checks
from dtlib.teaching.exercises import hierarchy
from tests import solutions_hierarchy as solutions

MINE = [exercise for exercise in vars(hierarchy).values() if isinstance(exercise, checks.Exercise)]


def test_there_is_one_of_each_kind():
    assert len(MINE) == 6
    assert {exercise.kind for exercise in MINE} == {"predict", "compute", "implement", "design"}


@pytest.mark.parametrize("name", solutions.NUMBERS)
def test_numbers(name):
    exercise, right = getattr(hierarchy, name), solutions.NUMBERS[name]
    assert exercise(right).passed
    assert exercise(np.float64(right)).passed
    assert not exercise(right * 1.1).passed
    assert not exercise(right / 8).passed


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_ratio", 36, "sum of both directions"),
        ("check_ratio", 2.25, "in bits"),
        ("check_ratio", 4.5, "in bits, and"),
        ("check_ratio", 9, "H100"),
        ("check_leaving", 18.75e9, "whole node"),
        ("check_leaving", 19.84375e9, "flat ring"),
        ("check_leaving", 1.25e9, "more than its payload"),
        ("check_leaving", 2.34375, "power of ten"),
        ("check_leaving", 2.5e9, "very many nodes"),
        ("check_leaving", 1.171875e9, "one of two passes"),
        ("check_leaving", 4.6875e9, "what it receives"),
        ("check_two_tiers", 75.5556, "very many ranks"),
        ("check_two_tiers", 30.5556, "one of two passes"),
        ("check_two_tiers", 1e3 * (14 / 900 + 1.5 / 50), "printed NVLink rate"),
        ("check_two_tiers", 1e3 * (14 / 450 + 1.5 / 400), "bits for bytes"),
        ("check_two_tiers", 1e3 * (14 / 450 + 12 / 50), "through one card"),
        ("check_two_tiers", 1e3 * (14 / 450 + 1.5 / 25), "each way already"),
    ],
)
def test_the_traps_have_their_hints(name, answer, says):
    verdict = getattr(hierarchy, name)(answer)
    assert verdict.status == "hint" and says in verdict.message


@pytest.mark.parametrize(
    ("name", "right", "short"),
    [("check_leaving", 2.34e9, 2.3e9), ("check_two_tiers", 61.1, None), ("check_ratio", 18, None)],
)
def test_three_digits_are_enough(name, right, short):
    assert getattr(hierarchy, name)(right).passed
    assert short is None or "three significant digits" in getattr(hierarchy, name)(short).message


def test_a_right_schedule_passes():
    assert hierarchy.check_hierarchical(solutions.hierarchical).passed
    assert hierarchy.check_hierarchical(
        lambda ranks, group: list(solutions.hierarchical(ranks, group))
    ).passed


@pytest.mark.parametrize("wrong", solutions.WRONG, ids=lambda wrong: wrong.__name__)
def test_each_wrong_schedule_gets_its_own_hint(wrong):
    verdict = hierarchy.check_hierarchical(wrong)
    assert verdict.status == "hint"
    assert solutions.WRONG[wrong] in verdict.message


def test_counting():
    assert hierarchy.check_across(solutions.busiest_across).passed
    mistakes = hierarchy.check_across.check.hints
    for wrong, hint in mistakes:
        assert hint in hierarchy.check_across(wrong).message
    nodes_but_the_first = hierarchy.check_across(
        lambda events, group: solutions.busiest_across(
            [event for event in events if (event[0] < group) != (event[1] < group)], group
        )
    )
    assert not nodes_but_the_first.passed
    counts = [wrong(hierarchy.LOG, 4) for wrong, _ in mistakes] + [
        solutions.busiest_across(hierarchy.LOG, 4)
    ]
    assert len(set(counts)) == len(counts)


def test_islands():
    assert hierarchy.check_island(solutions.island).passed
    assert (
        "a smaller island keeps it too" in hierarchy.check_island(lambda payload_bytes: 64).message
    )
    assert "are allowed" in hierarchy.check_island(lambda payload_bytes: 8).message
    assert "one of the widths" in hierarchy.check_island(lambda payload_bytes: 72).message
    assert hierarchy.check_island(
        lambda payload_bytes: float(solutions.island(payload_bytes))
    ).passed


def test_no_single_width_meets_every_limit():
    for width in hierarchy.WIDTHS:
        assert not hierarchy.check_island(lambda payload_bytes, width=width: width).passed


def test_stubs_are_not_attempted():
    def schedule(ranks, group):
        """Yields the steps."""
        yield ...

    def count(events, group):
        return ...

    assert hierarchy.check_hierarchical(schedule).status == "not attempted"
    assert hierarchy.check_across(count).status == "not attempted"
    assert hierarchy.check_island(lambda payload_bytes: ...).status == "not attempted"
