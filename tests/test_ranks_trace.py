"""What a rank remembers of a run: entries of many transfers at once, records of one each, and no
more than the limit.
"""

from __future__ import annotations

import numpy as np

from dtlib.simulators.ranks import run, trace
from dtlib.simulators.ranks.trace import Record, Trace


def test_an_entry_is_a_record_for_each_rank_but_ones_own():
    log = Trace(1, began_s=10.0)
    log.note(3, 0, [0, 1, 2], range(3), True, [8, 16, 24], 10.5, 10.75)
    log.note(4, 2, (2,), (7,), False, (5,), 11.0, 11.5)
    assert [Record(*fields) for fields in log.records()] == [
        Record(0, 0, 1, 0, True, 8, 3, 0.5, 0.75),
        Record(0, 2, 1, 2, True, 24, 3, 0.5, 0.75),
        Record(2, 2, 1, 7, False, 5, 4, 1.0, 1.5),
    ]
    assert (log.transfers, log.untraced) == (3, 0)


def test_transfers_beyond_the_limit_are_counted_and_not_kept(monkeypatch):
    monkeypatch.setattr(trace, "LIMIT", 5)
    log = Trace(0, began_s=0.0)
    for call in range(100):
        log.note(call, 0, [0, 1, 2, 3], [0] * 4, True, [1] * 4, 0.0, 1.0)
    assert [fields[6] for fields in log.records()] == [0, 0, 0, 1, 1]
    assert (log.transfers, log.untraced) == (300, 295)
    assert len(log._entries) == 2  # a program that runs for days does not fill the memory


def test_what_does_not_count_is_not_kept():
    log = Trace(0, began_s=0.0)
    for call in range(100):
        log.note(call, 0, [0], [0], True, [8], 0.0, 1.0)
    assert log.records() == [] == log._entries and log.transfers == 0


def test_a_long_run_is_traced_to_the_limit():
    calls = trace.LIMIT // 3 + 1000

    def program(comm, calls):
        for _ in range(calls):
            comm.all_reduce(np.zeros(1))

    result = run(program, 4, args=[calls])
    assert len(result.trace) == 4 * trace.LIMIT
    assert result.untraced == 4 * (3 * calls - trace.LIMIT)
    assert result.sent_bytes.sum() == 4 * 3 * calls * 8
