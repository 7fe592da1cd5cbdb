# ruff: noqa: SIM105 - the answers below swallow exceptions on purpose, as a learner might
"""The framework behind the exercises: what it answers to each kind of answer, and that it does.

No test here depends on how fast the machine is: what must be stopped has a short limit and never
ends by itself, what must pass has a limit of minutes.
"""

import builtins
import functools
import itertools
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

from dtlib.deadline import call_within
from dtlib.simulators.schedule import Transfer
from dtlib.teaching import checks
from dtlib.teaching.audit import ODD_ANSWERS, audit, leaks
from dtlib.teaching.checks import Exercise, FunctionCheck, NumberCheck, define
from dtlib.teaching.verdict import Verdict
from dtlib.tolerance import is_right, tolerance_of
from dtlib.views.prediction import Prediction


def an_exercise(check):
    return Exercise("demo", "demo", "Demo", "compute", 1, 1, "Do it.", check)


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
tail = an_exercise(NumberCheck(lambda: 13.2427, hints=((12.954, "A logarithm."),)))


def reference(n, times):
    return [n * time for time in times]


scale = an_exercise(
    FunctionCheck(
        reference,
        cases=((2, [1.0, 2.5]), (1, []), (3, [1.0])),
        seconds=300,
        hints=((lambda n, times: [n + time for time in times], "Added, not multiplied."),),
        explanation="Linear.",
    )
)
half = an_exercise(FunctionCheck(lambda n: n / 2, cases=((5,), (1000,)), seconds=300))


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        6.48,
        6.5,
        6.4799,
        np.float32(6.48),
        np.longdouble(6.48),
        np.array(6.48),
        np.array(Decimal("6.48"), dtype=object),
        Decimal("6.48"),
        Fraction(648, 100),
    ],
)
def test_numbers_of_every_kind_pass(answer):
    assert repr(terabytes(answer)) == "Pass: 16 bytes."


@pytest.mark.parametrize("answer", [82, 82.0, np.uint8(82), np.array(82), 820 * 0.1])
def test_a_count_may_be_of_any_kind_and_is_exact(answer):
    assert gpus(answer).passed and not gpus(82.2).passed
    assert "Off by one" in an_exercise(NumberCheck(lambda: 68_976_648_192))(68_976_648_193).message


@pytest.mark.parametrize("right", [12.557, 6.4307e-6, 999.6, 1.0049, -0.31915, 4.5e11])
def test_three_digits_always_count_and_a_percent_never(right):
    assert is_right(float(f"{right:.2e}"), right)
    assert is_right(right * 1.0049, right) and not is_right(right * 1.0051, right)
    assert not is_right(right * 0.99, right) and not is_right(-right, right)


def test_predictions_and_exercises_have_one_rule():
    for right in (81, np.int64(81), 81.5, -0.25):
        prediction = Prediction("p", "How many?", "s", right, "Because.")
        assert prediction.tolerance == tolerance_of(right)
        for answer in (right * (1 + 0.0049), right * (1 - 0.0051)):
            accepted = abs(answer / right - 1) <= prediction.tolerance  # as prediction.js has it
            assert an_exercise(NumberCheck(lambda right=right: right))(answer).passed == accepted


KINDS = [
    ("print", terabytes, None),
    ("a text", terabytes, np.str_("6.48")),
    ("truth value", terabytes, np.True_),
    ("of type complex", terabytes, 6.48j),
    ("collection", terabytes, [6.48]),
    ("collection", terabytes, np.ones((2, 2))),
    ("parentheses", terabytes, lambda: 6.48),
    ("of type object", terabytes, object()),
    ("of type timedelta64", terabytes, np.timedelta64(6)),
    ("this is nan", gpus, Decimal("nan")),
    ("this is inf", terabytes, Fraction(10**400)),
    ("weights alone", terabytes, 0.81),
    ("counts bytes", gpus, 1312),
    ("sign", terabytes, -6.48),
    ("negative", gpus, -80),
    ("eight", link, 450e9 / 8),
    ("power of ten", terabytes, 6.48e-9),
    ("power of ten", gpus, 8200),
    ("prefixes are mixed", terabytes, 6.48e12 / 2**40),
    ("prefixes are mixed", terabytes, 6.48 * 1.024),
    ("binary prefix", terabytes, 6.48 * 2**30),
    ("percent", share, 31.9),
    ("one direction", link, 900e9),
    ("off by one", gpus, 83.0),
    ("not this value", terabytes, 7),
    ("not this value", terabytes, 0),
    ("not this value", terabytes, 10**400),
    ("not this value", terabytes, 6.48 * 2),
    ("close: give three", terabytes, 6.4),
    ("close: give three", tail, 13),
    ("a logarithm", tail, 12.95),
]


@pytest.mark.parametrize(("words", "exercise", "answer"), KINDS)
def test_each_kind_of_wrong_number_gets_its_hint(words, exercise, answer):
    verdict = exercise(answer)
    assert verdict.status == "hint" and words in verdict.message.lower()
    assert not leaks(verdict.message, exercise.check.reference)


def test_of_two_listed_values_the_nearer_one_is_told():
    close = an_exercise(NumberCheck(lambda: 5.0, hints=((9.98, "One."), (10.01, "Other."))))
    assert close(10).message == "Other." and close(9.97).message == "One."


@pytest.mark.parametrize("unit", ["s", "GPUs", "times", ""])
def test_what_has_no_bytes_gets_no_hint_about_prefixes_or_bits(unit):
    check = an_exercise(NumberCheck(lambda: 6.48, unit=unit))
    for factor in (8, 1 / 8, 1.024, 1024, 1e3):
        assert not any(word in check(6.48 * factor).message for word in ("prefix", "bits"))


def test_a_number_near_a_prefix_by_chance_is_not_taken_for_one():
    """Each of these was once told that prefixes are mixed."""
    for value, answer in ((1.128859e12, 1.1e12), (17.948, 17.5), (16e6, 15.3e6), (4.1875, 4.0)):
        check = an_exercise(NumberCheck(lambda value=value: value, unit="bytes"))
        assert "refix" not in check(answer).message


@pytest.mark.parametrize("text", ["6.480", "6,480 GB", "6480000000000", "6.48e12 B", "5.894 TiB"])
def test_leaks_are_seen_in_every_usual_spelling(text):
    assert leaks(text, 6.48e12) and not leaks(text, 7.1e12)


# --- functions ------------------------------------------------------------------------------------


def test_the_reference_passes_and_so_does_any_equal():
    assert repr(scale(reference)) == "Pass: Linear."
    assert scale(functools.partial(reference)).passed
    assert scale(lambda n, times: (np.float64(n * time) for time in times)).passed
    assert scale(lambda n, times: tuple(Fraction(n * time) for time in times)).passed
    assert half(lambda n: np.array(n / 2)).passed and half(lambda n: Decimal(n) / 2).passed


def documented(n, times):
    """Scale."""


def raises(n, times):
    raise NotImplementedError("to do")


def yields(n, times):
    yield ...


def computes(n, times):
    factor = ...
    return [factor * time for time in times]


@pytest.mark.parametrize(
    "stub", [..., documented, raises, yields, computes, lambda n, times: (..., ...)]
)
def test_every_stub_is_not_attempted(stub):
    assert scale(stub).status == "not attempted"


def mutates(n, times):
    for i in range(len(times)):
        times[i] *= n
    return times


def divides(n, times):
    return n / 0  # the learner's own line


def recurses(n, times):
    return recurses(n, times)


FUNCTIONS = [
    ("printed something", scale, lambda n, times: print(times)),
    ("returned none: is there", scale, lambda n, times: times.copy().clear()),
    ("changed its input", scale, mutates),
    ("zerodivisionerror: division by zero in line", scale, divides),
    ("return n / 0  # the learner's own line", scale, divides),
    ("np.zeros(-n)", scale, lambda n, times: np.zeros(-n)),
    ("without end", scale, recurses),
    ("exit()", scale, lambda n, times: sys.exit(3)),
    ("too many items", scale, lambda n, times: [n * time for time in times] + [0]),
    ("index 1", scale, lambda n, times: [n * times[0], 0.0]),
    ("that is a number", scale, lambda n, times: 7),
    ("that is an array", scale, lambda n, times: n * np.array(times)),
    ("2 inputs", scale, lambda n: n),
    ("added, not multiplied", scale, lambda n, times: [time + n for time in times]),
    ("without parentheses", scale, reference(1, [2.0])),
    ("10,000 items", scale, lambda n, times: itertools.repeat(n)),
    ("power of ten", an_exercise(FunctionCheck(float, ((3,),), unit="B")), lambda n: 1e3 * n),
    ("off by one", an_exercise(FunctionCheck(int, ((3,),))), lambda n: n + 1),
    ("close, and not exact", half, lambda n: n * 0.5001),
    ("this is nan", half, lambda n: float("nan")),
    ("not this value", half, lambda n: 10**5000),
    ("without random numbers", half, lambda n: np.random.default_rng().normal(n)),
]


@pytest.mark.parametrize(("words", "exercise", "answer"), FUNCTIONS)
def test_each_kind_of_wrong_function_gets_its_hint(words, exercise, answer):
    verdict = exercise(answer)
    assert verdict.status == "hint" and words in verdict.message.lower()
    assert len(verdict.message) < 500


def test_a_wrong_function_is_shown_what_it_did_and_not_what_is_right():
    verdict = an_exercise(FunctionCheck(lambda n: 37 * n, cases=((3,),)))(lambda n: 36 * n)
    assert "<lambda>(3) returned 108." in verdict.message and "111" not in verdict.message


def test_arrays_are_compared_by_shape_then_by_value():
    doubled = an_exercise(FunctionCheck(lambda a: 2 * a, cases=((np.arange(3.0),),), seconds=300))
    assert doubled(lambda a: a + a).passed
    assert "shape" in doubled(lambda a: (2 * a)[:2]).message
    assert "by hand" in doubled(lambda a: 3 * a).message
    assert "changed its input" in doubled(lambda a: np.multiply(a, 2, out=a)).message


def test_a_judge_decides_in_place_of_the_comparison_and_sees_plain_values():
    seen = []

    def judge(result, n):
        seen.append(result)
        return None if sorted(result) == list(range(n)) else "Not a permutation."

    ordered = (lambda n: list(range(1, n + 1)), "Ranks start at zero.")
    permutation = an_exercise(
        FunctionCheck(lambda n: list(range(n)), ((4,), (1,)), (ordered,), judge, seconds=300)
    )
    assert permutation(lambda n: list(map(np.int64, range(n)))[::-1]).passed
    assert type(seen[0][0]) is int
    assert "start at zero" in permutation(lambda n: list(range(1, n + 1))).message
    assert "It cannot be read" in permutation(lambda n: 5).message
    assert permutation(lambda n: [0] * n).message.endswith("[0, 0, 0, 0]. Not a permutation.")
    assert permutation(lambda n: [0] * 99).message == "<lambda>(4): Not a permutation."  # too long
    assert audit(permutation) == []
    steps = an_exercise(FunctionCheck(list, (((),),), judge=lambda result, _: seen.append(result)))
    assert steps(lambda _: [Transfer(np.int64(0), 1, 2)]).passed and seen[-1][0].chunk == 2


# --- time limits and builtins ---------------------------------------------------------------------


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
    while True:
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
                sleeps()
            except:  # noqa: E722
                pass
        except BaseException:
            continue


def swallows_and_returns():
    try:
        sleeps()
    except BaseException:
        return 1


def floods():
    while True:
        print("x" * 1000)


def yields_forever():
    while True:
        yield from ()


needs_signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals")
ENDLESS = [
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
@needs_signals
def test_an_endless_function_is_stopped_and_the_next_is_graded(endless):
    before = signal.getsignal(signal.SIGALRM), sys.gettrace(), threading.active_count()
    stopped = an_exercise(FunctionCheck(lambda: 1, cases=((),), seconds=0.05))(endless)
    assert "ran longer than 0.05 s and was stopped" in stopped.message
    after = signal.getsignal(signal.SIGALRM), sys.gettrace(), threading.active_count()
    assert after == before and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert half(lambda n: n / 2).passed and half(lambda n: n).status == "hint"


def test_outside_of_the_main_thread_too():
    said, wake = [], threading.Event()

    def spins_until_woken():
        while not wake.is_set():
            pass

    def grade():
        limited = an_exercise(FunctionCheck(lambda: 1, cases=((),), seconds=0.05))
        said.extend(limited(answer).message for answer in (spins_until_woken, wake.wait))
        said.append(scale(reference).message)

    thread = threading.Thread(target=grade)
    thread.start()
    thread.join()
    wake.set()
    spun, slept, right = said
    assert "until you restart the kernel" in spun and "until you restart" in slept
    assert right == "Linear."


@pytest.mark.skipif(os.name == "nt", reason="a signal to oneself")
def test_the_users_interrupt_passes_through(interruptible):
    with pytest.raises(KeyboardInterrupt):
        half(lambda n: signal.raise_signal(signal.SIGINT))
    assert half(lambda n: n / 2).passed


@needs_signals
def test_a_call_that_sleeps_in_c_is_stopped():
    assert call_within(0.05, time.sleep, 10**6).timed_out


def test_a_limit_must_be_a_time():
    with pytest.raises(ValueError, match="seconds must be above 0 s, got -1"):
        call_within(-1, spins)


@pytest.mark.parametrize("name", ["len", "print", "isinstance", "getattr", "type", "KeyError"])
def test_a_replaced_builtin_is_put_back_and_named(name):
    original = getattr(builtins, name)

    def replaces(n):
        setattr(builtins, name, lambda *_: 7)
        return n / 2

    def deletes(n):
        delattr(builtins, name)

    for answer in (replaces, deletes):
        verdict = half(answer)
        assert verdict.status == "hint" and f"replaced Python's own {name}" in verdict.message
        assert getattr(builtins, name) is original
    assert half(lambda n: n / 2).passed


# --- verdicts, exercises, audit -------------------------------------------------------------------


def test_a_verdict_reads_without_color_and_escapes_what_it_shows():
    page = Verdict("hint", "f(1) raised <b>")._repr_html_()
    assert all(part in page for part in ("→ Hint", "&lt;b&gt;", "currentColor", 'role="status"'))
    pages = [Verdict(status)._repr_html_() for status in ("pass", "hint", "not attempted")]
    assert [page.split("0.3em ")[1].split()[0] for page in pages] == ["solid", "dashed", "dotted"]


def test_verdicts_and_predictions_print_in_ascii():
    script = textwrap.dedent("""
        from dtlib.teaching.exercises.all_reduce import check_choice
        from dtlib.views.predictions import all_reduce
        print(check_choice(...), check_choice(lambda size: "naive"), all_reduce.tiny_payload)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert "Hint: " in done.stdout and r"5 \xb5s" in done.stdout


class Hostile:
    def __repr__(self):
        raise ValueError("no")

    __eq__ = __bool__ = __len__ = __call__ = __array__ = __float__ = __repr__


@pytest.mark.parametrize("exercise", [terabytes, gpus, link, share, scale])
def test_nothing_makes_an_exercise_raise_or_tell(exercise):
    for answer in [*ODD_ANSWERS, Hostile(), type, [[]], lambda *inputs: Hostile()]:
        assert exercise(answer).status in ("hint", "not attempted")
    assert audit(exercise) == []


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
    exec(textwrap.dedent("\n".join(lines)), {})
    assert sorted(registry) == ["barrier-idle", "barrier-step-time"]
    assert [audit(exercise) for exercise in registry.values()] == [[], []]


@pytest.mark.parametrize(
    ("check", "complaint"),
    [
        (NumberCheck(lambda: 82, hints=((80, "It is 82 in all."),)), "contains the answer"),
        (NumberCheck(lambda: 5.3, hints=((5.28, "Near."),)), "deserves"),
        (NumberCheck(lambda: 82, hints=((80, "No."), (70, "No."))), "share a hint"),
        (FunctionCheck(int, ((1,),), ((lambda n: n * n, "Squared."),)), "deserves"),
        (FunctionCheck(int, ((1,),), judge=lambda result, n: "Never."), "does not pass"),
    ],
)
def test_the_audit_catches_a_faulty_exercise(check, complaint):
    assert any(complaint in said for said in audit(an_exercise(check)))
