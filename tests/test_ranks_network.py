"""A described network imposed on real ranks: what a stopwatch says against the description and the
clock.
"""

from __future__ import annotations

import sys
import time

import cloudpickle
import numpy as np
import pytest

from dtlib.network import Network, Tier
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.ranks import Cluster, RankError

cloudpickle.register_pickle_by_value(sys.modules[__name__])
NODES_OF_TWO = Network((Tier("inside", 450e6, 0.1e-3, node_size=2), Tier("between", 25e6, 1e-3)))
SHARED_CARD = Network(
    (Tier("inside", 225e6, 0.1e-3, node_size=2), Tier("between", 25e6, 1e-3, ranks_per_card=2))
)


@pytest.fixture(scope="module")
def four():
    with Cluster(4) as cluster:
        cluster.run(lambda comm: None)
        yield cluster


def check(expected_s: float, measure, rel: float = 0.1) -> None:
    """Measure until it is as short as expected, at most ten times: a busy machine adds to it, and
    nothing takes away.
    """
    for _ in range(10):
        measured_s = measure()
        assert measured_s > expected_s * (1 - rel)
        if measured_s < expected_s * (1 + rel):
            return
    raise AssertionError(
        f"expected {expected_s:g} s, but the last of ten attempts took {measured_s:g} s"
    )


def span(cluster: Cluster, program, network: Network, *args: object) -> float:
    """Seconds from the first rank's beginning to the last one's end."""

    def timed(comm, *args):
        program(comm, *args)
        comm.meeting.wait()
        start = time.perf_counter()
        program(comm, *args)
        return start, time.perf_counter()

    spans = list(cluster.run(timed, args, network=network))
    return max(end for _, end in spans) - min(start for start, _ in spans)


@pytest.mark.parametrize("bandwidth_Bps", [10e6, 100e6])
@pytest.mark.parametrize("latency_s", [1e-3, 5e-3])
def test_a_message_takes_latency_and_bandwidth(four, bandwidth_Bps, latency_s):
    def program(comm, size):
        if comm.rank == 0:
            comm.send(np.zeros(size, np.int8), 1)
        elif comm.rank == 1:
            comm.recv(0)

    network = Network.flat(bandwidth_Bps, latency_s)
    for size in (1, int(bandwidth_Bps / 20)):
        check(
            latency_s + size / bandwidth_Bps, lambda size=size: span(four, program, network, size)
        )


def test_directions_are_separate_and_a_port_is_shared(four):
    def both_ways(comm, size):
        if comm.rank < 2:
            comm.sendrecv(np.zeros(size, np.int8), 1 - comm.rank, 1 - comm.rank)

    def all_to_one(comm, size):
        if comm.rank:
            comm.send(np.zeros(size, np.int8), 0)
        else:
            for source in (1, 2, 3):
                comm.recv(source)

    def node_to_node(comm, size):
        if comm.rank < 2:
            comm.send(np.zeros(size, np.int8), comm.rank + 2)
        else:
            comm.recv(comm.rank - 2)

    network, size = Network.flat(50e6, 1e-3), 2_500_000
    check(0.051, lambda: span(four, both_ways, network, size))
    check(0.153, lambda: span(four, all_to_one, network, size))
    check(0.101, lambda: span(four, node_to_node, NODES_OF_TWO, size))
    check(0.201, lambda: span(four, node_to_node, SHARED_CARD, size))


@pytest.mark.parametrize(
    "network",
    [Network.flat(50e6, 1e-3), NODES_OF_TWO, SHARED_CARD],
    ids=["flat", "card per rank", "card per node"],
)
@pytest.mark.parametrize(
    ("collective", "name"),
    [(collective, name) for collective, algorithms in ALGORITHMS.items() for name in algorithms],
)
@pytest.mark.parametrize("size", [2_000_000])
def test_schedules_take_what_the_clock_says(four, network, collective, name, size):
    def program(comm):
        getattr(comm, collective)(
            np.zeros(size // 4 if collective == "all_gather" else size, np.int8), algorithm=name
        )

    expected = time_s(make(collective, name, 4), network, size)
    check(expected, lambda: span(four, program, network), rel=0.15)


def test_the_default_on_a_network_is_a_schedule_whose_bytes_are_sent(four):
    result = four.run(lambda comm: comm.all_reduce(np.ones(1000)), network=Network.flat(1e9, 0))
    assert result.sent_bytes.sum(axis=1).tolist() == [2 * 3 * 2000] * 4
    assert (result.sent_bytes[0] > 0).tolist() == [False, True, False, False]


def test_ranks_that_no_tier_joins_are_named(four):
    islands = Network((Tier("inside", 1e9, 0, node_size=2),))
    with pytest.raises(RankError, match="no tier joins ranks 1 and 2"):
        four.run(
            lambda comm: comm.send(1, comm.rank + 1) if comm.rank == 1 else None, network=islands
        )


def test_a_rank_that_waits_for_the_network_hears_of_a_failure(four):
    def program(comm):
        if comm.rank == 0:
            comm.send(np.zeros(10_000_000, np.int8), 1)
        if comm.rank == 1:
            comm.recv(0)
        if comm.rank == 2:
            time.sleep(0.1)
            raise ValueError("meanwhile")

    start = time.perf_counter()
    with pytest.raises(RankError, match="rank 2 raised ValueError: meanwhile"):
        four.run(program, network=Network.flat(1e6, 0))
    assert time.perf_counter() - start < 3


@pytest.fixture(scope="module")
def eight():
    with Cluster(8) as cluster:
        cluster.run(lambda comm: None)
        yield cluster


@pytest.mark.parametrize("card", [1, None], ids=["a card per rank", "a card per node"])
@pytest.mark.parametrize("ratio", [9, 18])
@pytest.mark.parametrize("width", [2, 4])
def test_a_hierarchical_all_reduce_beats_a_flat_ring_by_the_clocks_factor(
    four, eight, width, ratio, card
):
    """On two nodes of two and of four, by the stopwatch: the slow tier is felt and not only
    computed.
    """
    cluster, size = {2: four, 4: eight}[width], 2**20
    network = Network(
        (
            Tier("inside", ratio * 10e6, 0.2e-3, node_size=width),
            Tier("between", 10e6, 1e-3, ranks_per_card=card or width),
        )
    )
    schedules = {
        "flat": make("all_reduce", "ring", 2 * width),
        "hierarchical": make("all_reduce", "hierarchical", 2 * width, node_size=width),
    }
    predicted_s = {name: time_s(schedule, network, size) for name, schedule in schedules.items()}

    def program(comm, schedule):
        comm.all_reduce(np.zeros(size, np.uint8), algorithm=schedule)

    best_s = dict.fromkeys(schedules, float("inf"))
    factor = predicted_s["flat"] / predicted_s["hierarchical"]
    for _ in range(6):  # a busy machine adds to a time, and nothing takes away
        for name, schedule in schedules.items():
            best_s[name] = min(best_s[name], span(cluster, program, network, schedule))
        if best_s["flat"] / best_s["hierarchical"] == pytest.approx(factor, rel=0.15):
            break
    assert best_s["flat"] / best_s["hierarchical"] == pytest.approx(factor, rel=0.15)
    assert factor > 1.3
