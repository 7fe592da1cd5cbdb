"""The exercises of the all-reduce chapter: right answers pass, and each mistake gets its own hint."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from dtlib.simulators.collectives import ALGORITHMS
from dtlib.simulators.schedule import Transfer
from dtlib.teaching import checks
from dtlib.teaching.exercises import all_reduce
from tests import solutions_all_reduce as solutions

MINE = [exercise for exercise in vars(all_reduce).values() if isinstance(exercise, checks.Exercise)]


def test_there_is_one_of_each_kind():
    assert len(MINE) == 6
    assert {exercise.kind for exercise in MINE} == {"predict", "compute", "implement", "design"}


@pytest.mark.parametrize("name", solutions.NUMBERS)
def test_numbers(name):
    exercise, right = getattr(all_reduce, name), solutions.NUMBERS[name]
    assert exercise(right).passed
    assert exercise(np.float64(right) if isinstance(right, float) else np.int64(right)).passed
    assert not exercise(right * 1.1).passed
    assert not exercise(right / 8).passed


def test_ledger_l28_bytes_of_the_worked_example():
    assert all_reduce.check_ring_bytes.check.reference == pytest.approx(1.255737e10, rel=1e-6)


def test_three_digits_are_enough():
    """12.6 GB is what the landing page prints; two digits are told apart from a wrong number."""
    assert all_reduce.check_ring_bytes(12.6e9).passed and all_reduce.check_bus_bandwidth(237).passed
    assert "three significant digits" in all_reduce.check_ring_bytes(13e9).message
    assert "very many ranks" in all_reduce.check_ring_bytes(12.7e9).message


def test_factor_hints():
    assert (
        "factor of eight"
        in all_reduce.check_ring_bytes(8 * solutions.NUMBERS["check_ring_bytes"]).message
    )
    assert (
        "power of ten"
        in all_reduce.check_ring_bytes(solutions.NUMBERS["check_ring_bytes"] / 1e9).message
    )
    assert "binary" in all_reduce.check_balance(16 * 2**20).message


@pytest.mark.parametrize("ring", [solutions.ring, solutions.ring_to_the_left])
def test_a_ring_passes_in_either_direction(ring):
    assert all_reduce.check_ring(ring).passed


def test_a_ring_may_return_a_list():
    assert all_reduce.check_ring(lambda ranks: list(solutions.ring(ranks))).passed


@pytest.mark.parametrize("wrong", solutions.WRONG_RINGS, ids=lambda wrong: wrong.__name__)
def test_each_wrong_ring_gets_its_own_hint(wrong):
    verdict = all_reduce.check_ring(wrong)
    assert verdict.status == "hint"
    assert solutions.WRONG_RINGS[wrong] in verdict.message
    own = verdict.message.split("]. ")[-1]
    assert not re.search(r"%|ranks?\s*-\s*step|\(rank", own), "a hint is not the code"


def test_the_hints_of_wrong_rings_differ():
    hints = [
        all_reduce.check_ring(wrong).message.split("]. ")[-1] for wrong in solutions.WRONG_RINGS
    ]
    assert len(set(hints)) == len(hints)


@pytest.mark.parametrize(
    "wrong",
    [*solutions.WRONG_RINGS, lambda ranks: 5, lambda ranks: solutions.ring],
    ids=lambda wrong: wrong.__name__,
)
def test_a_hint_is_short_and_made_of_sentences(wrong):
    message = all_reduce.check_ring(wrong).message
    assert "array(" not in message and len(message) < 300
    assert re.search(r"(: |\. )[A-Z]", message) and not message.endswith("?.")


def test_a_right_but_dear_schedule_is_told_its_bytes():
    """Everything in turn around the ring: the sums are right, and each rank but the last sends 2 S."""
    assert "the busiest one sends 2 S" in all_reduce.check_ring(solutions.everything_around).message


@pytest.mark.parametrize("more", [1, 2, 5, 6])
def test_a_ring_with_empty_steps_takes_too_many(more):
    needed = 2 * (4 - 1)
    for ring in (
        lambda ranks: [*solutions.ring(ranks), *[[]] * more],
        lambda ranks: [*[[]] * more, *solutions.ring(ranks)],
    ):
        assert f"it takes {needed + more} steps" in all_reduce.check_ring(ring).message


@pytest.mark.parametrize("step", [[], Transfer(0, 1, 0), [Transfer(0, 1, 0, True)]])
def test_a_ring_without_end_is_told_so_soon(step):
    def ring(ranks):
        while True:
            yield step

    start = time.monotonic()
    assert "Does every loop come to its end?" in all_reduce.check_ring(ring).message
    assert time.monotonic() - start < 3


def test_stubs_are_not_attempted():
    def ring(ranks):
        """Yields the steps."""
        yield ...

    def choose(payload_bytes):
        return ...

    assert all_reduce.check_ring(ring).status == "not attempted"
    assert all_reduce.check_choice(choose).status == "not attempted"


def test_odd_rings():
    assert "without parentheses" in all_reduce.check_ring([]).message
    assert "no transfers" in all_reduce.check_ring(lambda ranks: []).message
    assert (
        "whole number"
        in all_reduce.check_ring(
            lambda ranks: [
                [t._replace(chunk=t.chunk / 2) for t in step] for step in solutions.ring(ranks)
            ]
        ).message
    )
    assert "must be a Transfer" in all_reduce.check_ring(lambda ranks: [[(0, 1, 0, True)]]).message


def test_choosing():
    assert all_reduce.check_choice(solutions.choose).passed
    assert all_reduce.check_choice(
        lambda payload_bytes: np.str_(solutions.choose(payload_bytes))
    ).passed
    assert "one of the names" in all_reduce.check_choice(lambda payload_bytes: "NCCL").message


@pytest.mark.parametrize("name", ALGORITHMS["all_reduce"])
def test_no_single_algorithm_meets_every_limit(name):
    verdict = all_reduce.check_choice(lambda payload_bytes: name)
    assert verdict.status == "hint" and "are allowed" in verdict.message


def test_why_a_choice_misses():
    check = all_reduce.check_choice
    assert "latency alone" in check(lambda payload_bytes: "ring").message
    assert "bytes alone" in check(lambda payload_bytes: "tree").message
    ring_too_soon = check(lambda payload_bytes: "tree" if payload_bytes < 2**20 else "ring")
    assert "both together" in ring_too_soon.message
