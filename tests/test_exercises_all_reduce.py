"""The exercises of the all-reduce chapter: right answers pass, each mistake gets its own hint."""

from __future__ import annotations

import re

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


def test_numbers():
    for name, right in solutions.NUMBERS.items():
        exercise = getattr(all_reduce, name)
        numpys = np.float64(right) if isinstance(right, float) else np.int64(right)
        assert exercise(right).passed and exercise(numpys).passed, name
        assert not exercise(right * 1.1).passed and not exercise(right / 8).passed, name


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


def test_a_ring_passes_in_either_direction_and_as_a_list():
    for ring in (
        solutions.ring,
        solutions.ring_to_the_left,
        lambda ranks: list(solutions.ring(ranks)),
    ):
        assert all_reduce.check_ring(ring).passed


def own_hint(message):
    return message.split("]. ")[-1]


def test_each_wrong_ring_gets_its_own_hint_in_short_sentences():
    hints = []
    for wrong, says in solutions.WRONG_RINGS.items():
        verdict = all_reduce.check_ring(wrong)
        assert verdict.status == "hint" and says in verdict.message, wrong.__name__
        hints.append(own_hint(verdict.message))
        code = re.search(r"%|ranks?\s*-\s*step|\(rank", hints[-1])
        assert not code, f"{wrong.__name__}: a hint is not the code"
        is_a_sentence(verdict.message)
    assert len(set(hints)) == len(hints)
    for wrong in (lambda ranks: 5, lambda ranks: solutions.ring):
        is_a_sentence(all_reduce.check_ring(wrong).message)


def is_a_sentence(message):
    assert "array(" not in message and len(message) < 300, message
    assert re.search(r"(: |\. )[A-Z]", message) and not message.endswith("?."), message


def test_a_right_but_dear_schedule_is_told_its_bytes():
    """Everything in turn around the ring: the sums are right; each rank but the last sends 2 S."""
    assert "the busiest one sends 2 S" in all_reduce.check_ring(solutions.everything_around).message


@pytest.mark.parametrize("more", [1, 6])
def test_a_ring_with_empty_steps_takes_too_many(more):
    needed = 2 * (4 - 1)
    for ring in (
        lambda ranks: [*solutions.ring(ranks), *[[]] * more],
        lambda ranks: [*[[]] * more, *solutions.ring(ranks)],
    ):
        assert f"it takes {needed + more} steps" in all_reduce.check_ring(ring).message


@pytest.mark.parametrize("step", [[], Transfer(0, 1, 0), [Transfer(0, 1, 0, True)]])
def test_a_ring_without_end_is_told_so(step):
    def ring(ranks):
        while True:
            yield step

    assert "Does every loop come to its end?" in all_reduce.check_ring(ring).message


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


def test_no_single_algorithm_meets_every_limit():
    for name in ALGORITHMS["all_reduce"]:
        verdict = all_reduce.check_choice(lambda payload_bytes, name=name: name)
        assert verdict.status == "hint" and "are allowed" in verdict.message, name


def test_why_a_choice_misses():
    check = all_reduce.check_choice
    assert "latency alone" in check(lambda payload_bytes: "ring").message
    assert "bytes alone" in check(lambda payload_bytes: "tree").message
    ring_too_soon = check(lambda payload_bytes: "tree" if payload_bytes < 2**20 else "ring")
    assert "both together" in ring_too_soon.message
