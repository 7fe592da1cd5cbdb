"""Collectives on real processes: against numpy, against the schedules run in this process, and
their bytes.
"""

from __future__ import annotations

import functools
import sys

import cloudpickle
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtlib.ranks import Cluster, RankError
from dtlib.ranks.local.synchronization import SMALL_BYTES
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.execute import execute
from dtlib.simulators.schedule import Schedule, Transfer

cloudpickle.register_pickle_by_value(sys.modules[__name__])
DTYPES = [
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "longdouble",
    "complex64",
    "complex128",
    ">i4",
    ">f8",
    "m8[s]",
]
LARGE = SMALL_BYTES // 4 + 5  # elements of float32 that no longer go the way of small messages
NAMES = [(collective, name) for collective, algorithms in ALGORITHMS.items() for name in algorithms]


@pytest.fixture(scope="module", params=[1, 2, 3, 4, 8])
def cluster(request):
    with Cluster(request.param) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def four():
    with Cluster(4) as cluster:
        yield cluster


def numbers(rank: int, shape: object, dtype: str) -> np.ndarray:
    """Different on every rank; sums of them wrap around, round and cancel."""
    values = np.random.default_rng(rank).normal(scale=50, size=shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * values[::-1] if np.ndim(values) else values + 1j
    return (
        np.asarray(values).astype(np.int64).astype(dtype)
        if np.dtype(dtype).kind in "ium"
        else np.asarray(values).astype(dtype)
    )


def inputs(ranks: int, shape: object, dtype: str) -> list[np.ndarray]:
    return [numbers(rank, shape, dtype) for rank in range(ranks)]


def call(comm, collective, shape, dtype, algorithms, options=None):
    """One collective with several algorithms: result and bytes sent, and whether the input was left
    alone.
    """
    array = numbers(comm.rank, shape, dtype)
    before = array.copy()
    outcomes = []
    for algorithm in algorithms:
        sent = np.array(comm.sent_bytes)
        result = getattr(comm, collective)(array, algorithm=algorithm, **options or {})
        outcomes.append((np.array(result), (np.array(comm.sent_bytes) - sent).tolist()))
        assert array.tobytes() == before.tobytes()
    return outcomes


def identical(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.char == "g":  # its 16 bytes hold 10 that matter
        return np.array_equal(one, other, equal_nan=True)
    return one.tobytes() == other.tobytes()


def test_schedules_on_real_ranks_do_what_they_do_here(cluster):
    """Same bits, same bytes, same transfers, for every schedule, on sizes that do not divide."""
    for collective, name in NAMES:
        for shape in (0, 1, 3, 10, LARGE, (5, 3), (4, 0)):
            where = collective, name, shape
            schedule = make(collective, name, cluster.ranks)
            here = execute(schedule, inputs(cluster.ranks, shape, "float32"))
            outcomes = cluster.run(call, (collective, shape, "float32", [name]))
            for rank, [(result, sent)] in enumerate(outcomes):
                assert identical(result, here.results[rank]), where
                wanted = np.zeros(cluster.ranks, int)
                for event in here.events:
                    wanted[event.destination] += event.bytes * (event.source == rank)
                assert sent == wanted.tolist(), where
            assert transfers(outcomes.trace) == transfers(here.events), where
            if cluster.ranks > 1:
                assert {event.collective for event in outcomes.trace} == {collective}


def transfers(events):
    """What was moved in each step, whenever that was."""
    return sorted(event[:6] for event in events)


def test_fastest_equals_numpy_and_keeps_shapes_along_the_first_axis(cluster):
    ranks = cluster.ranks
    for shape in ((0,), (1,), (3,), (4, 0), (4099,), (LARGE,), (7, 2, 3), (LARGE // 3, 3)):
        arrays = inputs(ranks, shape, "float32")
        total = functools.reduce(np.add, arrays)
        rows = [len(part) for part in np.array_split(total, ranks)]
        flat = [part.size for part in np.array_split(total.reshape(-1), ranks)]
        parts = [np.array_split(array, ranks) for array in arrays]
        size, row = total.nbytes, 4 * int(np.prod(shape[1:]))
        small = size <= SMALL_BYTES

        def all_reduced(rank, peer, size=size, small=small, flat=flat):
            return size if small else 4 * (flat[peer] + flat[rank])

        wanted = {
            "all_reduce": ([total] * ranks, all_reduced),
            "reduce_scatter": (
                np.array_split(total, ranks),
                lambda rank, peer, rows=rows, row=row: row * rows[peer],
            ),
            "all_gather": ([np.concatenate(arrays)] * ranks, lambda rank, peer, size=size: size),
            "broadcast": (
                [arrays[0]] * ranks,
                lambda rank, peer, size=size: size * (rank == 0),
            ),
            "all_to_all": (
                [np.concatenate([part[rank] for part in parts]) for rank in range(ranks)],
                lambda rank, peer, rows=rows, row=row: row * rows[peer],
            ),
        }
        for collective, (results, counted) in wanted.items():
            outcomes = cluster.run(call, (collective, shape, "float32", ["fastest"]))
            for rank in range(ranks):
                [(result, sent)] = outcomes[rank]
                assert identical(result, results[rank]), (collective, shape, rank)
                assert sent == [counted(rank, peer) * (rank != peer) for peer in range(ranks)], (
                    collective,
                    shape,
                    rank,
                )
            assert (outcomes.sent_bytes == outcomes.received_bytes.T).all(), (collective, shape)


def test_large_all_reduce_sends_what_the_formula_says(four):
    size = 4 * 2**20
    outcome = four.run(lambda comm: comm.all_reduce(np.ones(size // 4, np.float32)).sum())
    assert list(outcome) == [4 * size / 4] * 4
    assert outcome.sent_bytes.sum(axis=1).tolist() == [2 * 3 * size // 4] * 4


def check_all_reduce(
    cluster: Cluster, shape: tuple[int, ...], dtype: str, op: str, algorithm: str
) -> None:
    def program(comm):
        with np.errstate(all="ignore"):
            return comm.all_reduce(numbers(comm.rank, shape, dtype), op=op, algorithm=algorithm)

    arrays = inputs(cluster.ranks, shape, dtype)
    results = cluster.run(program)
    assert all(identical(result, results[0]) for result in results)
    wanted = (
        np.asarray(np.mean(arrays, axis=0))
        if op == "mean"
        else np.sum(
            arrays, axis=0, dtype=None if dtype == "m8[s]" else np.dtype(dtype).newbyteorder("=")
        )
    )
    assert (results[0].dtype.kind, results[0].dtype.itemsize) == (
        wanted.dtype.kind,
        wanted.dtype.itemsize,
    )
    assert results[0].shape == shape
    if np.dtype(dtype).kind in "ium":
        assert (results[0] == wanted).all()
    else:
        precision = float(np.finfo(np.dtype(dtype)).eps)
        assert np.allclose(results[0], wanted, rtol=8 * precision, atol=800 * precision)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_all_reduce_of_every_dtype_equals_numpy(four, dtype, op):
    for shape in ((5,), (3, LARGE)):
        for algorithm in ("fastest", "ring"):
            check_all_reduce(four, shape, dtype, op, algorithm)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    dtype=st.sampled_from(DTYPES),
    op=st.sampled_from(["sum", "mean"]),
    algorithm=st.sampled_from(["fastest", *ALGORITHMS["all_reduce"]]),
)
def test_all_reduce_of_every_shape_equals_numpy(four, shape, dtype, op, algorithm):
    check_all_reduce(four, shape, dtype, op, algorithm)


def test_one_rank_gets_its_own_bits_back():
    with Cluster(1) as cluster:
        assert np.signbit(cluster.run(lambda comm: comm.all_reduce(np.array([-0.0])))[0]).all()


def test_a_mean_has_room_to_add_up():
    with Cluster(2) as cluster:
        assert cluster.run(
            lambda comm: comm.all_reduce(np.array([100, 100], np.int8), op="mean").tolist()
        )[0] == [100, 100]
        assert (
            cluster.run(
                lambda comm: comm.all_reduce(
                    np.full(3, 6e4, np.float16), op="mean", algorithm="ring"
                ).tolist()
            )[1]
            == [6e4 // 32 * 32] * 3
        )


def test_non_contiguous_inputs_and_outputs(four):
    def program(comm, size):
        whole = np.arange(2 * size * 3, dtype=np.float64).reshape(size, 6) * (comm.rank + 1)
        out = np.zeros((3, size)).T
        before = whole.copy()
        result = comm.all_reduce(whole[:, ::2], out=out)
        ring = comm.all_reduce(whole[:, ::2], algorithm="ring")
        return (
            result is out,
            np.array_equal(out, before[:, ::2] / (comm.rank + 1) * 10),
            np.array_equal(ring, out),
            np.array_equal(whole, before),
        )

    for size in (5, 60_000):
        assert list(four.run(program, (size,))) == [(True,) * 4] * 4


def test_in_place_and_overlapping_output(four):
    def program(comm, size):
        array = comm.empty(size, np.int64)
        array[...] = comm.rank + 1
        comm.all_reduce(array, out=array)
        in_place = set(array.tolist()) == {10}
        whole = comm.empty(size + 1, np.int64)
        whole[...] = np.arange(size + 1)
        comm.all_reduce(whole[:-1], out=whole[1:])
        return in_place, np.array_equal(whole[1:], 4 * np.arange(size)), int(whole[0])

    for size in (7, 100_003):
        assert list(four.run(program, (size,))) == [(True, True, 0)] * 4


def test_broadcast_needs_an_array_at_the_root_only(four):
    def program(comm, algorithm):
        array = np.arange(12.0).reshape(3, 4) if comm.rank == 2 else None
        return comm.broadcast(array, root=2, algorithm=algorithm)

    for algorithm in ("fastest", "tree", "chain"):
        for result in four.run(program, (algorithm,)):
            assert np.array_equal(result, np.arange(12.0).reshape(3, 4))


def test_a_schedule_of_your_own_in_which_both_send_what_both_write(four):
    def exchange(ranks):
        for distance in (1, 2):
            rank = np.arange(ranks)
            yield Transfer(rank, rank ^ distance, 0, reduce=True)

    schedule = Schedule("exchange", "all_reduce", ranks=4, chunks=1, steps=exchange(4))
    for size in (3, LARGE):
        results = four.run(
            lambda comm, size: comm.all_reduce(
                numbers(comm.rank, size, "int64"), algorithm=schedule
            ),
            (size,),
        )
        assert all(
            identical(result, functools.reduce(np.add, inputs(4, size, "int64")))
            for result in results
        )


def test_split_makes_independent_communicators(four):
    def program(comm, size):
        row, column = comm.split(comm.rank // 2), comm.split(comm.rank % 2, key=-comm.rank)
        ones = np.full(size, 10**comm.rank)
        return (
            int(row.all_reduce(ones)[0]),
            int(column.all_reduce(ones, algorithm="ring")[0]),
            row.rank,
            column.rank,
            row.sendrecv(comm.rank, 1 - row.rank, 1 - row.rank),
            row.sent_bytes[row.rank],
        )

    for size in (1, LARGE):
        assert list(four.run(program, (size,))) == [
            (11, 101, 0, 1, 1, 0),
            (11, 1010, 1, 1, 0, 0),
            (1100, 101, 0, 0, 3, 0),
            (1100, 1010, 1, 0, 2, 0),
        ]


def test_many_collectives_in_a_row_do_not_mix(four):
    def program(comm):
        totals = []
        for number in range(300):
            size = [1, LARGE, 50, 4000][number % 4]
            algorithm = ["fastest", "ring", "fastest", "halving_doubling", "tree"][number % 5]
            result = comm.all_reduce(np.full(size, number + comm.rank), algorithm=algorithm)
            totals.append((int(result[0]), int(result[-1])))
        return totals

    for totals in four.run(program):
        assert totals == [(4 * number + 6,) * 2 for number in range(300)]


@pytest.mark.parametrize("algorithm", ["fastest", "ring"])
def test_booleans_are_counted_as_numpy_does(four, algorithm):
    masks = np.random.default_rng(1).random((4, LARGE)) < 0.5

    def program(comm):
        return (
            comm.all_reduce(masks[comm.rank], algorithm=algorithm),
            comm.all_reduce(masks[comm.rank], "mean", algorithm),
            comm.reduce_scatter(masks[comm.rank], algorithm=algorithm),
        )

    for total, mean, _ in (results := four.run(program)):
        assert total.dtype == np.int64 and np.array_equal(total, masks.sum(axis=0))
        assert np.array_equal(mean, masks.mean(axis=0))
    assert np.array_equal(np.concatenate([chunk for *_, chunk in results]), masks.sum(axis=0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"array": np.array(["a"])}, "does not add up"),
        ({"array": np.ones(2), "op": "max"}, "op must be one of 'sum', 'mean'"),
        ({"array": np.ones(2), "algorithm": "star"}, "algorithm must be one of 'fastest', 'ring'"),
        ({"array": np.ones(2), "algorithm": make("all_reduce", "ring", 3)}, "on 4 ranks"),
        (
            {"array": np.ones(2), "algorithm": make("broadcast", "tree", 4)},
            "a schedule for all_reduce",
        ),
        ({"array": np.ones(2), "out": np.ones(3)}, "out must have shape"),
        (
            {"array": np.ones(2, np.int64), "op": "mean", "out": np.ones(2, np.int64)},
            "dtype float64",
        ),
    ],
)
def test_wrong_arguments_are_named(four, arguments, message):
    with pytest.raises(RankError, match=message):
        four.run(lambda comm: comm.all_reduce(**arguments))


# Faults that these tests must catch


def test_a_schedule_that_forgets_a_contribution_is_caught(four):
    ring = make("all_reduce", "ring", 4)
    short = Schedule("short", "all_reduce", 4, 4, ring.steps[1:])
    results = four.run(lambda comm: comm.all_reduce(np.ones(8), algorithm=short))
    assert any((result != 4).any() for result in results)


@pytest.mark.parametrize(
    "out", [list, lambda size: np.broadcast_to(0.0, size)], ids=["list", "read-only"]
)
def test_out_must_be_an_array_that_can_be_written_to(four, out):
    with pytest.raises(
        RankError, match="raised TypeError: out must be an array that can be written to"
    ):
        four.run(lambda comm: comm.all_reduce(np.ones(3), out=out((3,))))


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_to_all"])
@pytest.mark.parametrize("elements", [8, LARGE])
def test_schedules_keep_the_byte_order(four, collective, elements):
    def program(comm):
        array = (np.arange(elements) * (comm.rank + 1)).astype(">f4")
        return [
            getattr(comm, collective)(array, algorithm=name) for name in ALGORITHMS[collective]
        ], getattr(comm, collective)(array)

    for by_schedule, own in four.run(program):
        for result in by_schedule:
            assert result.dtype.str == own.dtype.str == ">f4"
            assert (result == own).all()
