"""The fastest algorithm on a described network: by brute force over all of them, and what real
ranks then run.
"""

from __future__ import annotations

import pytest

from dtlib.network import Network, Tier
from dtlib.ranks import Cluster
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.fastest import fastest
from dtlib.units import GiB, KiB, MiB

FLAT = Network.flat(bandwidth_Bps=50e9, latency_s=5e-6)
TIERS = Network((Tier("inside", 450e9, 1e-6, node_size=4), Tier("across", 50e9, 5e-6)))
FELT = Network((Tier("inside", 180e6, 2e-4, node_size=2), Tier("across", 10e6, 1e-3)))


@pytest.mark.parametrize("network", [FLAT, TIERS], ids=["flat", "tiers"])
@pytest.mark.parametrize("payload", [0, KiB, MiB, GiB])
@pytest.mark.parametrize("ranks", [1, 3, 8, 12])
def test_nothing_is_faster(network, payload, ranks):
    for collective, algorithms in ALGORITHMS.items():
        chosen = fastest(collective, ranks, payload, network)
        assert (chosen.collective, chosen.ranks) == (collective, ranks)
        for name in algorithms:
            group = {"group": 4} if name == "hierarchical" and ranks % 4 == 0 else {}
            if name != "hierarchical" or (group and network is TIERS):
                other = make(collective, name, ranks, **group)
                assert time_s(chosen, network, payload) <= time_s(other, network, payload)


def test_size_and_network_decide():
    assert fastest("all_reduce", 8, GiB, TIERS).name == "hierarchical"
    assert fastest("all_reduce", 12, 16, FLAT).name in ("double_tree", "halving_doubling", "tree")
    assert fastest("all_reduce", 12, GiB, FLAT).name == "ring"


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
            program, (make("all_reduce", "hierarchical", 4, group=2),), network=FELT
        )
    assert list(by_default) == list(by_name) == [6] * 4
    assert transfers(by_default) == transfers(by_name) != []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reduce", 4, 1, FLAT), "collective must be one of"),
        (("all_reduce", 0, 1, FLAT), "ranks must be at least 1"),
        (("all_reduce", 4, -1, FLAT), "payload_bytes must be at least 0"),
        (("all_reduce", 4, 1, 50e9), "network must be a Network"),
        (("all_reduce", 4, 1, [50e9]), "network must be a Network"),
        (("all_reduce", True, 1, FLAT), "ranks must be"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fastest(*arguments)
