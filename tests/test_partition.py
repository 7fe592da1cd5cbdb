"""Parts of a whole: complete, disjoint, even, as numpy cuts them, and quick."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtlib.formulas.partition import chunk_bounds, partition


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_parts_are_those_of_array_split(items, parts):
    sizes = [len(piece) for piece in np.array_split(np.arange(items), parts)]
    assert np.diff(chunk_bounds(items, parts)).tolist() == sizes
    assert chunk_bounds(items, parts)[0] == 0 and chunk_bounds(items, parts)[-1] == items
    if parts <= items:
        assert partition(items, parts).tolist() == sizes


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: partition(4, 8), "^parts=8 is more than items=4: some parts would be empty$"),
        (lambda: partition(10**9, 10**9), "^parts must be at most 50000000, got 1000000000"),
        (lambda: partition(0, 1), "^items must be at least 1"),
        (lambda: partition("8", 1), "^items must be a whole number"),
        (lambda: partition(8, 2.5), "^parts must be a whole number"),
        (lambda: chunk_bounds(-1, 4), "^size must be at least 0"),
        (lambda: chunk_bounds(2**63, 4), "^size must be at most 9007199254740992"),
        (lambda: chunk_bounds(8, 0), "^chunks must be at least 1"),
        (lambda: chunk_bounds(8, 10**9), "^chunks must be at most 50000000"),
    ],
)
def test_what_cannot_be_cut_is_named(call, says):
    with pytest.raises((TypeError, ValueError), match=says):
        call()


def test_parts_of_the_largest_size_are_exact():
    assert partition(2**53, 3).tolist() == [3002399751580331, 3002399751580331, 3002399751580330]
