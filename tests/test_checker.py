"""The checker passes what is right, and catches and names what is not."""

import dataclasses
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtlib.formulas import collectives as formulas
from dtlib.network import Network
from dtlib.simulators import execute as interpreter
from dtlib.simulators.checker import (
    Fault,
    check,
    count_bytes_by_tier,
    count_bytes_received,
    count_bytes_sent,
)
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.execute import contributions, execute
from dtlib.simulators.schedule import Schedule, Transfer

EVERY = [
    (collective, algorithm) for collective in ALGORITHMS for algorithm in ALGORITHMS[collective]
]


def broken(schedule, number, change):
    """``schedule`` with step ``number`` put through ``change``."""
    steps = list(schedule.steps)
    steps[number] = change(steps[number])
    return dataclasses.replace(schedule, steps=steps)


def without(transfer):
    return lambda step: Transfer(*(np.delete(column, transfer) for column in step))


def test_every_algorithm_passes():
    for name in EVERY:
        for ranks in range(1, 18):
            report = check(make(*name, ranks))
            assert report.ok and report.faults == (), str(report)


@pytest.mark.parametrize("collective, algorithm", EVERY)
def test_every_dropped_transfer_is_caught(collective, algorithm):
    schedule = make(collective, algorithm, 6)
    for number, step in enumerate(schedule.steps):
        for transfer in range(len(step.source)):
            assert not check(broken(schedule, number, without(transfer))).ok


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_every_doubled_reduce_is_caught(algorithm):
    schedule = make("all_reduce", algorithm, 6)
    for number, step in enumerate(schedule.steps):
        if step.reduce.all():
            assert not check(broken(schedule, number, lambda step: [step, step])).ok


def test_a_ring_with_a_missing_step_is_caught():
    ring = make("all_reduce", "ring", 6)
    for number in range(len(ring.steps)):
        short = dataclasses.replace(ring, steps=ring.steps[:number] + ring.steps[number + 1 :])
        assert not check(short).ok, number


@settings(max_examples=50, deadline=None)
@given(st.integers(3, 9), st.data())
def test_a_swapped_chunk_is_caught_by_the_checker_and_by_the_arrays(ranks, data):
    ring = make("all_reduce", "ring", ranks)
    number = data.draw(st.integers(0, len(ring.steps) - 1))
    rank = data.draw(st.integers(0, ranks - 1))

    def swap(step):
        chunk = step.chunk.copy()
        chunk[[rank, rank - 1]] = chunk[[rank - 1, rank]]
        return step._replace(chunk=chunk)

    wrong = broken(ring, number, swap)
    assert not check(wrong).ok
    arrays = [
        10**rank * np.ones(ranks, dtype=np.int64) for rank in range(ranks)
    ]  # a digit counts each rank
    assert any((result != sum(arrays)).any() for result in execute(wrong, arrays).results)


def test_the_report_names_rank_chunk_and_contributors():
    doubled = Schedule(
        "doubled",
        "all_reduce",
        3,
        1,
        [
            [Transfer(1, 0, 0, reduce=True)],
            [Transfer(1, 0, 0, reduce=True)],
            [Transfer(0, 1, 0), Transfer(0, 2, 0)],
        ],
    )
    report = check(doubled)
    assert report.faults == tuple(Fault(rank, 0, missing=(2,), repeated=(1,)) for rank in range(3))
    assert str(report).splitlines()[:2] == [
        "doubled is wrong in 3 places:",
        "  rank 0, chunk 0: lacks the contribution of rank 2 and counts more than once the "
        "contribution of rank 1",
    ]


def test_the_report_is_short_where_all_is_wrong():
    report = check(Schedule("nothing", "all_reduce", 8, 8, []))
    assert len(report.faults) == 64
    assert len(str(report).splitlines()) == 7
    assert "and 59 more" in str(report)


def test_endless_doubling_does_not_wrap_around_to_right():
    both = [Transfer(0, 1, 0, reduce=True), Transfer(1, 0, 0, reduce=True)]
    assert not check(Schedule("doubling", "all_reduce", 2, 1, [both] * 100)).ok


def full_circle():
    """Doubles for 31 steps, then adds four times in one: 4 x 2^30 more than right, which an int32
    takes for nothing.
    """
    return Schedule(
        "full circle",
        "all_reduce",
        3,
        1,
        [
            Transfer([1, 2], 0, 0, True),
            Transfer(0, [1, 2], 0),
            *[Transfer([1, 2], [2, 1], 0, True)] * 31,
            Transfer([1] * 4, 0, 0, True),
            Transfer(0, [1, 2], 0),
        ],
    )


def test_counts_do_not_wrap_around_inside_a_step():
    report = check(full_circle())
    assert [fault.repeated for fault in report.faults] == [(0, 1, 2)] * 3


@pytest.mark.parametrize(
    "fault",
    [
        operator.add,
        lambda held, sent: (
            held + np.minimum(sent, 2**30)
        ),  # at most 2^30 is sent, and four of them are 2^32
    ],
)
def test_a_checker_that_lets_counts_wrap_around_is_caught(monkeypatch, fault):
    monkeypatch.setattr(interpreter, "saturating", fault)
    with pytest.raises(AssertionError):
        test_counts_do_not_wrap_around_inside_a_step()


def test_a_broadcast_from_the_wrong_root_is_caught():
    assert not check(dataclasses.replace(make("broadcast", "tree", 5), root=1)).ok


def test_bytes_of_a_ring_are_those_of_ledger_l06():
    for ranks in (2, 3, 8, 17):
        wanted = [2 * (ranks - 1) * 1000] * ranks  # 2(K-1)/K S, sent and received
        ring = make("all_reduce", "ring", ranks)
        for count_bytes in (count_bytes_sent, count_bytes_received):
            assert count_bytes(ring, 1000 * ranks).tolist() == wanted


def test_bytes_by_tier_are_those_of_the_places():
    """A hierarchical all-reduce of 40 bytes in nodes of two: each rank sends 20 to its neighbor
    twice, and 10 twice to the other pair.
    """
    nodes = Network.of_nodes(4, inside_Bps=1, across_Bps=1, inside_latency_s=0, across_latency_s=0)
    schedule = make("all_reduce", "hierarchical", 4, node_size=2)
    for members, inside, across in (
        ([4, 5, 6, 7], 60, 0),
        ([0, 2, 4, 6], 40, 20),
        ([0, 4, 1, 5], 20, 40),
        ([0, 4, 8, 12], 0, 60),
    ):
        sent = count_bytes_by_tier(schedule, nodes.placed(members), 40)
        assert sent["inside"].tolist() == [inside] * 4, members
        assert sent["across"].tolist() == [across] * 4, members
    with pytest.raises(ValueError, match="^network must have a member for each of the 4 ranks"):
        count_bytes_by_tier(schedule, nodes.placed([0, 1]), 40)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(0, 500))
def test_bytes_are_exact_and_nothing_is_lost(ranks, payload):
    for algorithm in ALGORITHMS["all_reduce"]:
        schedule = make("all_reduce", algorithm, ranks)
        sent, received = (
            count_bytes_sent(schedule, payload),
            count_bytes_received(schedule, payload),
        )
        events = execute(schedule, [np.zeros(payload, np.int8)] * ranks).events
        assert sent.sum() == received.sum() == sum(event.bytes for event in events)
        assert sent.tolist() == [
            sum(event.bytes for event in events if event.source == rank) for rank in range(ranks)
        ]


def test_one_rank_sends_nothing():
    for collective, algorithm in EVERY:
        assert count_bytes_sent(make(collective, algorithm, 1), 10**9).tolist() == [0]


def formula_agrees_with_schedule(ranks=8, payload=8000):
    sent = count_bytes_sent(make("all_reduce", "ring", ranks), payload)
    return formulas.bytes_sent("all_reduce", "ring", payload, ranks) == sent.max()


def test_a_ring_formula_without_its_two_is_caught(monkeypatch):
    assert formula_agrees_with_schedule()
    ring = formulas.FORMULAS["all_reduce"]["ring"]
    monkeypatch.setitem(
        formulas.FORMULAS["all_reduce"], "ring", ring._replace(sent=lambda n: (n - 1) / n)
    )
    assert not formula_agrees_with_schedule()


def test_a_bad_payload_is_named():
    for count_bytes in (count_bytes_sent, count_bytes_received):
        for value in (-1, 2.5, float("nan"), float("inf"), "8", True, None, 2**53 + 1, 2**63):
            with pytest.raises((ValueError, TypeError), match="^payload_bytes "):
                count_bytes(make("all_reduce", "naive", 4), value)


def test_bytes_that_would_not_fit_in_64_bits_are_refused():
    assert count_bytes_sent(make("all_reduce", "naive", 4), 2**53).tolist() == [3 * 2**53] + 3 * [
        2**53
    ]
    for count_bytes in (count_bytes_sent, count_bytes_received):
        with pytest.raises(
            ValueError, match="^payload_bytes must be smaller for the bytes of 7998 transfers"
        ):
            count_bytes(make("all_reduce", "naive", 4000), 2**53)


def test_what_is_no_schedule_or_network_is_named():
    ring = make("all_reduce", "ring", 4)
    for bad in (None, 5, "ring", Schedule):
        for call in (
            check,
            lambda bad: count_bytes_sent(bad, 8),
            lambda bad: count_bytes_received(bad, 8),
            lambda bad: execute(bad, []),
            lambda bad: count_bytes_by_tier(bad, Network.flat(1, 0), 8),
            lambda bad: list(contributions(bad)),
        ):
            with pytest.raises(TypeError, match="^schedule must be a Schedule, such as make"):
                call(bad)
        with pytest.raises(TypeError, match="^network must be a Network"):
            count_bytes_by_tier(ring, bad, 8)


def test_a_schedule_too_large_to_follow_is_refused():
    with pytest.raises(
        ValueError, match=r"^ranks\^2 x chunks of the schedule must be at most 1073741824"
    ):
        check(make("all_reduce", "ring", 1025))
