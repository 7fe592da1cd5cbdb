"""The exercises of *A step is a barrier*: every promise of every check, and the references against
brute force.
"""

import itertools
import math
import random
import statistics

import pytest

from dtlib.formulas.barrier import probability_of_straggler
from dtlib.teaching.exercises import barrier
from tests import solutions_barrier as solutions

ANSWERS = {
    "check_slow_rank": solutions.slow_rank_s,
    "check_defect_share": solutions.defect_share,
    "check_exponential_step": solutions.exponential_step_s,
    "check_slowdown": solutions.slowdown,
    "check_expected_step": solutions.expected_step,
}
each = pytest.mark.parametrize("name", barrier.__all__)


@each
def test_the_solution_passes_and_the_stub_is_not_attempted(name):
    assert getattr(barrier, name)(ANSWERS[name]).passed
    assert getattr(barrier, name)(...).status == "not attempted"


def test_the_defect_share_is_the_one_asked_for():
    assert probability_of_straggler(solutions.defect_share, 16_384) == pytest.approx(0.10, rel=1e-9)


@pytest.mark.parametrize(
    ("times", "ranks"), [([1.0, 3.0], 1), ([4.0, 1.0, 2.0], 3), ([5.0, 5.0, 6.0, 1.0], 4)]
)
def test_expected_step_by_enumerating_every_draw(times, ranks):
    draws = [max(draw) for draw in itertools.product(times, repeat=ranks)]
    assert barrier.expected_step(times, ranks) == pytest.approx(sum(draws) / len(draws), rel=1e-12)


def test_one_point_ten_is_told_from_one_point_eleven():
    """careful.md 18: adding 10% of the time and losing 10% of the speed are two mistakes apart."""
    verdict = barrier.check_slowdown(lambda rates: 1 + (1 - min(rates)))
    assert verdict.status == "hint" and "speed is given" in verdict.message
    assert "20% longer" in barrier.check_slow_rank(12).message


@pytest.mark.parametrize(("answer", "right"), [(6.43e-6, True), (6.39e-6, False)])
def test_a_share_takes_half_a_percent(answer, right):
    assert barrier.check_defect_share(answer).passed == right


def test_a_tail_takes_three_digits_and_tells_the_logarithm_from_the_sum():
    check = barrier.check_exponential_step
    assert check(13.2).passed and check(13.24).passed
    assert "three significant digits" in check(13).message
    assert "logarithm" in check(9.5 + 0.5 * math.log(1000)).message


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda rates: 1 / min(rates) - 1, "time added"),
        (lambda rates: 2 - sum(rates) / len(rates), "mean loss of speed"),
        (lambda rates: 1 / rates[0], "first rank of the list"),
        (lambda rates: 1 / rates[-1], "last rank of the list"),
        (lambda rates: 1 / statistics.median(rates), "in the middle"),
        (lambda rates: sum(rates) / len(rates), "mean speed. A time"),
        (lambda rates: 1 / max(rates), "fastest rank"),
        (lambda rates: len(rates) / sum(rates), "Who decides"),
    ],
)
def test_each_wrong_slowdown_is_told_its_own_mistake(wrong, says):
    assert says in barrier.check_slowdown(wrong).message


def simulated(times_s, ranks, rng=None):
    rng = rng or random.Random(1)
    return sum(max(rng.choices(times_s, k=ranks)) for _ in range(5000)) / 5000


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            lambda times_s, ranks: barrier.expected_step(sorted(set(times_s)), ranks),
            "Equal times count once",
        ),
        (lambda times_s, ranks: statistics.median(times_s), "median"),
        (lambda times_s, ranks: max(times_s), "a bound"),
        (
            lambda times_s, ranks: simulated(times_s, ranks, random.Random()),
            "without random numbers",
        ),
        (simulated, "drawn at random"),
    ],
)
def test_each_wrong_expected_step_is_told_its_own_mistake(wrong, says):
    assert says in barrier.check_expected_step(wrong).message


@pytest.mark.parametrize(
    "wrong", [print, lambda rates: "1.1", lambda: 1, lambda rates: rates.sort() or 2.0]
)
def test_a_function_that_is_no_answer_gets_a_hint(wrong):
    assert barrier.check_slowdown(wrong).status == "hint"
