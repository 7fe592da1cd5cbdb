# ruff: noqa: SIM105 - the answers below swallow exceptions on purpose, as a learner might
"""The framework behind the exercises: what it answers to every kind of answer, and that it always
answers.
"""

import functools
import itertools
import numbers
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dtlib import deadline
from dtlib.deadline import call_within
from dtlib.simulators.schedule import Transfer
from dtlib.teaching import answers, checks, number
from dtlib.teaching.audit import ODD_ANSWERS, audit, leaks
from dtlib.teaching.checks import Exercise, FunctionCheck, NumberCheck, define
from dtlib.teaching.verdict import Verdict


def an_exercise(check, id="demo"):
    return Exercise(
        id,
        chapter="demo",
        title="Demo",
        kind="compute",
        minutes=1,
        points=1,
        task="Do it.",
        check=check,
    )


terabytes = an_exercise(
    NumberCheck(
        lambda: 6.48, unit="TB", hints=((0.81, "The weights alone."),), explanation="16 bytes."
    )
)
gpus = an_exercise(
    NumberCheck(lambda: 82, unit="GPUs", hints=((lambda: 1312, "That counts bytes."),))
)
link = an_exercise(NumberCheck(lambda: 450e9, unit="B/s", both_directions=True))
share = an_exercise(NumberCheck(lambda: 0.319149, unit="share"))
prediction = an_exercise(
    NumberCheck(lambda: 5.3, unit="s", rtol=0.25, explanation="The tail decides.")
)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        6.48,
        "np.float64(6.48)",
        "np.float32(6.48)",
        "np.array(6.48)",
        Decimal("6.48"),
        Fraction(648, 100),
        6.4799,
        "np.array(Decimal('6.48'), dtype=object)",
        "np.longdouble(6.48)",
        "np.array(6.48, dtype=object)",
    ],
)
def test_numbers_of_every_kind_pass(answer):
    answer = eval(answer) if isinstance(answer, str) else answer
    assert repr(terabytes(answer)) == "✓ Pass: 16 bytes."


@pytest.mark.parametrize(
    "answer", [82, 82.0, np.int32(82), np.array(82), np.uint8(82), 820 * 0.1, 0.1 + 81.9 + 1e-14]
)
def test_whole_numbers_of_every_kind_pass(answer):
    assert gpus(answer).passed


def test_a_large_count_is_exact():
    parameters = an_exercise(NumberCheck(lambda: 68_976_648_192))
    assert (
        parameters(68_976_648_192).passed and "Off by one" in parameters(68_976_648_193.0).message
    )


def test_a_stub_is_not_attempted():
    assert terabytes(...).status == "not attempted" and not terabytes(...).passed


KINDS = [
    ("print", terabytes, None),
    ("text", terabytes, "6.48"),
    ("truth value", terabytes, True),
    ("truth value", terabytes, np.True_),
    ("complex", terabytes, 6.48j),
    ("single element", terabytes, [6.48]),
    ("single element", terabytes, np.array([6.48])),
    ("collection of values", terabytes, (6.48, 1)),
    ("an array, and one", terabytes, np.ones((2, 2))),
    ("parentheses", terabytes, lambda: 6.48),
    ("of type object", terabytes, object()),
    ("infinite", terabytes, Fraction(10**400)),
    ("nan", gpus, Decimal("nan")),
    ("a text", terabytes, np.str_("6.48")),
    ("of type timedelta64", terabytes, np.timedelta64(6)),
    ("nan", terabytes, float("nan")),
    ("infinite", terabytes, -np.inf),
    ("weights alone", terabytes, 0.81),
    ("counts bytes", gpus, 1312),
    ("sign", terabytes, -6.48),
    ("eight", terabytes, 6.48 * 8),
    ("eight", link, 450e9 / 8),
    ("power of ten", terabytes, 6480),
    ("power of ten", terabytes, 6.48e-9),
    ("power of ten", link, 450),
    ("prefixes are mixed", terabytes, 6.48e12 / 2**40),
    ("prefixes are mixed", terabytes, 6.48 * 1.024),
    ("binary prefix", terabytes, 6.48 * 2**30),
    ("percent", share, 31.9),
    ("one direction", link, 900e9),
    ("off by one", gpus, 81),
    ("off by one", gpus, 83.0),
    ("not this value", terabytes, 7),
    ("not this value", terabytes, 0),
    ("not this value", terabytes, 10**400),
    ("not this value", terabytes, 6.48 * 2),
    ("not this value", gpus, 80),
    ("power of ten", gpus, 8200),
    ("close: give three", terabytes, 6.5),
    ("close: give three", terabytes, 6.4),
    ("negative", terabytes, -7),
    ("negative", gpus, -80),
]


@pytest.mark.parametrize(("words", "exercise", "answer"), KINDS)
def test_each_kind_of_wrong_number_gets_its_hint(words, exercise, answer):
    verdict = exercise(answer)
    assert verdict.status == "hint" and words in verdict.message.lower()
    assert not leaks(verdict.message, exercise.check.reference)


def test_a_prediction_is_taken_within_its_tolerance_and_explained():
    assert prediction(6.2) == Verdict("pass", "The tail decides.")
    assert prediction(7.0).status == "hint"


def test_a_count_is_exact_and_a_measure_is_not_loose():
    assert not gpus(82.2).passed and not terabytes(6.5).passed and not terabytes(6.4).passed


@pytest.mark.parametrize(
    ("value", "right", "short", "wrong"),
    [
        (12.557, (12.6, 12.5, 12.557, 12.56, 12.55), (13, 12), (12.4, 12.7, 12.45)),
        (6.4307e-6, (6.43e-6, 6.4307e-6, 6.4347e-6), (6.4e-6,), (6.39e-6, 6.45e-6, 6.44e-6)),
        (13.2427, (13.2, 13.24, 13.243), (13,), (13.3, 13.1, 13.35)),
        (999.6, (1000, 999, 999.6), (990,), (1010, 998)),
        (-0.31915, (-0.319, -0.3191), (-0.32, -0.31), (0.319, -0.33)),
    ],
)
def test_three_significant_digits_count_rounded_or_cut_off(value, right, short, wrong):
    measure = an_exercise(NumberCheck(lambda: value))
    assert all(measure(answer).passed for answer in right)
    assert all("three significant digits" in measure(answer).message for answer in short)
    assert all(
        measure(answer).status == "hint" and "digits" not in measure(answer).message
        for answer in wrong
    )


def test_a_short_answer_is_not_taken_for_a_listed_mistake_that_it_is_also_near():
    tail = an_exercise(NumberCheck(lambda: 13.2427, hints=((12.954, "A logarithm."),)))
    assert "three significant" in tail(13).message and "logarithm" in tail(12.95).message


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("s", "prefixes"),
        ("", "prefixes"),
        ("GPUs", "prefixes"),
        ("share", "prefixes"),
        ("s", "eight"),
        ("times", "eight"),
        ("", "power of ten"),
    ],
)
def test_what_has_no_bytes_gets_no_hint_about_prefixes_or_bits(unit, words):
    check = an_exercise(NumberCheck(lambda: 6.48, unit=unit))
    for factor in (8, 1 / 8, 1.024, 1 / 1.024, 1024, 1e3, 0.1):
        assert words not in check(6.48 * factor).message


def test_a_number_near_a_prefix_by_chance_is_not_taken_for_one():
    """Each of these was once told that prefixes are mixed."""
    for value, answer in ((1.128859e12, 1.1e12), (17.948, 17.5), (16e6, 15.3e6), (4.1875, 4.0)):
        assert (
            "refix"
            not in an_exercise(NumberCheck(lambda value=value: value, unit="bytes"))(answer).message
        )


@pytest.mark.parametrize(
    "value", [6.48e12, 81, 8.0, 0.319149, 2.0, 16383, 1e9, 1.0, 1000, 1024, 100]
)
def test_no_hint_of_the_framework_leaks_any_value(value):
    check = an_exercise(NumberCheck(lambda: value, unit="x", both_directions=True))
    scaled = [
        value * factor for factor in (8, 1 / 8, 1e3, 1e-9, 2, 0.5, 100, 1.024, 1.0737, 2**30, -1, 3)
    ]
    for wrong in [*scaled, value + 1, value - 1, *ODD_ANSWERS]:
        verdict = check(wrong)
        assert verdict.passed or not leaks(verdict.message, value), (wrong, verdict)


@pytest.mark.parametrize(
    "text",
    [
        "6.48",
        "6.480",
        "about 6.48 TB.",
        "6,480 GB",
        "6480000000000",
        "6.48e12 B",
        "5.894 TiB",
        "= 6.48e+12",
    ],
)
def test_leaks_are_seen_in_every_usual_spelling(text):
    assert leaks(text, 6.48e12)


# --- functions ------------------------------------------------------------------------------------


def reference(n, times):
    return [n * time for time in times]


scale = an_exercise(
    FunctionCheck(
        reference,
        cases=((2, [1.0, 2.5]), (1, []), (3, [1.0])),
        seconds=0.2,
        mistakes=((lambda n, times: [n + time for time in times], "Added, not multiplied."),),
        explanation="Linear.",
    )
)


def test_the_reference_passes_and_so_does_any_equal():
    assert repr(scale(reference)) == "✓ Pass: Linear."
    assert scale(lambda n, times: tuple(n * time for time in times)).passed
    assert scale(functools.partial(reference)).passed

    class Scales:
        def __call__(self, n, times):
            return [np.float64(n * time) for time in times]

    assert scale(Scales()).passed

    def generated(n, times):
        for moment in times:
            yield n * moment

    assert scale(generated).passed


def stubs():
    def dots(n, times): ...

    def documented(n, times):
        """Scale."""

    def passes(n, times):
        pass

    def returns(n, times):
        return ...

    def yields(n, times):
        yield ...

    def raises(n, times):
        raise NotImplementedError("to do")

    def computes(n, times):
        factor = ...
        return [factor * time for time in times]

    return [
        ...,
        dots,
        documented,
        passes,
        returns,
        yields,
        raises,
        computes,
        lambda n, times: ...,
        lambda n, times: (..., ...),
    ]


@pytest.mark.parametrize("stub", stubs(), ids=lambda f: getattr(f, "__name__", "ellipsis"))
def test_every_stub_is_not_attempted(stub):
    assert scale(stub).status == "not attempted"


def prints(n, times):
    print([n * time for time in times])


def silent(n, times):
    n * len(times)


def mutates(n, times):
    for i in range(len(times)):
        times[i] *= n
    return times


def divides(n, times):
    return n / 0  # the learner's own line


def calls_numpy(n, times):
    return np.zeros(-n)


def recurses(n, times):
    return recurses(n, times)


def exits(n, times):
    sys.exit(3)


def interrupts(n, times):
    raise KeyboardInterrupt


async def asynchronous(n, times):
    return []


def shouts(n, times):
    print("x" * 50_000_000)
    return [n * time for time in times] + [0]


FUNCTIONS = [
    ("printed something", prints),
    ("returned none: is there", silent),
    ("changed its input", mutates),
    ("# the learner's own line", divides),
    ("np.zeros(-n)", calls_numpy),
    ("without end", recurses),
    ("exit()", exits),
    ("raised keyboardinterrupt", interrupts),
    ("async", asynchronous),
    ("too many items", shouts),
    ("too few items", lambda n, times: []),
    ("index 1", lambda n, times: [n * times[0], 0.0][: len(times)]),
    ("that is a number", lambda n, times: 7),
    ("that is a text", lambda n, times: "x"),
    ("that is an array", lambda n, times: n * np.array(times)),
    ("2 inputs", lambda n: n),
    ("added, not multiplied", lambda n, times: [time + n for time in times]),
    ("without parentheses", reference(1, [2.0])),
    ("without parentheses", 3),
    ("without parentheses", None),
    ("without parentheses", "scale"),
]


@pytest.mark.parametrize(("words", "answer"), FUNCTIONS)
def test_each_kind_of_wrong_function_gets_its_hint(words, answer):
    verdict = scale(answer)
    assert verdict.status == "hint" and words in verdict.message.lower()
    assert "Traceback" not in verdict.message and len(verdict.message) < 500


def test_the_line_named_is_the_learners():
    line = divides.__code__.co_firstlineno + 1
    assert (
        f"ZeroDivisionError: division by zero in line {line}: return n / 0"
        in scale(divides).message
    )
    assert f"in line {calls_numpy.__code__.co_firstlineno + 1}:" in scale(calls_numpy).message


def test_a_wrong_function_is_shown_what_it_did_and_not_what_is_right():
    verdict = an_exercise(FunctionCheck(lambda n: 37 * n, cases=((3,),)))(lambda n: 36 * n)
    assert "<lambda>(3) returned 108." in verdict.message and "111" not in verdict.message


def test_a_huge_result_is_shown_short_and_soon():
    start = time.monotonic()
    verdict = an_exercise(FunctionCheck(lambda: [1], cases=((),), seconds=5))(
        lambda: [0.1] * 3_000_000
    )
    assert len(verdict.message) < 300 and time.monotonic() - start < 2


def test_numbers_returned_get_the_hints_of_numbers():
    bandwidth = an_exercise(
        FunctionCheck(lambda gigabits: gigabits * 1e9 / 8, cases=((400,),), unit="B/s")
    )
    assert "eight" in bandwidth(lambda gigabits: gigabits * 1e9).message
    assert "power of ten" in bandwidth(lambda gigabits: gigabits / 8).message
    assert "nan" in bandwidth(lambda gigabits: float("nan")).message
    assert (
        "Off by one"
        in an_exercise(FunctionCheck(lambda n: n - 1, cases=((8,),)))(lambda n: n).message
    )
    assert bandwidth(lambda gigabits: np.array(gigabits * 1e9 / 8)).passed
    assert "Close, and not exact" in bandwidth(lambda gigabits: gigabits * 1.252e8).message
    assert (
        "power of ten"
        not in an_exercise(FunctionCheck(lambda n: n / 3, cases=((8,),)))(
            lambda n: 10 * n / 3
        ).message
    )


def test_a_function_that_draws_is_told_so():
    rng = np.random.default_rng(0)
    half = an_exercise(FunctionCheck(lambda n: n / 2, cases=((1000,),)))
    assert "without random numbers" in half(lambda n: rng.binomial(n, 0.5)).message
    assert "without random numbers" not in half(lambda n: 3 * n).message


@pytest.mark.parametrize(
    "number",
    [
        Decimal("2.5"),
        Fraction(5, 2),
        np.float32(2.5),
        np.longdouble(2.5),
        np.array(2.5),
        np.array(2.5, dtype=object),
        np.array(Fraction(5, 2), dtype=object),
    ],
)
def test_numbers_of_every_kind_may_be_returned(number):
    half = an_exercise(FunctionCheck(lambda n: n / 2, cases=((5,),)))
    halves = an_exercise(FunctionCheck(lambda n: [n / 2], cases=((5,),)))
    assert (
        half(lambda n: number).passed
        and halves(lambda n: [number]).passed
        and halves(lambda n: map(float, [number])).passed
    )
    assert not half(lambda n: number * 2).passed and not halves(lambda n: [number * 2]).passed


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_huge_whole_number_gets_a_hint(digits):
    half = an_exercise(FunctionCheck(lambda n: n / 2, cases=((5,),)))
    assert "Not this value" in half(lambda n: 10**digits).message
    assert "infinite" in half(lambda n: Fraction(10**digits)).message


class Agrees:
    """Says of itself that it is equal to everything, and has any length."""

    __eq__ = lambda self, other: True  # noqa: E731
    __hash__ = None
    __len__ = lambda self: 2  # noqa: E731
    __iter__ = lambda self: iter(())  # noqa: E731


def subclass(kind):
    return type(f"Agreeing{kind.__name__}", (Agrees, kind), {})


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (2.5, subclass(float)(7.0)),
        (2, subclass(int)(7)),
        ("ring", subclass(str)("tree")),
        ([1.0, 2.0], subclass(list)([7.0])),
        ((1.0, 2.0), subclass(tuple)((7.0,))),
        ({"a": 1, "b": 2}, subclass(dict)(a=7)),
        ({1, 2}, subclass(set)({7})),
        (frozenset({1, 2}), subclass(frozenset)({7})),
        (2.5, Agrees()),
        ([1.0, 2.0], Agrees()),
        (None, Agrees()),
        (np.ones(2), np.zeros(2).view(subclass(np.ndarray))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_has_no_say_in_whether_it_is_right(right, wrong):
    for wrap in (lambda value: value, lambda value: [value], lambda value: {"key": value}):
        assert (
            an_exercise(FunctionCheck(lambda: wrap(right), cases=((),)))(lambda: wrap(wrong)).status
            == "hint"
        )  # noqa: B023


def test_a_number_has_no_say_in_whether_it_is_right():
    assert (
        terabytes(subclass(float)(7.0)).status == "hint" and gpus(subclass(int)(7)).status == "hint"
    )
    assert terabytes(subclass(float)(6.48)).passed and gpus(subclass(int)(82)).passed


def test_a_judge_sees_plain_values_and_named_tuples():
    seen = []
    check = FunctionCheck(lambda: "ring", cases=((),), judge=seen.append)
    for answer in (
        np.str_("ring"),
        subclass(str)("ring"),
        [Transfer(np.int64(0), 1, subclass(int)(2))],
    ):
        assert check(lambda answer=answer: answer).passed
    assert [type(value) for value in seen] == [str, str, list] and type(seen[2][0]) is Transfer
    assert seen[2][0] == (0, 1, 2, False) and all(
        type(field) in (int, bool) for field in seen[2][0]
    )


def test_arrays_of_objects_are_compared_by_value():
    halves = an_exercise(FunctionCheck(lambda n: np.arange(n) / 2, cases=((4,),)))
    exact = np.array([Fraction(i, 2) for i in range(4)], dtype=object)
    assert halves(lambda n: exact).passed and not halves(lambda n: exact + 1).passed


def test_arrays_are_compared_by_shape_then_by_value():
    doubled = an_exercise(FunctionCheck(lambda a: 2 * a, cases=((np.arange(3.0),),)))
    assert doubled(lambda a: a + a).passed
    assert (
        "shape" in doubled(lambda a: (2 * a)[:2]).message
        and "list" in doubled(lambda a: list(2 * a)).message
    )
    assert "by hand" in doubled(lambda a: 3 * a).message
    assert "changed its input" in doubled(lambda a: np.multiply(a, 2, out=a)).message


def test_an_input_that_has_no_equality_is_not_taken_for_mutated():
    class Opaque:
        pass

    assert an_exercise(FunctionCheck(lambda o: 1, cases=((Opaque(),),)))(lambda o: 1).passed


def test_a_judge_decides_in_place_of_the_comparison():
    def judge(result, n):
        return None if sorted(result) == list(range(n)) else "Not a permutation."

    permutation = an_exercise(
        FunctionCheck(
            lambda n: list(range(n)),
            cases=((4,), (1,)),
            judge=judge,
            mistakes=((lambda n: list(range(1, n + 1)), "Ranks start at zero."),),
        )
    )
    assert permutation(lambda n: list(range(n))[::-1]).passed
    assert "Not a permutation." in permutation(lambda n: [0] * n).message
    assert "start at zero" in permutation(lambda n: list(range(1, n + 1))).message
    assert "It cannot be read" in permutation(lambda n: 5).message
    assert audit(permutation) == []
    assert (
        permutation(lambda n: [0] * n).message
        == "<lambda>(4) returned [0, 0, 0, 0]. Not a permutation."
    )
    assert (
        permutation(lambda n: [0] * 99).message == "<lambda>(4): Not a permutation."
    )  # too long to be shown


# --- deadlines ------------------------------------------------------------------------------------


def spins():
    while True:
        pass


def spins_in_bare_except():
    while True:
        try:
            spins()
        except:  # noqa: E722
            pass


def sleeps():
    time.sleep(60)


def sleeps_in_bare_except():
    while True:
        try:
            time.sleep(60)
        except:  # noqa: E722
            pass


def sleeps_in_nested_bare_excepts():
    while True:
        try:
            try:
                try:
                    time.sleep(60)
                except:  # noqa: E722
                    pass
            except:  # noqa: E722
                pass
        except BaseException:
            continue


def swallows_and_returns():
    try:
        time.sleep(60)
    except BaseException:
        return 1


def floods():
    while True:
        print("x" * 1000)


def yields_forever():
    while True:
        yield 1
        time.sleep(0.001)


def disarms():
    signal.setitimer(signal.ITIMER_REAL, 0)
    spins()


def disarms_and_sleeps():
    signal.setitimer(signal.ITIMER_REAL, 0)
    time.sleep(60)


def disarms_in_bare_except():
    while True:
        try:
            disarms()
        except:  # noqa: E722
            pass


def takes_the_signal():
    signal.signal(signal.SIGALRM, lambda *_: None)
    spins()


def blocks_the_signal():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    spins()


class Loops:
    """Never comes to an end of saying what it is."""

    def __repr__(self):
        spins()

    __eq__ = __float__ = __len__ = __iter__ = __str__ = __repr__
    __hash__ = None


class LoopsAsNumber(Loops, float):
    pass


numbers.Real.register(Real := type("Real", (Loops,), {}))


class LoopsByClass:
    @property
    def __class__(self):
        spins()


ENDLESS = [
    disarms,
    disarms_and_sleeps,
    disarms_in_bare_except,
    takes_the_signal,
    blocks_the_signal,
    spins,
    spins_in_bare_except,
    sleeps,
    sleeps_in_bare_except,
    sleeps_in_nested_bare_excepts,
    swallows_and_returns,
    floods,
    yields_forever,
]


@pytest.mark.parametrize("endless", ENDLESS)
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals on this system")
def test_an_endless_function_is_stopped_and_the_next_is_graded(endless):
    one = an_exercise(FunctionCheck(lambda: 1, cases=((),), seconds=0.1))
    handlers, tracer = (
        (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)),
        sys.gettrace(),
    )
    start, threads = time.monotonic(), threading.active_count()
    assert "ran longer than 0.1 s" in one(endless).message
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    assert time.monotonic() - start < 3
    assert threading.active_count() == threads
    assert one(lambda: 1).passed and one(lambda: 2).status == "hint"
    assert (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)) == handlers
    assert sys.gettrace() is tracer and signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize(
    "make",
    [Loops, lambda: LoopsAsNumber(7), Real, LoopsByClass, lambda: np.array(Real(), dtype=object)],
    ids=["object", "float", "Real", "class", "array"],
)  # what pytest was given, it would ask and show
def test_a_value_that_loops_is_stopped(make, monkeypatch):
    value = make()
    monkeypatch.setattr(number, "READING_S", 0.1)
    start = time.monotonic()
    one = an_exercise(FunctionCheck(lambda: 1, cases=((),), seconds=0.1))
    for answer in (lambda: value, lambda: [value], lambda: {1: value}):
        assert one(answer).status == "hint"
    for exercise in (terabytes, gpus, one):
        assert exercise(value).status == "hint"
    assert time.monotonic() - start < 6


@pytest.mark.parametrize("make", [Loops, lambda: LoopsAsNumber(7)], ids=["object", "float"])
def test_what_is_done_to_an_input_is_read_in_time_too(make):
    def puts(values):
        values[0] = make()
        return 1

    one = an_exercise(FunctionCheck(lambda values: 1, cases=(([1],),), seconds=0.1))
    assert "changed its input" in one(puts).message


def test_an_error_that_loops_is_stopped():
    class Broken(Exception):
        __str__ = Loops.__repr__

    def raises():
        raise Broken

    assert (
        "could not be read to its end"
        in an_exercise(FunctionCheck(lambda: 1, cases=((),), seconds=0.05))(raises).message
    )


@pytest.mark.parametrize(
    "items",
    [lambda: itertools.repeat([]), lambda: [itertools.count()], lambda: {1: itertools.count()}],
)
def test_an_iterator_without_end_is_told_from_a_long_one(items):
    start = time.monotonic()
    judged = an_exercise(FunctionCheck(lambda: [1], cases=((),), judge=lambda result: None))
    assert "10,000 items and was stopped. Does every loop come to its end?" in judged(items).message
    assert time.monotonic() - start < 1
    assert (
        judged(lambda: iter([0] * answers.MOST_ITEMS)).passed
        and not judged(lambda: iter([0] * 10_001)).passed
    )


def test_outside_of_the_main_thread_too():
    one = an_exercise(FunctionCheck(lambda: 1, cases=((),), seconds=0.1))
    before, messages = threading.active_count(), []

    def grade():
        messages.extend(
            one(answer).message for answer in (spins, spins_in_bare_except, sys.exit, lambda: 1)
        )

    thread = threading.Thread(target=grade)
    thread.start()
    thread.join(10)
    spun, spun_again, left, right = messages
    assert "ran longer" in spun and "ran longer" in spun_again and "exit()" in left and right == ""
    assert threading.active_count() == before


def test_a_sleeper_in_a_thread_is_left_behind_in_time():
    start = time.monotonic()
    assert deadline._call_in_thread(0.1, lambda: time.sleep(2)).timed_out
    assert time.monotonic() - start < 1.5


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals on this system")
def test_an_outer_timer_goes_on():
    rung = []
    previous = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.25)
        assert call_within(0.1, sleeps).timed_out and not rung
        time.sleep(0.4)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.skipif(os.name == "nt", reason="a signal to oneself")
@pytest.mark.parametrize("swallow", [False, True])
def test_the_users_interrupt_passes_through(swallow, interruptible):
    def learner():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            if not swallow:
                raise
        return 1

    with pytest.raises(KeyboardInterrupt):
        an_exercise(FunctionCheck(lambda: 1, cases=((),), seconds=5))(learner)
    assert call_within(1, lambda: 2).value == 2


def test_output_is_caught_and_a_flood_costs_no_memory(capsys):
    outcome = call_within(1, lambda: print("y" * 10**6))
    assert outcome.printed == "y" * deadline.KEPT_CHARACTERS and capsys.readouterr().out == ""


def test_run_all_goes_on_in_a_plain_script():
    script = textwrap.dedent("""
        from dtlib.teaching.checks import FunctionCheck
        one = FunctionCheck(lambda: 1, cases=((),), seconds=0.2)
        def loop():
            while True:
                try:
                    pass
                except:
                    pass
        print(one(loop).status, one(lambda: exit()).status, one(lambda: 1).status)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == ["hint", "hint", "pass"]


# --- verdicts, exercises, audit -------------------------------------------------------------------


def test_a_verdict_reads_without_color_and_escapes_what_it_shows():
    page = Verdict("hint", "f(1) raised <b>")._repr_html_()
    assert (
        "→ Hint" in page
        and "&lt;b&gt;" in page
        and "currentColor" in page
        and 'role="status"' in page
    )
    pages = [Verdict(status)._repr_html_() for status in ("pass", "hint", "not attempted")]
    assert [page.split("0.3em ")[1].split()[0] for page in pages] == ["solid", "dashed", "dotted"]


class Hostile:
    def __repr__(self):
        raise ValueError("no")

    __eq__ = __bool__ = __len__ = __call__ = __array__ = __float__ = __repr__


@pytest.mark.parametrize("exercise", [terabytes, gpus, link, share, prediction, scale])
def test_nothing_makes_an_exercise_raise(exercise):
    for answer in [
        *ODD_ANSWERS,
        Hostile(),
        Hostile,
        type,
        np.datetime64("2024-01-01"),
        np.array(None),
        [[]],
        lambda *inputs: Hostile(),
        1e308,
        -(10**400),
    ]:
        assert exercise(answer).status in ("hint", "pass", "not attempted")


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(checks, "EXERCISES", {})
    return checks.EXERCISES


def test_define_enters_an_exercise_and_documents_it(registry):
    fields = dict(
        chapter="demo",
        kind="compute",
        minutes=3,
        points=1,
        task="How many?",
        check=NumberCheck(lambda: 4),
    )
    check_it = define("it", title="It", **fields)
    assert checks.exercise("it") is check_it and list(registry) == ["it"]
    assert check_it.__doc__ == "It (compute, 3 min)\n\nHow many?" and check_it(4).passed
    assert define("it", title="It", **fields) is registry["it"]
    with pytest.raises(ValueError, match="'it' is taken"):
        define("it", title="Another", **fields)
    with pytest.raises(ValueError, match="kind must be one of"):
        define("that", title="That", **fields | {"kind": "quiz"})
    with pytest.raises(KeyError, match="no exercise 'that'"):
        checks.exercise("that")


def test_the_examples_of_the_documentation_define_two_sound_exercises(registry):
    lines = [line for line in checks.__doc__.splitlines() if line.startswith("    ") or not line]
    names = {}
    exec(textwrap.dedent("\n".join(lines)), names)
    assert sorted(registry) == ["barrier-idle", "barrier-step-time"]
    assert [audit(exercise) for exercise in registry.values()] == [[], []]


@pytest.mark.parametrize("exercise", [terabytes, gpus, link, share, prediction, scale])
def test_the_audit_has_nothing_to_say_about_sound_exercises(exercise):
    assert audit(exercise) == []


@pytest.mark.parametrize(
    ("check", "complaint"),
    [
        (NumberCheck(lambda: 82, hints=((80, "It is 82 in all."),)), "contains the answer"),
        (NumberCheck(lambda: 82, hints=((82, "Too many."),)), "deserves"),
        (NumberCheck(lambda: 5.3, rtol=0.25, hints=((5.0, "Near."),)), "deserves"),
        (NumberCheck(lambda: 82, hints=((80, "No."), (70, "No."))), "share a hint"),
        (
            FunctionCheck(lambda n: n, cases=((1,),), mistakes=((lambda n: n * n, "Squared."),)),
            "deserves",
        ),
        (
            FunctionCheck(lambda n: n, cases=((1,),), judge=lambda result, n: "Never."),
            "does not pass",
        ),
    ],
)
def test_the_audit_catches_a_faulty_exercise(check, complaint):
    assert any(complaint in said for said in audit(an_exercise(check)))
