"""What a run on real ranks returns."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from dtlib.simulators.execute import Event
from dtlib.simulators.ranks.trace import Record

__all__ = ["Result"]


class Result(list):
    """What each rank returned, by rank; and the account of the run.

    ``sent_bytes`` and ``received_bytes`` count payload by [rank, peer]. ``output`` is what each
    rank printed. ``untraced`` is how many transfers were counted but are not in the trace, which
    keeps the first 50,000 of a rank.
    """

    def __init__(self, reports: list[dict[str, Any]], output: list[str], time_s: float) -> None:
        super().__init__(report["value"] for report in reports)
        self.sent_bytes = np.array([report["sent"] for report in reports])
        self.received_bytes = np.array([report["received"] for report in reports])
        self.untraced = sum(report["untraced"] for report in reports)
        self.output, self.time_s = output, time_s
        self._traces = [report["trace"] for report in reports]

    @cached_property
    def trace(self) -> list[Record]:
        """Every transfer of every rank, as its receiver saw it, in the order of steps within each
        call.
        """
        records = [Record(*entry) for trace in self._traces for entry in trace]
        return sorted(records, key=lambda record: (record.call, record.step, record.start_s))

    @property
    def events(self) -> list[Event]:
        """The trace as the events of ``simulators.execute``, which the same figures draw."""
        return [Event(*record[: len(Event._fields)]) for record in self.trace]
