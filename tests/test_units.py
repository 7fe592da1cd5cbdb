"""Units: decimal and binary bytes, bits, and the text of a quantity (careful readers: GB is not GiB, Gb is not GB)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtlib import units


def test_decimal_and_binary_bytes_differ():
    assert units.GB == 1e9 and units.GiB == 1_073_741_824
    assert units.binary(80 * units.GB) == "74.5 GiB" and units.si(80 * units.GB) == "80 GB"


def test_rates_are_decimal_and_eight_bits_a_byte():
    assert units.bytes_per_s(400) == 50e9


@pytest.mark.parametrize("value, text", [
    (0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (1000, "1 kB"), (6.48e12, "6.48 TB"), (999_999_999, "1 GB"), (-2e9, "-2 GB"),
])
def test_decimal_prefixes_never_print_a_thousand_of_anything(value, text):
    assert units.si(value) == text


@pytest.mark.parametrize("value, text", [(1023, "1,023 B"), (2**30, "1 GiB"), (2**30 - 1, "1,024 MiB"), (1536, "1.5 KiB")])
def test_binary_prefixes(value, text):
    assert units.binary(value) == text


@pytest.mark.parametrize("seconds, text", [
    (59.99, "1 min"),
    (3600 * 3.0931, "3.09 h"), (86400 * 54, "54 days"), (5e-10, "0.5 ns"), (365.25 * 86400 * 5.78, "5.78 years"),
])
def test_durations(seconds, text):
    assert units.duration(seconds) == text


@given(st.floats(1, 1e18))
def test_a_printed_quantity_is_within_half_a_unit_of_the_third_digit(value):
    number, unit = units.si(value).split(" ")
    scale = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=5.1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "8", True, None])
def test_bad_values_are_named(bad):
    for name, function in (("value", units.si), ("value", units.binary), ("seconds", units.duration),
                           ("gigabits_per_s", units.bytes_per_s)):
        with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
            function(bad)
