"""Every algorithm, run on arrays: any rank count, any size, shape and dtype."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtlib.simulators.collectives import ALGORITHMS, make, two_trees
from dtlib.simulators.execute import execute

EVERY = [
    (collective, algorithm) for collective in ALGORITHMS for algorithm in ALGORITHMS[collective]
]
ALL_REDUCES = list(ALGORITHMS["all_reduce"])


def expected(collective, arrays, root=0):
    """What MPI promises, in plain numpy."""
    ranks, total = (
        len(arrays),
        sum(array.astype(object) for array in arrays) if arrays[0].size else arrays[0],
    )
    return {
        "all_reduce": lambda: [total] * ranks,
        "reduce_scatter": lambda: np.array_split(total, ranks),
        "all_gather": lambda: [np.concatenate(arrays)] * ranks,
        "broadcast": lambda: [arrays[root]] * ranks,
        "all_to_all": lambda: [
            np.concatenate([np.array_split(array, ranks)[rank] for array in arrays])
            for rank in range(ranks)
        ],
    }[collective]()


@pytest.mark.parametrize("collective, algorithm", EVERY)
def test_right_for_every_size_up_to_40(collective, algorithm):
    for ranks in (*range(1, 10), 12, 13, 16, 17):
        schedule = make(collective, algorithm, ranks)
        random = np.random.default_rng(ranks)
        for size in {0, 1, ranks - 1, ranks, ranks + 1, 2 * ranks, *range(3, 41, 4), 40}:
            arrays = list(random.integers(-999, 999, (ranks, size)))
            for result, wanted in zip(
                execute(schedule, arrays).results, expected(collective, arrays), strict=True
            ):
                np.testing.assert_array_equal(
                    result, wanted, err_msg=f"{schedule}, {size} elements"
                )


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 17), st.integers(1, 9), st.integers(0, 16), st.integers(0, 40))
def test_any_number_of_pieces_and_any_root(ranks, pieces, root, size):
    root %= ranks
    arrays = [np.arange(size) * 100 + rank for rank in range(ranks)]
    for schedule in (
        make("all_reduce", "double_tree", ranks, pieces=pieces),
        make("broadcast", "chain", ranks, pieces=pieces, root=root),
        make("broadcast", "tree", ranks, root=root),
    ):
        for result, wanted in zip(
            execute(schedule, arrays).results,
            expected(schedule.collective, arrays, root),
            strict=True,
        ):
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("algorithm", ALL_REDUCES)
def test_floats_are_bitwise_equal_on_all_ranks(algorithm):
    for ranks in (2, 3, 5, 8, 13):
        random = np.random.default_rng(1)
        arrays = [
            random.standard_normal(37) * 10.0 ** random.integers(-9, 9, 37) for _ in range(ranks)
        ]
        results = execute(make("all_reduce", algorithm, ranks), arrays).results
        assert len({result.tobytes() for result in results}) == 1, ranks
        np.testing.assert_allclose(results[0], np.sum(arrays, axis=0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("algorithm", ALL_REDUCES)
def test_dtype_and_shape_stay_and_inputs_need_not_be_contiguous(algorithm):
    schedule = make("all_reduce", algorithm, 5)
    for dtype in ("int8", "uint16", "int64", "float16", "float32", "float64", "complex64"):
        for result in execute(schedule, [np.full((2, 3), n + 1, dtype) for n in range(5)]).results:
            assert (result.shape, result.dtype) == ((2, 3), dtype)
            np.testing.assert_array_equal(result, 15, err_msg=dtype)
    whole = np.arange(48).reshape(6, 8)
    arrays = [whole[::2, ::-2].T, whole[1::2, 1::2].T, whole[:3, :4].T]
    assert not any(array.flags.c_contiguous for array in arrays)
    before = whole.copy()
    for result in execute(make("all_reduce", algorithm, 3), arrays).results:
        np.testing.assert_array_equal(result, arrays[0] + arrays[1] + arrays[2])
        result += 1
    np.testing.assert_array_equal(whole, before)


def test_a_single_rank_gets_a_copy():
    array = np.arange(3)
    (result,) = execute(make("all_reduce", "ring", 1), [array]).results
    assert result.tolist() == [0, 1, 2] and not np.shares_memory(result, array)


def test_zero_dimensional_arrays_and_plain_numbers():
    assert [
        float(result) for result in execute(make("all_reduce", "tree", 3), [1.0, 2.0, 3.5]).results
    ] == [6.5] * 3


@pytest.mark.parametrize(
    "arrays, error, says",
    [
        ([np.zeros(3)] * 3, ValueError, "one array for each of the 4 ranks, got 3 of them"),
        (None, ValueError, "one array for each of the 4 ranks, got None"),
        (
            [np.zeros(3), np.zeros(3), np.zeros(4), np.zeros(3)],
            ValueError,
            r"rank 2 has shape \(4,\) and dtype float64, but rank 0 has shape \(3,\)",
        ),
        (
            [np.zeros(3)] * 3 + [np.zeros(3, "f4")],
            ValueError,
            r"rank 3 has shape \(3,\) and dtype float32, but rank 0",
        ),
        ([np.zeros(3, bool)] * 4, TypeError, "rank 0 has dtype bool, which does not add up"),
        (["a", "b", "c", "d"], TypeError, "rank 0 has dtype <U1"),
        ([1, 2, 3, None], TypeError, "rank 3 has dtype object"),
    ],
)
def test_arrays_that_do_not_match(arrays, error, says):
    with pytest.raises(error, match=says):
        execute(make("all_reduce", "ring", 4), arrays)


def test_the_event_log_of_a_ring():
    log = execute(make("all_reduce", "ring", 4), [np.arange(5, dtype="f4")] * 4)
    assert len(log.events) == 6 * 4
    assert log.events[0][:6] == (0, 0, 1, 3, True, 4)  # rank 0 starts with chunk 3, of one element
    assert [event.bytes for event in log.events if event.chunk == 0] == [
        8
    ] * 6  # 5 elements: 2 + 1 + 1 + 1
    assert log.holdings.shape == (7, 4, 4)
    np.testing.assert_array_equal(log.holdings[0], 1)
    assert log.holdings[1].tolist() == [[1, 1, 2, 1], [1, 1, 1, 2], [2, 1, 1, 1], [1, 2, 1, 1]]
    np.testing.assert_array_equal(
        np.diagonal(log.holdings[3]), 4
    )  # after n - 1 steps rank r has all of chunk r
    np.testing.assert_array_equal(log.holdings[6], 4)


def test_the_event_log_of_an_all_gather_shows_what_is_not_held():
    holdings = execute(make("all_gather", "ring", 3), [np.arange(2)] * 3).holdings
    np.testing.assert_array_equal(holdings[0], np.eye(3))
    assert holdings.sum(axis=(1, 2)).tolist() == [3, 6, 9]


def test_the_two_trees():
    for ranks in range(2, 66):
        tree, depth, child, parent = two_trees(ranks)
        for half in (0, 1):
            mine = tree == half
            assert len(set(child[mine])) == ranks - 1, ranks  # every rank but the root has a parent
            assert depth[mine].max() == int(np.ceil(np.log2(ranks))), ranks
        children = np.stack([np.bincount(parent[tree == half], minlength=ranks) for half in (0, 1)])
        assert children.sum(axis=0).max() <= 2, ranks
        branches_in_both = np.flatnonzero(~(children == 0).any(axis=0)).tolist()
        assert branches_in_both == [] or (ranks % 2 and branches_in_both == [0]), ranks
