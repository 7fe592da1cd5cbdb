"""Bad input is refused by name and value, before any work."""

import numpy as np
import pytest

from dtlib.arguments import choice, count, divisible, quantity


@pytest.mark.parametrize("good", [1, 8, np.int64(8), np.uint8(3), np.array(5), 2**80])
def test_counts(good):
    assert count("ranks", good) == int(good) and type(count("ranks", good)) is int


def test_arrays_of_counts_only_where_asked():
    assert count("ranks", np.array([1, 2]), array=True).tolist() == [1, 2]
    with pytest.raises(TypeError, match="ranks"):
        count("ranks", np.array([1, 2]))
    with pytest.raises(ValueError, match="ranks must be at least 1"):
        count("ranks", np.array([1, 0]), array=True)


@pytest.mark.parametrize("bad", [0, -1, 2.5, 8.0, float("nan"), float("inf"), "8", True, None, [8], np.array([True]), b"8", 3j])
def test_bad_counts_name_the_parameter_and_the_value(bad):
    with pytest.raises((TypeError, ValueError)) as error:
        count("ranks", bad, array=True)
    assert "ranks" in str(error.value) and repr(bad) in str(error.value)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "8", True, None, [8.0], np.array([True]), 3j])
def test_bad_quantities_name_the_parameter_and_the_value(bad):
    with pytest.raises((TypeError, ValueError)) as error:
        quantity("bandwidth_Bps", bad, unit="B/s", zero=False)
    assert "bandwidth_Bps" in str(error.value) and repr(bad) in str(error.value)


def test_limits():
    assert quantity("share", 1, at_most=1) == 1.0
    with pytest.raises(ValueError, match="share must be at most 1, got 1.5"):
        quantity("share", 1.5, at_most=1)
    with pytest.raises(ValueError, match="stage must be at most 3, got 4"):
        count("stage", 4, at_least=0, at_most=3)


def test_a_choice_is_compared_with_its_type():
    assert choice("stage", 1, (0, 1)) == 1
    for bad in (True, 1.0, "1"):
        with pytest.raises(ValueError, match="stage must be one of 0, 1, got"):
            choice("stage", bad, (0, 1))


def test_a_long_value_is_cut():
    with pytest.raises(TypeError) as error:
        count("ranks", "x" * 1000)
    assert len(str(error.value)) < 150


def test_divisible_names_both_numbers():
    assert divisible("heads", 48, "tp", 8) == 6
    with pytest.raises(ValueError, match="heads=52 is not divisible by tp=8"):
        divisible("heads", 52, "tp", 8)
