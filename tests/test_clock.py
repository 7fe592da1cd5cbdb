"""The clock against the closed forms, and what only a clock can say: tiers, shared ports, who waits
for whom.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtlib.formulas import collectives as formulas
from dtlib.network import Network, Tier
from dtlib.simulators.clock import time_s, timeline
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.schedule import Schedule, Transfer

EVERY = [
    (collective, algorithm) for collective in ALGORITHMS for algorithm in ALGORITHMS[collective]
]
BANDWIDTH_BPS, LATENCY_S = 50e9, 5e-6
FLAT = Network.flat(BANDWIDTH_BPS, LATENCY_S)


def pieces_to_try(collective, algorithm):
    return (1, 2, 3, 7) if ALGORITHMS[collective][algorithm].pieces else (None,)


def test_the_clock_equals_the_closed_form():
    for collective, algorithm in EVERY:
        for ranks in (*range(1, 14), 16, 17, 32, 48):
            for pieces in pieces_to_try(collective, algorithm):
                schedule = make(collective, algorithm, ranks, pieces=pieces)
                payload = schedule.chunks * 840
                for latency_s in (0.0, LATENCY_S, 1.0):
                    network = Network.flat(BANDWIDTH_BPS, latency_s)
                    closed = formulas.cost(
                        collective, algorithm, payload, ranks, network, pieces
                    ).total_s
                    assert time_s(schedule, network, payload) == pytest.approx(closed, rel=1e-12), (
                        f"{schedule}, latency {latency_s}"
                    )


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(EVERY), st.integers(2, 17), st.integers(0, 5000))
def test_a_payload_that_does_not_divide_costs_at_most_a_byte_a_chunk(name, ranks, payload):
    schedule = make(*name, ranks)
    pieces = ALGORITHMS[name[0]][name[1]].pieces
    closed = [
        formulas.cost(*name, size, ranks, FLAT, pieces).total_s
        for size in (payload, payload + schedule.chunks)
    ]
    assert closed[0] * (1 - 1e-12) <= time_s(schedule, FLAT, payload) <= closed[1] * (1 + 1e-12)


def test_careful_12_in_both_regimes():
    """A naive tree costs 2 log2 n (alpha + S/B); the double tree has log latency and full
    bandwidth.
    """

    def seconds(algorithm, payload, ranks=64):
        pieces = None
        if algorithm == "double_tree":
            pieces = formulas.best_pieces("all_reduce", algorithm, payload, ranks, FLAT)
        return time_s(make("all_reduce", algorithm, ranks, pieces=pieces), FLAT, payload)

    small, large = 640, 64 * 10**9
    assert seconds("tree", small) == pytest.approx(12 * (5e-6 + 640 / 50e9), rel=1e-12)
    assert seconds("double_tree", small) < 2 * seconds("tree", small) < seconds("ring", small) / 4
    assert seconds("tree", large) > 5 * seconds("ring", large)
    assert seconds("double_tree", large) == pytest.approx(2 * large / 50e9, rel=0.02)
    assert seconds("double_tree", large) == pytest.approx(seconds("ring", large), rel=0.04)


def test_a_large_ring():
    ranks = 1024
    finish = timeline(make("all_reduce", "ring", ranks), FLAT, ranks * 1000).finish_s
    assert finish.shape == (2 * (ranks - 1), ranks)
    np.testing.assert_allclose(
        finish, np.arange(1, 2 * ranks - 1)[:, None] * np.full(ranks, 5e-6 + 2e-8), rtol=1e-9
    )


def test_one_rank_takes_no_time():
    for collective, algorithm in EVERY:
        assert time_s(make(collective, algorithm, 1), FLAT, 10**9) == 0


def steps(*transfers, ranks=4, chunks=2):
    return Schedule("test", "all_reduce", ranks, chunks, list(transfers))


UNIT = Network.flat(bandwidth_Bps=1.0, latency_s=10.0)


def test_ports_in_one_step():
    for step, wanted_s in [
        ([Transfer(0, 1, 0)], 15),  # 10 + 5
        ([Transfer(0, 1, 0), Transfer(1, 0, 1)], 15),  # both directions at once
        ([Transfer(0, 1, 0), Transfer(0, 1, 1)], 20),  # two chunks, one message
        ([Transfer(0, 1, 0), Transfer(0, 2, 0)], 30),  # one port sends two messages
        ([Transfer(0, 2, 0, True), Transfer(1, 2, 0, True)], 30),  # one port receives two
        ([Transfer(0, 1, 0), Transfer(1, 2, 0), Transfer(2, 3, 0)], 15),  # different ports
    ]:
        assert time_s(steps(step), UNIT, 10) == wanted_s, step


def test_a_rank_waits_for_its_own_transfers_only():
    schedule = steps([Transfer(0, 1, [0, 1])], [Transfer(2, 3, 0)], [Transfer(1, 2, 0)])
    line = timeline(schedule, UNIT, 10)
    assert line.finish_s.tolist() == [[20, 20, 0, 0], [20, 20, 15, 15], [20, 35, 35, 15]]
    assert line.total_s == 35


def test_the_innermost_tier_that_contains_both_ranks_carries_the_message():
    nodes = Network((Tier("inside", 10.0, 1.0, node_size=2), Tier("across", 1.0, 3.0)))
    assert time_s(steps([Transfer(0, 1, 0)]), nodes, 20) == 1 + 1
    assert time_s(steps([Transfer(1, 2, 0)]), nodes, 20) == 3 + 10
    # A rank has a port in every tier: the slow message does not hold up the fast one.
    both = timeline(steps([Transfer(0, 1, 0), Transfer(0, 2, 0)]), nodes, 20)
    assert both.finish_s.tolist() == [[13, 2, 13, 0]]


def test_a_port_may_be_shared_by_a_node():
    def across_s(ranks_per_card):
        tiers = (
            Tier("inside", 10.0, 1.0, node_size=2),
            Tier("across", 1.0, 3.0, ranks_per_card=ranks_per_card),
        )
        return time_s(steps([Transfer([0, 1], [2, 3], 0)]), Network(tiers), 20)

    assert across_s(1) == 3 + 10
    assert across_s(2) == 3 + 20  # the bytes share the card, each rank has its own latency


def slow_nodes(ranks_per_card=1):
    """Nodes of four: 1 s and 10 B/s inside, 3 s and 1 B/s across."""
    return Network.of_nodes(
        4,
        inside_Bps=10,
        across_Bps=1,
        inside_latency_s=1,
        across_latency_s=3,
        ranks_per_card=ranks_per_card,
    )


@pytest.mark.parametrize(
    ("members", "ring_s", "hierarchical_s"),
    [
        # 40 bytes on 4 ranks: a ring is 6 steps of 10 bytes; hierarchical in nodes of two is 2
        # steps of 20 bytes inside and 2 of 10 across. 10 bytes take 2 s inside and 13 across, 20
        # bytes 3 s and 23.
        (None, 6 * 2, 2 * 3 + 2 * 2),  # all four in the first node
        ([4, 5, 6, 7], 6 * 2, 2 * 3 + 2 * 2),  # or in the second
        ([0, 2, 4, 6], 6 * 13, 2 * 3 + 2 * 13),  # two in each: the ring waits for its slow hop
        ([0, 4, 8, 12], 6 * 13, 2 * 23 + 2 * 13),  # one in each
        ([0, 4, 1, 5], 6 * 13, 2 * 23 + 2 * 2),  # in turns: inside and across change places
    ],
)
def test_a_group_of_ranks_is_timed_where_it_is_placed(members, ring_s, hierarchical_s):
    ring = make("all_reduce", "ring", 4)
    hierarchical = make("all_reduce", "hierarchical", 4, node_size=2)
    network = slow_nodes() if members is None else slow_nodes().placed(members)
    assert time_s(ring, network, 40) == ring_s
    assert time_s(hierarchical, network, 40) == hierarchical_s


def test_members_of_one_node_share_its_card():
    hierarchical = make("all_reduce", "hierarchical", 4, node_size=2)
    # both members send 10 bytes across at once: 3 s and 20 bytes through the one card
    assert time_s(hierarchical, slow_nodes(4).placed([0, 2, 4, 6]), 40) == 2 * 3 + 2 * 23
    assert time_s(hierarchical, slow_nodes(2).placed([0, 2, 4, 6]), 40) == 2 * 3 + 2 * 13


def test_members_of_members_are_placed_in_the_whole_run():
    every_other = slow_nodes().placed([0, 2, 4, 6])
    assert time_s(make("all_reduce", "ring", 2), every_other.placed([1, 2]), 20) == 2 * 13


def test_another_number_of_members_is_named():
    for ranks in (3, 5):
        with pytest.raises(
            ValueError, match=f"^network must have a member for each of the {ranks} ranks, got 4"
        ):
            time_s(make("all_reduce", "ring", ranks), slow_nodes().placed([0, 2, 4, 6]), 40)


def test_a_bandwidth_read_as_the_sum_of_both_directions_is_caught():
    """NVLink 4's 900 GB/s is a two-way sum (careful.md 1); 8 ranks and 8 GB at 450 GB/s take 2 x 7
    x 1/450 s.
    """

    def agrees(bandwidth_Bps):
        seconds = time_s(make("all_reduce", "ring", 8), Network.flat(bandwidth_Bps, 0.0), 8 * 10**9)
        return seconds == pytest.approx(14 / 450)

    assert agrees(450e9)
    assert not agrees(900e9)


def test_a_bad_tier_is_named():
    for name, values in {
        "bandwidth_Bps": (0, -1, float("nan"), float("inf"), "8", True, None),
        "latency_s": (-1, float("nan"), float("inf"), "8", True, None),
        "node_size": (0, -1, 2.5, float("nan"), "8", True),
        "ranks_per_card": (0, -1, 2.5, float("nan"), "8", True, None),
    }.items():
        for value in values:
            with pytest.raises((ValueError, TypeError), match=f"^{name} "):
                Tier(**{"name": "bad", "bandwidth_Bps": 1.0, "latency_s": 0.0, name: value})


def test_a_bad_payload_is_named():
    for value in (-1, 2.5, float("nan"), float("inf"), "8", True, None):
        with pytest.raises((ValueError, TypeError), match="^payload_bytes "):
            time_s(make("all_reduce", "ring", 4), FLAT, value)


def test_networks_that_cannot_be():
    with pytest.raises(TypeError, match="tiers must be one Tier or more"):
        Network(())
    with pytest.raises(
        ValueError, match=r"node_size must grow by whole factors from tier to tier, got \[8, 12\]"
    ):
        Network((Tier("a", 1.0, 0.0, node_size=8), Tier("b", 1.0, 0.0, node_size=12)))
    with pytest.raises(
        ValueError, match="no tier joins ranks 1 and 2: the outermost node_size is 2"
    ):
        time_s(make("all_reduce", "ring", 4), Network((Tier("a", 1.0, 0.0, node_size=2),)), 8)


def test_what_is_no_schedule_network_or_tiers_is_named():
    for bad in (None, 5, Network):
        with pytest.raises(TypeError, match="^schedule must be a Schedule"):
            time_s(bad, FLAT, 8)
        with pytest.raises(TypeError, match="^network must be a Network"):
            time_s(make("all_reduce", "ring", 4), bad, 8)
    for bad in (None, 5, (), [1], Tier("a", 1.0, 0.0), "ab"):
        with pytest.raises(TypeError, match="^tiers must be one Tier or more in a tuple"):
            Network(bad)


def test_a_tier_keeps_plain_numbers():
    assert hash(Tier("a", np.array(1.0), np.float64(0), np.int8(8), np.int64(2))) == hash(
        Tier("a", 1, 0, 8, 2)
    )
    with pytest.raises(TypeError, match="^name must be a str, got None"):
        Tier(None, 1.0, 0.0)


def test_a_timeline_too_large_to_hold_is_refused():
    wide = Schedule("wide", "all_reduce", 10**7, 1, [[]] * 100)
    with pytest.raises(
        ValueError, match="^steps x ranks of the schedule must be at most 536870912, got 1000000000"
    ):
        time_s(wide, FLAT, 8)
