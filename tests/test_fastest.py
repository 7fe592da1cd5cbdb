"""The fastest algorithm on a described network: by brute force over all of them, and what real
ranks then run.
"""

from __future__ import annotations

import pytest

from dtlib.network import Network
from dtlib.ranks import Cluster
from dtlib.ranks.measure import measurements
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.fastest import fastest
from dtlib.units import GiB, KiB

FLAT = Network.flat(bandwidth_Bps=50e9, latency_s=5e-6)
TIERS = Network.of_nodes(
    4, inside_Bps=450e9, across_Bps=50e9, inside_latency_s=1e-6, across_latency_s=5e-6
)
FELT = Network.of_nodes(
    2, inside_Bps=180e6, across_Bps=10e6, inside_latency_s=2e-4, across_latency_s=1e-3
)


def steps(schedule):
    return [[column.tolist() for column in step] for step in schedule.steps]


def test_nothing_is_faster():
    for ranks in (1, 3, 8, 12):
        for network in (FLAT, TIERS, TIERS.placed([2 * rank for rank in range(ranks)])):
            for payload in (0, 64 * KiB, GiB):
                for collective, algorithms in ALGORITHMS.items():
                    chosen = fastest(collective, ranks, payload, network)
                    assert (chosen.collective, chosen.ranks) == (collective, ranks)
                    best_s = time_s(chosen, network, payload)
                    for name in algorithms:
                        sizes = [None]
                        if name == "hierarchical":
                            size = 4 if network is TIERS else 2
                            sizes = [] if network is FLAT or ranks % size else [size]
                        for size in sizes:
                            other = make(collective, name, ranks, node_size=size)
                            case = f"{other} is faster than {chosen}: {payload} B, {network}"
                            assert best_s <= time_s(other, network, payload), case


def test_size_and_network_decide():
    assert fastest("all_reduce", 8, GiB, TIERS).name == "hierarchical"
    assert fastest("all_reduce", 12, 16, FLAT).name in ("double_tree", "halving_doubling", "tree")
    assert fastest("all_reduce", 12, GiB, FLAT).name == "ring"


def test_places_decide():
    """The nodes of a hierarchical all-reduce are those that the members fill, in nodes of four."""
    for members, node_size in (
        ([0, 2, 4, 6], 2),  # two in each of two nodes
        ([0, 1, 2, 4, 5, 6], 3),
        ([5, 4, 1, 0], 2),  # in whatever order
        ([0, 1, 2, 3, 4, 5], 2),  # four and two: pairs are in one node each
    ):
        chosen = fastest("all_reduce", len(members), GiB, TIERS.placed(members))
        wanted = make("all_reduce", "hierarchical", len(members), node_size=node_size)
        assert steps(chosen) == steps(wanted), members
    for members in ([0, 1, 2, 3], [0, 4, 8, 12], [0, 4, 1, 5], [0, 1, 2, 4]):
        # one node, one rank a node, taking turns, and three and one
        assert fastest("all_reduce", 4, GiB, TIERS.placed(members)).name != "hierarchical", members


def test_ranks_run_it_by_default():
    def program(comm, algorithm):
        return int(comm.all_reduce([comm.rank] * 3000, algorithm=algorithm)[-1])

    def transfers(result):
        return sorted(
            (record.step, record.source, record.destination, record.chunk)
            for record in result.trace
        )

    with Cluster(4) as cluster:
        by_default = cluster.run(program, ("fastest",), network=FELT)
        by_name = cluster.run(
            program, (make("all_reduce", "hierarchical", 4, node_size=2),), network=FELT
        )
    assert list(by_default) == list(by_name) == [6] * 4
    assert transfers(by_default) == transfers(by_name) != []


def test_a_measurement_is_predicted_where_the_ranks_are_placed():
    ring, far = make("all_reduce", "ring", 2), FELT.placed([0, 2])
    with Cluster(2) as cluster:
        [measured] = measurements(cluster, 20_000, ring, network=far, rounds=1)
    # two messages of half the payload across: 2 x (1 ms + 10 kB at 10 MB/s)
    assert measured.predicted_s == pytest.approx(4e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reduce", 4, 1, FLAT), "collective must be one of"),
        (("all_reduce", 0, 1, FLAT), "ranks must be at least 1"),
        (("all_reduce", 4, -1, FLAT), "payload_bytes must be at least 0"),
        (("all_reduce", 4, 1, 50e9), "network must be a Network"),
        (("all_reduce", 4, 1, [50e9]), "network must be a Network"),
        (("all_reduce", True, 1, FLAT), "ranks must be"),
        (
            ("all_reduce", 4, 1, TIERS.placed([0, 1])),
            r"network must have a member for each of the 4 ranks, got 2: \(0, 1\)",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fastest(*arguments)
