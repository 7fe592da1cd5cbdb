"""Units: decimal and binary bytes, bits, and the text of a quantity (careful readers: GB is not
GiB, Gb is not GB).
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtlib import units


def test_decimal_and_binary_bytes_differ():
    assert units.GB == 1e9 and units.GiB == 1_073_741_824
    assert units.binary(80 * units.GB) == "74.5 GiB" and units.si(80 * units.GB) == "80 GB"


def test_rates_are_decimal_and_eight_bits_a_byte():
    assert units.bytes_per_s(400) == 50e9


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (1000, "1 kB"),
        (6.48e12, "6.48 TB"),
        (999_999_999, "1 GB"),
        (-2e9, "-2 GB"),
    ],
)
def test_decimal_prefixes_never_print_a_thousand_of_anything(value, text):
    assert units.si(value) == text


@pytest.mark.parametrize(
    "value, text", [(1023, "1,023 B"), (2**30, "1 GiB"), (2**30 - 1, "1 GiB"), (1536, "1.5 KiB")]
)
def test_binary_prefixes(value, text):
    assert units.binary(value) == text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (59.99, "1 min"),
        (3600 * 3.0931, "3.09 h"),
        (86400 * 54, "54 days"),
        (5e-10, "0.5 ns"),
        (365.25 * 86400 * 5.78, "5.78 years"),
    ],
)
def test_durations(seconds, text):
    assert units.duration(seconds) == text


@given(st.floats(1, 1e18))
def test_a_printed_quantity_is_within_half_a_unit_of_the_third_digit(value):
    number, unit = units.si(value).split(" ")
    scale = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=5.1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 10**400, "8", True, None])
def test_bad_values_are_named(bad):
    for name, function in (
        ("value", units.si),
        ("value", units.binary),
        ("seconds", units.duration),
        ("value", units.count_text),
        ("gigabits_per_s", units.bytes_per_s),
    ):
        with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
            function(bad)


@pytest.mark.parametrize(
    "function, value, text",
    [
        (units.binary, 1023.9, "1 KiB"),
        (units.binary, 1023.4, "1,023 B"),
        (units.binary, 0.25, "0.25 B"),
        (units.si, -0.0, "0 B"),
        (units.si, 1e-30, "1e-30 B"),
        (units.si, -0.00123, "-0.00123 B"),
        (units.si, 9.996, "10 B"),
        (units.si, 1e22, "10,000 EB"),
        (units.duration, 1e-12, "0.001 ns"),
        (units.duration, -0.0, "0 s"),
        (units.duration, 9.9999e-7, "1 µs"),
        (units.duration, 47.99 * 3600, "2 days"),
        (units.duration, 47 * 3600, "47 h"),
        (units.count_text, -0.3, "0"),
        (units.count_text, 1e15, "1,000,000,000,000,000"),
    ],
)
def test_no_wrong_zero_and_no_number_of_the_next_unit(function, value, text):
    assert function(value) == text


@given(st.floats(-1e30, 1e30).filter(bool), st.integers(1, 15))
def test_a_printed_quantity_is_the_quantity(value, digits):
    number, unit = units.si(value, "", digits).split(" ")
    scale = dict(zip(["", "k", "M", "G", "T", "P", "E"], range(7), strict=True))[unit]
    assert float(number.replace(",", "")) * 1000.0**scale == pytest.approx(
        value, rel=5.1 * 10.0**-digits
    )


@pytest.mark.parametrize("bad", [0, -1, 16, 2**31 - 1, 2.5, "3", True, None])
def test_bad_digits_are_named(bad):
    for function in (units.si, units.binary, units.duration):
        with pytest.raises((TypeError, ValueError), match="^digits must be"):
            function(5, digits=bad)


@pytest.mark.parametrize("function", [units.si, units.binary, units.duration, units.count_text])
def test_an_array_is_no_value_to_print(function):
    with pytest.raises(TypeError, match=r"must be a number.*, got array\(\[1\]\)"):
        function(np.array([1]))
