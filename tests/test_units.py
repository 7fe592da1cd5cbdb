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
    "function, texts",
    [
        (
            units.si,
            {
                -0.0: "0 B",
                1e-30: "1e-30 B",
                -0.00123: "-0.00123 B",
                9.996: "10 B",
                999: "999 B",
                999.6: "1 kB",
                1000: "1 kB",
                6.48e12: "6.48 TB",
                999_999_999: "1 GB",
                -2e9: "-2 GB",
                1e22: "10,000 EB",
            },
        ),
        (
            units.binary,
            {
                0.25: "0.25 B",
                1023: "1,023 B",
                1023.4: "1,023 B",
                1023.9: "1 KiB",
                1536: "1.5 KiB",
                2**30: "1 GiB",
                2**30 - 1: "1 GiB",
            },
        ),
        (
            units.duration,
            {
                -0.0: "0 s",
                1e-12: "0.001 ns",
                5e-10: "0.5 ns",
                9.9999e-7: "1 µs",
                59.99: "1 min",
                3600 * 3.0931: "3.09 h",
                47 * 3600: "47 h",
                47.99 * 3600: "2 days",
                86400 * 54: "54 days",
                365.25 * 86400 * 5.78: "5.78 years",
            },
        ),
        (units.count_text, {-0.3: "0", 16_384: "16,384", 1e15: "1,000,000,000,000,000"}),
    ],
)
def test_no_wrong_zero_and_never_a_thousand_of_anything(function, texts):
    assert {value: function(value) for value in texts} == texts


@pytest.mark.parametrize("function", [units.si, units.binary, units.duration, units.count_text])
def test_bad_values_are_named(function):
    for bad in (float("nan"), float("inf"), 10**400, "8", True, None, np.timedelta64(5, "s")):
        with pytest.raises((TypeError, ValueError), match="^(value|seconds) must be"):
            function(bad)
        with pytest.raises((TypeError, ValueError), match="^gigabits_per_s must be"):
            units.bytes_per_s(bad)
    with pytest.raises(TypeError, match=r"must be a number.*, got array\(\[1\]\)"):
        function(np.array([1]))  # an array is no value to print
    for digits in (0, -1, 16, 2**31 - 1, 2.5, "3", True, None):
        if function is not units.count_text:
            with pytest.raises((TypeError, ValueError), match="^digits must be"):
                function(5, digits=digits)


@given(st.floats(-1e30, 1e30).filter(bool), st.integers(1, 15))
def test_a_printed_quantity_is_the_quantity(value, digits):
    number, unit = units.si(value, "", digits).split(" ")
    scale = dict(zip(["", "k", "M", "G", "T", "P", "E"], range(7), strict=True))[unit]
    assert float(number.replace(",", "")) * 1000.0**scale == pytest.approx(
        value, rel=5.1 * 10.0**-digits
    )
