"""Bad input is refused by name and value, before any work."""

import datetime

import numpy as np
import pytest

from dtlib.arguments import (
    broadcasting,
    choice,
    divisible,
    instance,
    plain,
    real_number,
    whole_number,
)

NAN, INF = float("nan"), float("inf")
NO_NUMBERS = [
    "8",
    True,
    None,
    [8],
    b"8",
    3j,
    np.array([True]),
    np.array(["8"]),
    np.array([8], dtype=object),
    np.timedelta64(8, "s"),
    np.array([8], dtype="m8[s]"),
    datetime.timedelta(8),
]
TOO_LARGE = [10**400, 10**5000, np.array([1, 2**63 - 1]), np.array([2**64 - 1], dtype=np.uint64)]


@pytest.mark.parametrize("good", [1, 8, np.int64(8), np.uint8(3), np.array(5), 2**53])
def test_counts(good):
    assert whole_number("ranks", good) == int(good) and type(whole_number("ranks", good)) is int


def test_arrays_of_counts_only_where_asked():
    for dtype in ("int8", "uint8", "int32", "uint64"):
        counted = whole_number("ranks", np.array([1, 100], dtype=dtype), array=True)
        assert counted.tolist() == [1, 100] and counted.dtype == np.int64
    with pytest.raises(TypeError, match="^ranks must be a whole number, got array"):
        whole_number("ranks", np.array([1, 2]))
    with pytest.raises(TypeError, match=r"^rate must be a number, got array\(\[1\]\) \(ndarray\)"):
        real_number("rate", np.array([1]), array=False)
    with pytest.raises(ValueError, match="^ranks must be at least 1, got array"):
        whole_number("ranks", np.array([1, 0]), array=True)


@pytest.mark.parametrize("bad", [0, -1, 2.5, 8.0, NAN, INF, *NO_NUMBERS], ids=repr)
def test_bad_counts_name_the_parameter_and_the_value(bad):
    with pytest.raises((TypeError, ValueError), match="^ranks must be") as error:
        whole_number("ranks", bad, array=True)
    assert repr(bad) in str(error.value)


@pytest.mark.parametrize("bad", [0, -1, NAN, INF, *NO_NUMBERS], ids=repr)
def test_bad_quantities_name_the_parameter_and_the_value(bad):
    with pytest.raises((TypeError, ValueError), match="^bandwidth_Bps must be") as error:
        real_number("bandwidth_Bps", bad, unit="B/s", zero=False)
    assert repr(bad) in str(error.value)


@pytest.mark.parametrize("bad", [2**53 + 1, np.uint64(2**64 - 1), *TOO_LARGE], ids=type)
def test_counts_beyond_2_to_the_53_are_refused(bad):
    with pytest.raises(ValueError, match="^ranks must be at most 9007199254740992, got"):
        whole_number("ranks", bad, array=True)


@pytest.mark.parametrize(
    "bad",
    [1e31, -1e31, 10**400, -(10**400), 10**5000, np.array([1.0, 1e308]), np.longdouble("1e400")],
    ids=type,
)
def test_quantities_beyond_1e30_are_refused_however_strict_numpy_is(bad):
    with (
        np.errstate(all="raise"),
        pytest.raises(ValueError, match=r"^change must be finite and at most ±1e\+30 B, got"),
    ):
        real_number("change", bad, unit="B", negative=True)


def test_limits():
    assert real_number("share", 1, at_most=1) == 1.0 and real_number("x", -2, negative=True) == -2
    with pytest.raises(ValueError, match="^share must be at most 1, got 1.5"):
        real_number("share", 1.5, at_most=1)
    with pytest.raises(ValueError, match="^stage must be at most 3, got 4"):
        whole_number("stage", 4, at_least=0, at_most=3)
    assert real_number("rate", 5e-324) == 5e-324 and real_number("rate", 1e-30, zero=False) == 1e-30
    with pytest.raises(ValueError, match="^rate must be at least 1e-30, got 5e-324"):
        real_number("rate", 5e-324, zero=False)


def test_a_choice_is_compared_with_its_type():
    for right in (1, np.int8(1), np.array(1)):
        assert choice("stage", right, (0, 1)) == 1 and type(choice("stage", right, (0, 1))) is int
    for bad in (True, np.True_, 1.0, np.float64(1), "1", np.timedelta64(1), np.array([1]), [1]):
        with pytest.raises(ValueError, match="^stage must be one of 0, 1, got"):
            choice("stage", bad, (0, 1))
    assert choice("causal", np.False_, (True, False)) is False
    assert choice("rate", np.float32(0.5), (0.25, 0.5)) == 0.5
    assert choice("order", (1, 0), [(0, 1), (1, 0)]) == (1, 0)


def test_a_result_without_a_dimension_is_a_python_number():
    assert type(plain(np.float64(2))) is float and type(plain(np.array(2))) is int
    curve = np.array([1, 2])
    assert plain(curve) is curve


def test_divisible_names_both_numbers():
    assert divisible("heads", 48, "tp", 8) == 6
    with pytest.raises(ValueError, match="^heads=52 is not divisible by tp=8: 52 / 8 leaves 4"):
        divisible("heads", 52, "tp", 8)


def test_a_value_that_cannot_be_shown_is_still_named():
    class Shy:
        def __repr__(self):
            raise RuntimeError

    with pytest.raises(TypeError, match="^ranks must be a whole number, got <Shy>"):
        whole_number("ranks", Shy())
    with pytest.raises(TypeError) as error:
        whole_number("ranks", "x" * 1000)
    assert len(str(error.value)) < 150


def test_an_instance_is_of_one_of_the_kinds():
    assert instance("shape", 3, int, tuple) == 3
    for bad in (None, int, "3"):
        with pytest.raises(TypeError, match="^shape must be an int or a tuple, got"):
            instance("shape", bad, int, tuple)


def test_a_closed_form_keeps_its_name_broadcasts_and_may_underflow():
    @broadcasting
    def product(one, other=2):
        """A product."""
        return one * other

    assert (product.__name__, product.__doc__) == ("product", "A product.")
    assert product(3) == 6 and product(np.ones((2, 1)), other=np.ones(3)).shape == (2, 3)
    with pytest.raises(
        ValueError, match=r"^the shapes of one \(2,\) and other \(3,\) do not broadcast"
    ):
        product(np.ones(2), other=np.ones(3))
    with np.errstate(all="raise"):
        assert product(np.array([1e-300]), 1e-300).tolist() == [0]
