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


def test_numbers():
    for name, right in solutions.NUMBERS.items():
        exercise = getattr(hierarchy, name)
        assert exercise(right).passed and exercise(np.float64(right)).passed, name
        assert not exercise(right * 1.1).passed and not exercise(right / 8).passed, name


def test_the_traps_have_their_hints():
    for name, answer, says in [
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
    ]:
        verdict = getattr(hierarchy, name)(answer)
        assert verdict.status == "hint" and says in verdict.message, (name, answer, verdict)


def test_three_digits_are_enough():
    assert hierarchy.check_ratio(18).passed and hierarchy.check_two_tiers(61.1).passed
    assert hierarchy.check_leaving(2.34e9).passed
    assert "three significant digits" in hierarchy.check_leaving(2.3e9).message


def test_a_right_schedule_passes():
    assert hierarchy.check_hierarchical(solutions.hierarchical).passed
    assert hierarchy.check_hierarchical(
        lambda ranks, node_size: list(solutions.hierarchical(ranks, node_size))
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
        lambda events, node_size: solutions.busiest_across(
            [event for event in events if (event[0] < node_size) != (event[1] < node_size)],
            node_size,
        )
    )
    assert not nodes_but_the_first.passed
    counts = [wrong(hierarchy.LOG, 4) for wrong, _ in mistakes] + [
        solutions.busiest_across(hierarchy.LOG, 4)
    ]
    assert len(set(counts)) == len(counts)


def test_node_sizes():
    check = hierarchy.check_node_size
    assert check(solutions.smallest_node).passed
    assert check(lambda payload_bytes: float(solutions.smallest_node(payload_bytes))).passed
    assert "a smaller node keeps it too" in check(lambda payload_bytes: 64).message
    assert "are allowed" in check(lambda payload_bytes: 8).message
    assert "one of the node sizes" in check(lambda payload_bytes: 72).message
    for size in hierarchy.NODE_SIZES:  # no single one meets every limit
        assert not check(lambda payload_bytes, size=size: size).passed, size


def test_stubs_are_not_attempted():
    def schedule(ranks, node_size):
        """Yields the steps."""
        yield ...

    def count(events, node_size):
        return ...

    assert hierarchy.check_hierarchical(schedule).status == "not attempted"
    assert hierarchy.check_across(count).status == "not attempted"
    assert hierarchy.check_node_size(lambda payload_bytes: ...).status == "not attempted"
