"""Who received what from whom, and when: what the rank of any engine remembers of a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["LIMIT", "Record", "Trace"]

LIMIT = 50_000


class Record(NamedTuple):
    """One transfer on real ranks: the fields of ``execute.Event``, the call it was part of
    (numbered by rank), and when it was sent and when it was done, in seconds since the run began.
    """

    step: int
    source: int
    destination: int
    chunk: int
    reduce: bool
    bytes: int
    call: int
    start_s: float
    end_s: float


class Trace:
    """The first ``LIMIT`` transfers to ``rank`` in a run that began at ``began_s``.

    What came from many ranks at once is one entry until somebody asks for the records: a collective
    must not wait for its bookkeeping.
    """

    def __init__(self, rank: int, began_s: float) -> None:
        self.rank, self.began_s, self.transfers = rank, began_s, 0
        self._entries: list[tuple] = []

    def note(
        self,
        call: int,
        step: int,
        sources: Sequence[int],
        chunks: Sequence[int],
        reduce: bool,
        sizes: Sequence[int],
        start_s: float,
        end_s: float,
    ) -> None:
        """Add transfers that ended together. Those from the rank itself do not count."""
        others = len(sources) - (self.rank in sources)
        if others and self.transfers < LIMIT:
            self._entries.append((call, step, sources, chunks, reduce, sizes, start_s, end_s))
        self.transfers += others

    @property
    def untraced(self) -> int:
        """Transfers beyond the limit."""
        return max(0, self.transfers - LIMIT)

    def records(self) -> list[tuple]:
        """The fields of a ``Record`` for each transfer: plain tuples, which travel to the caller
        faster.
        """
        return list(itertools.islice(self._records(), LIMIT))

    def _records(self) -> Iterator[tuple]:
        for call, step, sources, chunks, reduce, sizes, start_s, end_s in self._entries:
            for source, chunk, size in zip(sources, chunks, sizes, strict=True):
                if source != self.rank:
                    yield (
                        step,
                        source,
                        self.rank,
                        chunk,
                        reduce,
                        size,
                        call,
                        start_s - self.began_s,
                        end_s - self.began_s,
                    )
