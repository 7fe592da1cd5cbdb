"""How things are dealt out: consecutive parts as equal as possible, the larger ones first."""

from __future__ import annotations

import numpy as np

from dtlib.arguments import whole_number

__all__ = ["MOST_PARTS", "chunk_bounds", "partition"]

MOST_PARTS = 50_000_000  # what memory holds, and a person waits for


def chunk_bounds(size: int, chunks: int) -> np.ndarray:
    """The ``chunks + 1`` boundaries that cut ``size`` (up to 2**53) into chunks as equal as
    possible, larger ones first.

    Chunk c is ``bounds[c]:bounds[c + 1]``; the sizes differ by at most 1 and are those of
    ``np.array_split``. With fewer elements than chunks, the last chunks are empty.

    >>> chunk_bounds(10, 4)
    array([ 0,  3,  6,  8, 10])
    """
    size = whole_number("size", size, at_least=0)
    return _bounds(size, whole_number("chunks", chunks, at_most=MOST_PARTS))


def partition(items: int, parts: int) -> np.ndarray:
    """Sizes of ``parts`` consecutive, disjoint groups that hold all ``items``, such as layers on
    pipeline stages: those of :func:`chunk_bounds`, none of which may be empty.

    >>> partition(30, 4)
    array([8, 8, 7, 7])
    >>> partition(4, 8)
    Traceback (most recent call last):
    ...
    ValueError: parts=8 is more than items=4: some parts would be empty
    """
    items = whole_number("items", items)
    parts = whole_number("parts", parts, at_most=MOST_PARTS)
    if parts > items:
        raise ValueError(f"parts={parts} is more than items={items}: some parts would be empty")
    return np.diff(_bounds(items, parts))


def _bounds(size: int, chunks: int) -> np.ndarray:
    boundary = np.arange(chunks + 1)
    return boundary * (size // chunks) + np.minimum(boundary, size % chunks)
