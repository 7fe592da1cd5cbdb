"""Printed figures beside their other readings: every number of the table is computed."""

from __future__ import annotations

import pytest

from dtlib.views.readings import printed_figures

READINGS = {printed: (figure, other) for printed, figure, other in printed_figures().rows}


@pytest.mark.parametrize(
    ("printed", "figure", "other"),
    [
        ("16 bytes of state per parameter", "BF16 gradients", "18 with FP32"),
        ("6.5 TB of state for 405 billion parameters", "6.48 TB", "7.29 TB"),
        ("fits not on one GPU of 80 GB, or on eighty", "6.4 TB: 80 GB short", "81 hold it"),
        ("80 GB", "80 GB, read as decimal", "76 would hold it"),
        ("one GPU 10% slow", "1.10 times", "1.11 times"),
        ("a ring sends about 2S, whatever K", "many ranks", "1 S at K = 2, 1.75 S at K = 8"),
        ("trees are slow for large payloads", "400 ms where a ring takes 50.2 ms", "45.4 ms"),
        ("NVLink 900 GB/s", "sum of both", "450 GB/s each way"),
        ("18x from NVLink to the network", "sum of both", "9x, each way"),
        (
            "leaving the node is as slow as its links",
            "18x with cards of 200 Gb/s",
            "1.8x at 512 MiB, 8.0x at 32 KiB",
        ),
        ("1,979 TFLOP/s", "weights zero", "989 TFLOP/s dense"),
        ("41% MFU", "400 TFLOP/s", "40.4%"),
        ("HBM two orders of magnitude above the wire", "3.35 TB/s over 50 GB/s", "67x"),
    ],
)
def test_both_readings(printed, figure, other):
    assert figure in READINGS[printed][0] and other in READINGS[printed][1]


def test_every_row_is_tested():
    tested = [mark.args[1] for mark in test_both_readings.pytestmark if mark.name == "parametrize"][
        0
    ]
    assert {printed for printed, *_ in tested} == set(READINGS)
