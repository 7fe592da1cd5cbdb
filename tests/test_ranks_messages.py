"""One rank to another, on real processes; and what a run brings back to its caller."""

from __future__ import annotations

import os
import sys
import time

import cloudpickle
import numpy as np
import pytest

from dtlib.ranks import Cluster, RankError, run, shutdown
from dtlib.ranks.result import MOST_EVENTS, Counters

cloudpickle.register_pickle_by_value(sys.modules[__name__])
MIB = 2**20


@pytest.fixture(scope="module")
def four():
    with Cluster(4) as cluster:
        yield cluster


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_everybody_may_send_first(ranks):
    def program(comm):
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        for other in others:
            comm.send(np.full(64 * MIB // 8, comm.rank, np.int64), other)
        return [(received[0], received[-1], received.nbytes) for received in map(comm.recv, others)]

    with Cluster(ranks) as cluster:
        result = cluster.run(program)
    for rank in range(ranks):
        assert result[rank] == [(other, other, 64 * MIB) for other in range(ranks) if other != rank]
    assert (result.sent_bytes == 64 * MIB * (1 - np.eye(ranks))).all()


def test_everybody_may_send_many_small_messages_first_even_to_those_who_wait_elsewhere(four):
    def program(comm):
        number, peer = 5000, (comm.rank + 1) % 4
        if comm.rank == 0:
            comm.barrier()
        for value in range(number):
            comm.send(value, peer)
        if comm.rank != 0:
            comm.barrier()
        return all(comm.recv((comm.rank - 1) % 4) == value for value in range(number))

    assert list(four.run(program)) == [True] * 4


def test_a_ring_by_hand_counts_its_bytes_and_leaves_a_trace(four):
    def program(comm):
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        chunks = np.array_split(np.arange(4 * 1000.0) * (comm.rank + 1), comm.size)
        for step in range(comm.size - 1):
            chunks[(comm.rank - step - 1) % 4] = chunks[(comm.rank - step - 1) % 4] + comm.sendrecv(
                chunks[(comm.rank - step) % 4], right, left
            )
        for step in range(comm.size - 1):
            chunks[(comm.rank - step) % 4] = comm.sendrecv(
                chunks[(comm.rank + 1 - step) % 4], right, left
            )
        return np.concatenate(chunks)

    result = four.run(program)
    assert all(np.array_equal(array, np.arange(4000.0) * 10) for array in result)
    assert result.sent_bytes.sum(axis=1).tolist() == [2 * 3 * 8000] * 4
    assert result.sent_bytes[1].tolist() == [0, 0, 48000, 0]
    assert sorted(event[:6] for event in result.trace) == sorted(
        (step, rank, (rank + 1) % 4, 0, False, 8000) for step in range(6) for rank in range(4)
    )
    for event in result.trace:
        assert (event.collective, event.members) == ("recv", (0, 1, 2, 3))
        assert 0 < event.start_s <= event.end_s <= result.time_s


def test_tags_and_sources_are_told_apart_and_order_is_kept(four):
    def program(comm):
        if comm.rank:
            for number in range(3):
                comm.send((comm.rank, number), 0, tag=number % 2)
            return None
        return [
            comm.recv(3, tag=1),
            comm.recv(1),
            comm.recv(2, tag=1),
            comm.recv(1),
            comm.recv(2),
            comm.recv(3),
            comm.recv(1, tag=1),
            comm.recv(2),
            comm.recv(3),
        ]

    assert four.run(program)[0] == [
        (3, 1),
        (1, 0),
        (2, 1),
        (1, 2),
        (2, 0),
        (3, 0),
        (1, 1),
        (2, 2),
        (3, 2),
    ]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {"a": [1, 2]},
        np.float32(1.5),
        np.array(7),
        np.zeros((0, 3)),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.array(["a", "bc"]),
        np.array([True, False]),
        np.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")]),
        np.array([None, "object"]),
        np.zeros((1,) * 30 + (5,)),
        "long " * 10**5,
        np.arange(10, dtype=">f8"),
        np.array(["2024-01-01"], dtype="datetime64[D]"),
    ],
    ids=repr,
)
def test_anything_can_be_sent(value):
    def program(comm):
        return comm.sendrecv(value, 1 - comm.rank, 1 - comm.rank)

    for received in run(program, ranks=2):
        assert type(received) is type(value)
        assert getattr(received, "dtype", None) == getattr(value, "dtype", None)
        assert np.array_equal(received, value)


def test_what_is_received_is_ones_own(four):
    def program(comm, size):
        mine = np.full(size, comm.rank)
        received = comm.sendrecv(mine, (comm.rank + 1) % 4, (comm.rank - 1) % 4)
        received += 100
        comm.barrier()
        return (
            mine.tolist() == [comm.rank] * size
            and received.tolist() == [100 + (comm.rank - 1) % 4] * size
        )

    for size in (3, 10_000):
        assert list(four.run(program, (size,))) == [True] * 4


def test_memory_is_used_again():
    def program(comm):
        for _ in range(50):
            received = comm.sendrecv(np.ones(MIB, np.int8), 1 - comm.rank, 1 - comm.rank)
            assert comm.all_reduce(received, algorithm="ring")[0] == 2
            assert comm.all_reduce(received)[0] == 2
            del received

    with Cluster(2, memory_bytes=16 * MIB) as cluster:
        for _ in range(3):
            cluster.run(program)


def test_too_much_memory_is_an_error_that_says_how_much_is_needed():
    with Cluster(2, memory_bytes=16 * MIB) as cluster:
        with pytest.raises(
            RankError,
            match=r"MemoryError: 64 MiB of shared memory.* of the 16 MiB that a rank may use",
        ):
            cluster.run(lambda comm: comm.all_reduce(np.ones(8 * MIB)))
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]


def test_the_size_of_dev_shm_does_not_matter(four):
    def program(comm):
        array = comm.empty(8 * MIB)
        array[...] = 1
        before = os.statvfs("/dev/shm").f_bfree
        comm.all_reduce(array, out=array)
        with open("/proc/self/maps") as maps:
            return "/dev/shm" in maps.read(), before - os.statvfs(
                "/dev/shm"
            ).f_bfree < 64 * MIB // os.statvfs("/dev/shm").f_bsize

    assert list(four.run(program)) == [(False, True)] * 4


def test_output_arrives_in_rank_order(four, capsys):
    def program(comm):
        time.sleep(0.02 * (4 - comm.rank))
        print("rank", comm.rank, "über")
        os.system(f"echo its child {comm.rank}")
        print("error", comm.rank, file=sys.stderr)

    result = four.run(program)
    printed = capsys.readouterr()
    assert printed.out == "".join(f"rank {rank} über\nits child {rank}\n" for rank in range(4))
    assert printed.err == "".join(f"error {rank}\n" for rank in range(4))
    assert result.output[2] == "rank 2 über\nits child 2\n"
    four.run(lambda comm: None)
    assert capsys.readouterr().out == ""


def test_ranks_are_processes_with_one_blas_thread(four):
    def program(comm):
        return os.getpid(), os.environ["OPENBLAS_NUM_THREADS"], os.environ["OMP_NUM_THREADS"]

    entries = list(four.run(program))
    assert len({pid for pid, *_ in entries} | {os.getpid()}) == 5
    assert all(entry[1:] == ("1", "1") for entry in entries)
    assert [pid for pid, *_ in four.run(program)] == [pid for pid, *_ in entries]


def test_arguments_large_results_and_account(four):
    result = four.run(lambda comm, array, factor: array * factor + comm.rank, (np.arange(MIB), 2))
    assert all(
        np.array_equal(array, np.arange(MIB) * 2 + rank) for rank, array in enumerate(result)
    )
    assert result.sent_bytes.tolist() == [[0] * 4] * 4
    assert result.trace == [] == result.spans


def test_what_a_program_does_between_two_times_stands_beside_its_transfers(four):
    def program(comm):
        with comm.span("forward", micro_batch=3):
            comm.all_reduce(np.ones(4), algorithm="ring")

    result = four.run(program)
    assert sorted((span.name, span.rank, span.labels) for span in result.spans) == [
        ("forward", rank, {"micro_batch": 3}) for rank in range(4)
    ]
    for event in result.trace:
        span = next(span for span in result.spans if span.rank == event.destination)
        assert span.start_s <= event.end_s <= span.end_s
        assert (event.collective, event.members) == ("all_reduce", (0, 1, 2, 3))


def test_transfers_beyond_the_limit_are_counted_and_not_kept():
    counters = Counters(0, 4, began_s=0.0)
    call = counters.begin("all_reduce", range(4))
    for _ in range(MOST_EVENTS + 7):
        counters.received_from(1, 8, call, 0, 0, True, 0.0)
    assert (len(counters.events), counters.untraced) == (MOST_EVENTS, 7)
    assert counters.received == [0, 8 * (MOST_EVENTS + 7), 0, 0]


def test_run_keeps_its_processes_until_shutdown():
    pids = list(run(lambda comm: os.getpid(), ranks=2))
    assert list(run(lambda comm: os.getpid(), ranks=2)) == pids
    shutdown()
    assert list(run(lambda comm: os.getpid(), ranks=2)) != pids


def test_a_closed_cluster_says_so():
    with Cluster(1) as cluster:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        cluster.run(lambda comm: None)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"ranks": 0}, ValueError, "ranks must be at least 1"),
        ({"ranks": 2.5}, TypeError, "ranks must be a whole number"),
        ({"ranks": True}, TypeError, "ranks"),
        ({"ranks": "4"}, TypeError, "ranks"),
        ({"ranks": 1000}, ValueError, "at most 64"),
        ({"engine": "gpu"}, ValueError, "engine must be one of 'local'"),
        ({"deadline_s": 0}, ValueError, "deadline_s must be above 0"),
        ({"deadline_s": float("nan")}, ValueError, "finite"),
        ({"network": 3}, TypeError, "network must be a Network"),
        ({"args": 5}, TypeError, "args must be a tuple of arguments, such as .*, got 5"),
        ({"args": "ab"}, TypeError, "args must be a tuple of arguments, such as .*, got 'ab'"),
        ({"memory_bytes": 4096.0}, TypeError, "memory_bytes must be a whole number"),
    ],
)
def test_wrong_arguments_of_run(arguments, error, message):
    with pytest.raises(error, match=message):
        run(lambda comm: None, **arguments)
    with pytest.raises(TypeError, match="program must be a function"):
        run(None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda comm: comm.send(1, 4), "destination must be at most 3, got 4"),
        (lambda comm: comm.send(1, -1), "destination must be at least 0"),
        (lambda comm: comm.recv("1"), "source must be a whole number"),
        (lambda comm: comm.send(1, 0, tag=-1), "tag must be at least 0"),
        (lambda comm: comm.broadcast(None, root=4), "root must be at most 3"),
        (lambda comm: comm.empty(3, object), "Python objects"),
        (lambda comm: comm.empty(3, "nonsense"), "dtype must be one of numpy's, got 'nonsense'"),
        (lambda comm: comm.empty(-1), "shape must be at least 0, got -1"),
        (lambda comm: comm.empty((2, 2.5)), "shape must be a whole number, got 2.5"),
        (lambda comm: comm.sendrecv(1, 0, 99), "source must be at most 3, got 99"),
        (lambda comm: comm.broadcast(None, root=1), "array must be given by the root, rank 1"),
        (lambda comm: comm.all_gather([[1], [1, 2]]), "array must have rows of one length"),
        (lambda comm: comm.span("x", f=[]).__enter__(), "f must be a str .* got "),
    ],
)
def test_wrong_arguments_of_comm(four, call, message):
    with pytest.raises(RankError, match=message):
        four.run(call)


def test_a_masked_array_keeps_its_mask(four):
    value = np.ma.array([1, 2, 3], mask=[False, True, False])
    received = four.run(lambda comm: comm.sendrecv(value, comm.rank ^ 1, comm.rank ^ 1))[0]
    assert type(received) is np.ma.MaskedArray
    assert received.mask.tolist() == [False, True, False]
