"""Schedules as data: what is accepted, how it is stored, and what each refusal says."""

import dataclasses

import numpy as np
import pytest

from dtlib.simulators import collectives
from dtlib.simulators import schedule as schedule_module
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.schedule import CONTRACTS, Schedule, Transfer

EVERY = [(c, a) for c in ALGORITHMS for a in ALGORITHMS[c]]
BAD_COUNTS = [-1, 2.5, float("nan"), float("inf"), "8", True, None, [1]]


def mine(*steps, ranks=4, chunks=4, collective="all_reduce"):
    return Schedule("mine", collective, ranks, chunks, steps)


def test_a_step_written_as_a_loop_is_the_step_written_with_arrays():
    rank = np.arange(4)
    by_arrays = mine(Transfer(rank, (rank + 1) % 4, rank, reduce=True))
    by_loop = mine([Transfer(r, (r + 1) % 4, r, reduce=True) for r in range(4)])
    for one, other in zip(by_arrays.steps[0], by_loop.steps[0], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_step_may_mix_reduce_and_copy_and_may_be_empty():
    schedule = mine([Transfer(0, 1, 0, reduce=True), Transfer(1, 0, 1)], [])
    assert schedule.steps[0].reduce.tolist() == [True, False]
    assert [len(step.source) for step in schedule.steps] == [2, 0]


def test_a_schedule_can_be_replaced_in_part():
    ring = make("all_reduce", "ring", 5)
    assert len(dataclasses.replace(ring, name="copy").steps) == len(ring.steps) == 8


@pytest.mark.parametrize(
    "transfer, says",
    [
        (
            Transfer(0, 4, 0),
            "transfer 1 (0 -> 4, chunk 0, copy): destination 4 does not exist, it must be 0 to 3",
        ),
        (Transfer(-1, 1, 0), "source -1 does not exist"),
        (
            Transfer(0, 1, 9, reduce=True),
            "(0 -> 1, chunk 9, reduce): chunk 9 does not exist, it must be 0 to 3",
        ),
        (Transfer(2, 2, 0), "a rank cannot send to itself"),
        (Transfer(0, 3, 3), "written twice"),
        (Transfer(0, 3, 3, reduce=True), "written twice"),
    ],
)
def test_an_impossible_transfer_is_named(transfer, says):
    with pytest.raises(ValueError, match="mine, step 1") as refused:
        mine([], [Transfer(2, 3, 3), transfer])
    assert says in str(refused.value)


def test_two_reduces_into_one_place_are_no_clash():
    assert len(mine([Transfer(0, 3, 3, reduce=True), Transfer(1, 3, 3, reduce=True)]).steps) == 1


def test_a_field_that_is_no_whole_number_is_named():
    for field in ("source", "destination", "chunk"):
        for value in (0.5, float("nan"), float("inf"), "0", True, None):
            with pytest.raises(TypeError, match=f"step 0, transfer 0: {field} must be a whole"):
                mine([Transfer(0, 1, 0)._replace(**{field: value})])


@pytest.mark.parametrize(
    "steps, says",
    [
        (lambda: None, "is a function: call it"),
        (None, "does the function yield its steps"),
        (7, "does the function yield its steps"),
        ([5], "step 0 must be a Transfer or a list of them, got 5"),
        (
            [[(0, 1, 2, True)]],
            r"must be a Transfer\(source, destination, chunk, reduce\), got \(0, 1, 2, True\)",
        ),
        ([[Transfer(0, 1, 0, 1)]], "reduce must be True or False, got 1"),
    ],
)
def test_steps_of_the_wrong_kind(steps, says):
    with pytest.raises(TypeError, match=says):
        Schedule("mine", "all_reduce", 4, 4, steps)


def test_fields_of_different_lengths():
    with pytest.raises(
        ValueError, match="shapes that do not match.*'source': \\(3,\\), 'destination': \\(2,\\)"
    ):
        mine(Transfer(np.arange(3), np.arange(2), 0))


def test_bad_counts_are_named():
    for value in (0, *BAD_COUNTS):
        for name in ("ranks", "chunks"):
            with pytest.raises((ValueError, TypeError), match=f"^{name} "):
                mine(**{name: value})
        with pytest.raises((ValueError, TypeError), match="^ranks "):
            make("all_reduce", "ring", value)
        if value is not None:  # the default
            with pytest.raises((ValueError, TypeError), match="^pieces "):
                make("broadcast", "chain", 4, pieces=value)
        if value != 0:
            with pytest.raises((ValueError, TypeError), match="^root "):
                make("broadcast", "tree", 4, root=value)


@pytest.mark.parametrize(
    "arguments, options, says",
    [
        (("all_reduc", "ring", 4), {}, "collective must be one of 'all_reduce'"),
        (("all_reduce", "rign", 4), {}, "algorithm must be one of 'ring'"),
        (("all_reduce", "ring", 4), {"pieces": 2}, "pieces is for pipelined"),
        (("all_reduce", "ring", 4), {"root": 1}, "root is for broadcast"),
        (("broadcast", "tree", 4), {"root": 4}, "root must be at most 3, got 4"),
    ],
)
def test_make_refuses(arguments, options, says):
    with pytest.raises(ValueError, match=says):
        make(*arguments, **options)


def test_chunks_that_a_collective_needs():
    for collective, chunks in (("reduce_scatter", 4), ("all_gather", 4), ("all_to_all", 16)):
        assert mine(collective=collective, chunks=chunks).chunks == chunks
        with pytest.raises(
            ValueError, match=f"chunks must be {chunks} for {collective} on 4 ranks, got 5"
        ):
            mine(collective=collective, chunks=5)


def test_one_rank_does_nothing():
    for name in EVERY:
        assert make(*name, 1).steps == (), name


def test_a_ring_of_1024_ranks():
    ring = make("all_reduce", "ring", 1024)
    assert len(ring.steps) == 2046
    assert {len(step.source) for step in ring.steps} == {1024}
    assert all(((step.destination - step.source) % 1024 == 1).all() for step in ring.steps)
    assert [bool(step.reduce[0]) for step in ring.steps] == [True] * 1023 + [False] * 1023


def test_each_chunk_moves_as_often_as_its_collective_asks():
    """What ``make`` refuses by count, before any work, is what it would have made."""
    for collective, algorithm in EVERY:
        for ranks in (*range(1, 14), 16):
            schedule = make(collective, algorithm, ranks)
            chunks = schedule.chunks
            if collective == "all_to_all":
                chunks = ranks * (ranks - 1)  # one's own blocks stay
            assert schedule.transfers == chunks * CONTRACTS[collective].transfers(ranks), schedule


@pytest.mark.parametrize(
    "arguments, options, says",
    [
        (("all_reduce", "double_tree", 4), {"pieces": 10**9}, "^pieces must be at most 32768"),
        (("broadcast", "chain", 10**9), {}, "^ranks must be at most 32768"),
        (
            ("all_reduce", "ring", 10_000),
            {},
            "^transfers of ring on 10000 ranks must be at most 50000000, got 199980000",
        ),
        (
            ("all_reduce", "halving_doubling", 30_000),
            {},
            "^transfers of halving_doubling on 30000 ranks must be at most",
        ),
        (
            ("all_reduce", "double_tree", 1000),
            {"pieces": 20_000},
            "^transfers of double_tree on 1000 ranks must be at most",
        ),
        (
            ("all_to_all", "rotation", 30_000),
            {},
            "^transfers of rotation on 30000 ranks must be at most",
        ),
    ],
)
def test_a_schedule_too_large_to_make_is_refused_before_any_work(
    monkeypatch, arguments, options, says
):
    monkeypatch.setattr(collectives, "Schedule", None)
    with pytest.raises(ValueError, match=says):
        make(*arguments, **options)


def test_a_schedule_has_bounds():
    for name in ("ranks", "chunks"):
        with pytest.raises(ValueError, match=f"^{name} must be at most 50000000"):
            mine(**{name: 10**9})


def test_a_schedule_of_too_many_transfers_is_named(monkeypatch):
    monkeypatch.setattr(schedule_module, "MOST_TRANSFERS", 5)
    with pytest.raises(ValueError, match="^transfers of mine must be at most 5, got 6"):
        mine(*[Transfer(0, [1, 2], 0)] * 3)


def test_a_narrow_integer_is_kept_as_an_int():
    wide = Schedule("wide", "all_to_all", np.int8(20), np.int16(400), [], root=np.int8(3))
    assert (wide.ranks, wide.chunks, wide.root) == (20, 400, 3)
    assert {type(wide.ranks), type(wide.chunks), type(wide.root)} == {int}
    assert make("all_reduce", "ring", np.int8(100)).steps[0].source.max() == 99


def test_what_was_checked_cannot_be_changed():
    for step in make("all_reduce", "tree", 5).steps:
        for column in step:
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 0
    rank = np.arange(4)
    assert (
        mine(Transfer(rank, (rank + 1) % 4, rank)) and rank.flags.writeable
    )  # the caller's own array stays theirs
