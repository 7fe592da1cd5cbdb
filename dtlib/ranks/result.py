"""What a run on real ranks returns: the values, and the account of what was moved and done."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dtlib.simulators.execute import Event

__all__ = ["MOST_EVENTS", "Call", "Counters", "Result", "Span"]

MOST_EVENTS = 50_000  # of one rank; and as many spans


class Call(NamedTuple):
    """What a transfer was part of: one rank's call of a collective among ``members``."""

    number: int
    collective: str
    members: tuple[int, ...]


class Span(NamedTuple):
    """What a rank did between two times, in seconds since the run began: see ``comm.span``."""

    name: str
    rank: int
    labels: dict[str, Any]
    start_s: float
    end_s: float


class Counters:
    """What one rank has moved in a run: bytes and messages by rank of the whole run, and the trace.

    The trace keeps the first ``MOST_EVENTS`` transfers to this rank; ``untraced`` counts the rest.
    """

    def __init__(self, rank: int, ranks: int, began_s: float) -> None:
        self.rank, self.began_s = rank, began_s
        self.sent, self.received = [0] * ranks, [0] * ranks
        self.messages_sent, self.messages_received = [0] * ranks, [0] * ranks
        self.events: list[Event] = []
        self.spans: list[Span] = []
        self.calls = self.untraced = 0

    def begin(self, collective: str, members: Sequence[int]) -> Call:
        """A new call of a collective."""
        self.calls += 1
        return Call(self.calls, collective, tuple(members))

    def sent_to(self, rank: int, size: int) -> None:
        """Count ``size`` bytes on their way; what a rank hands to itself does not count."""
        if rank != self.rank:
            self.sent[rank] += size

    def received_from(
        self,
        rank: int,
        size: int,
        call: Call,
        step: int,
        chunk: int,
        reduce: bool,
        start_s: float,
    ) -> None:
        """Count ``size`` bytes that have arrived, and add their transfer to the trace."""
        if rank == self.rank:
            return
        self.received[rank] += size
        if len(self.events) >= MOST_EVENTS:
            self.untraced += 1
            return
        times_s = start_s - self.began_s, time.perf_counter() - self.began_s
        self.events.append(
            Event(
                step,
                rank,
                self.rank,
                chunk,
                reduce,
                size,
                call.collective,
                call.members,
                call.number,
                *times_s,
            )
        )

    def mark(self, name: str, labels: dict[str, Any], start_s: float) -> None:
        """Add a span that ends now."""
        if len(self.spans) < MOST_EVENTS:
            times_s = start_s - self.began_s, time.perf_counter() - self.began_s
            self.spans.append(Span(name, self.rank, labels, *times_s))


class Result(list):
    """What each rank returned, by rank; and the account of the run.

    ``sent_bytes`` and ``received_bytes`` count payload by [rank, peer]. ``output`` is what each
    rank printed, ``time_s`` how long the run took, ``untraced`` how many transfers were counted but
    are not in the ``trace``, and ``spans`` what the programs marked with ``comm.span``.
    """

    def __init__(
        self, values: list[Any], counters: list[Counters], output: list[str], time_s: float
    ) -> None:
        super().__init__(values)
        self.sent_bytes = np.array([each.sent for each in counters])
        self.received_bytes = np.array([each.received for each in counters])
        self.untraced = sum(each.untraced for each in counters)
        self.output, self.time_s = output, time_s
        self._counters = counters

    @cached_property
    def trace(self) -> list[Event]:
        """Every transfer, as its receiver saw it, in the order of calls and of steps in each."""
        events = [event for each in self._counters for event in each.events]
        return sorted(events, key=lambda event: (event.call, event.step, event.start_s))

    @cached_property
    def spans(self) -> list[Span]:
        """What the programs of all ranks marked, in the order of time."""
        spans = [span for each in self._counters for span in each.spans]
        return sorted(spans, key=lambda span: span.start_s)
