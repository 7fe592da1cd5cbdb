"""Two tiers: the hierarchical schedule, its bytes and time, and what careful readers object to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtlib.facts.registry import accelerator, fact
from dtlib.facts.sweeps import sweep
from dtlib.formulas import traffic
from dtlib.formulas.collectives import algorithm_bandwidth_Bps, cost
from dtlib.formulas.hierarchy import (
    flat_ring_cost,
    hierarchical_cost,
    node_exit_Bps,
    sent_by_tier,
)
from dtlib.network import Network, Tier
from dtlib.simulators import collectives
from dtlib.simulators.checker import check, count_bytes_by_tier, count_bytes_sent
from dtlib.simulators.clock import LATENCIES, time_s
from dtlib.simulators.collectives import make
from dtlib.simulators.execute import execute
from dtlib.simulators.schedule import Schedule
from dtlib.units import GB, GiB, KiB, MiB, bytes_per_s

SHAPES = [
    (ranks // size, size)
    for ranks in (*range(1, 11), 12, 16)
    for size in range(1, ranks + 1)
    if ranks % size == 0
]


def two_tiers(
    node_size, inside_Bps=450e9, inside_s=0.0, across_Bps=50e9, across_s=0.0, ranks_per_card=1
):
    """The rates of an H100 cluster each way, without latency, unless said otherwise."""
    return Network.of_nodes(
        node_size,
        inside_Bps=inside_Bps,
        across_Bps=across_Bps,
        inside_latency_s=inside_s,
        across_latency_s=across_s,
        ranks_per_card=ranks_per_card,
    )


# --- The schedule ---------------------------------------------------------------------------------


def test_right_for_every_shape_and_size():
    for nodes, node_size in SHAPES:
        ranks = nodes * node_size
        schedule = make("all_reduce", "hierarchical", ranks, node_size=node_size)
        assert check(schedule).ok, schedule
        assert len(schedule.steps) == 2 * (node_size - 1) + 2 * (nodes - 1), schedule
        random = np.random.default_rng(ranks)
        for size in {*range(0, 41, 5), ranks - 1, ranks, ranks + 1}:
            arrays = list(random.integers(-999, 999, (ranks, size)))
            for result in execute(schedule, arrays).results:
                np.testing.assert_array_equal(
                    result, np.sum(arrays, axis=0), err_msg=f"{schedule}, {size} elements"
                )


def test_ranks_that_do_not_divide_and_nodes_where_there_are_none():
    with pytest.raises(ValueError, match="ranks=16 is not divisible by node_size=6"):
        make("all_reduce", "hierarchical", 16, node_size=6)
    with pytest.raises(ValueError, match="node_size is for hierarchical .*ring is not one, got 4"):
        make("all_reduce", "ring", 16, node_size=4)
    for bad in (0, -1, 2.5, float("nan"), "8", True):
        with pytest.raises((ValueError, TypeError), match="^node_size "):
            make("all_reduce", "hierarchical", 16, node_size=bad)


def test_without_a_node_size_the_fewest_messages_are_taken():
    for ranks in range(1, 49):
        fewest = min(
            2 * (size - 1) + 2 * (ranks // size - 1)
            for size in range(1, ranks + 1)
            if ranks % size == 0
        )
        assert len(make("all_reduce", "hierarchical", ranks).steps) == fewest, ranks


def test_without_the_all_reduce_across_nodes_the_sums_are_those_of_a_node(monkeypatch):
    monkeypatch.setattr(collectives, "across", lambda *_: iter(()))
    report = check(make("all_reduce", "hierarchical", 8, node_size=4))
    assert not report.ok
    assert report.faults[0].missing == (4, 5, 6, 7)


def test_lifted_pieces_are_schedules_of_their_own():
    """Inside alone, a reduce-scatter leaves the sum of a node with the rank of each place."""
    steps = list(collectives.inside(collectives.ring_reduce_scatter(4), nodes=2, node_size=4))
    half = Schedule("half", "all_reduce", 8, 8, steps)
    held = execute(half, [np.full(8, 10**rank) for rank in range(8)]).results
    assert held[0][:2].tolist() == [1111, 1111] and held[5][2:4].tolist() == [11110000, 11110000]


# --- Bytes ----------------------------------------------------------------------------------------


def test_bytes_by_tier_equal_the_closed_forms():
    for nodes, node_size in SHAPES:
        ranks = nodes * node_size
        payload, network = ranks * 840, two_tiers(node_size)
        for name, of in (("ring", None), ("hierarchical", node_size)):
            case = f"{name} on {nodes} nodes of {node_size}"
            schedule = make("all_reduce", name, ranks, node_size=of)
            counted = count_bytes_by_tier(schedule, network, payload)
            closed = sent_by_tier(name, payload, ranks, node_size)
            np.testing.assert_array_equal(
                counted["inside"] + counted["across"], count_bytes_sent(schedule, payload), case
            )
            assert counted["inside"].max() == pytest.approx(closed.inside), case
            assert counted["across"].max() == pytest.approx(closed.across), case
            np.testing.assert_allclose(
                counted["across"].reshape(nodes, node_size).sum(axis=1),
                closed.node_across,
                err_msg=case,
            )


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 300))
def test_no_byte_is_lost_between_the_tiers(nodes, node_size, payload):
    schedule = make("all_reduce", "hierarchical", nodes * node_size, node_size=node_size)
    events = execute(schedule, [np.zeros(payload, np.int8)] * schedule.ranks).events
    counted = count_bytes_by_tier(schedule, two_tiers(node_size), payload)
    for name, leaves in (("inside", False), ("across", True)):
        assert counted[name].tolist() == [
            sum(
                e.bytes
                for e in events
                if e.source == rank
                and (e.source // node_size != e.destination // node_size) == leaves
            )
            for rank in range(schedule.ranks)
        ]


def test_one_rank_of_a_node_carries_a_flat_ring_across():
    across = count_bytes_by_tier(make("all_reduce", "ring", 16), two_tiers(8), 16_000)["across"]
    assert across.nonzero()[0].tolist() == [7, 15] and set(across) == {0, 30_000}


# --- Time -----------------------------------------------------------------------------------------

NETWORKS = [
    {"inside_s": 1e-6, "across_s": 5e-6},
    {"inside_s": 1e-6, "across_s": 5e-6, "ranks_per_card": "all"},
    {"inside_Bps": 1e9, "inside_s": 1e-3},
    {"across_Bps": 25e9, "across_s": 1.0},
    {"inside_Bps": 1.0, "inside_s": 0.5, "across_Bps": 1.0, "across_s": 0.5},
]


def test_the_clock_equals_the_closed_forms():
    for nodes, node_size in SHAPES:
        ranks = nodes * node_size
        ring = make("all_reduce", "ring", ranks)
        hierarchical = make("all_reduce", "hierarchical", ranks, node_size=node_size)
        for rates in NETWORKS:
            cards = node_size if "ranks_per_card" in rates else 1
            network = two_tiers(node_size, **{**rates, "ranks_per_card": cards})
            for payload in (0, ranks * 10**6):
                case = f"{payload} B on {nodes} nodes of {node_size}, {rates}"
                flat_s = flat_ring_cost(payload, ranks, network).total_s
                closed_s = hierarchical_cost(payload, ranks, network).total_s
                assert time_s(ring, network, payload) == pytest.approx(flat_s, rel=1e-12), case
                for latency in LATENCIES:
                    walked_s = time_s(hierarchical, network, payload, latency=latency)
                    assert walked_s == pytest.approx(closed_s, rel=1e-12), case


def test_two_equal_tiers_are_one_flat_network():
    equal = {"inside_Bps": 50e9, "inside_s": 5e-6, "across_Bps": 50e9, "across_s": 5e-6}
    flat = Network.flat(50e9, 5e-6)
    for size in (1, 2, 4, 8, 16):
        assert flat_ring_cost(1e9, 16, two_tiers(size, **equal)).total_s == pytest.approx(
            cost("all_reduce", "ring", 1e9, 16, flat).total_s
        )
    assert hierarchical_cost(1e9, 16, two_tiers(4, **equal)).total_s == pytest.approx(
        cost("all_reduce", "hierarchical", 1e9, 16, flat).total_s
    )


def test_arrays_and_numbers_agree():
    network = two_tiers(8, **NETWORKS[0])
    sizes, ranks = np.logspace(3, 10, 8)[:, None], np.array([8, 16, 64])
    for function in (flat_ring_cost, hierarchical_cost):
        curve = function(sizes, ranks, network).total_s
        each = [[function(float(s), int(k), network).total_s for k in ranks] for s in sizes[:, 0]]
        assert all(type(one) is float for row in each for one in row)
        np.testing.assert_allclose(curve, each, rtol=1e-12)
    of = sent_by_tier("hierarchical", 8e9, 64, np.array([2, 4, 8]))
    assert of.across.tolist() == [
        sent_by_tier("hierarchical", 8e9, 64, size).across for size in (2, 4, 8)
    ]


def test_design_figures_of_two_nodes_of_four():
    """4 MB at 25 MB/s and 1 ms between nodes: measured on throttled links, flat 295 ms and
    hierarchical 52 ms.
    """
    network = two_tiers(4, inside_Bps=450e6, across_Bps=25e6, across_s=1e-3)
    assert flat_ring_cost(4e6, 8, network).total_s == pytest.approx(0.294)
    assert hierarchical_cost(4e6, 8, network).total_s == pytest.approx(0.042 + 6e6 / 450e6)


def test_overlapped_phases_take_as_long_as_the_slower_one():
    for across_Bps, ratio in ((50e9, 1.0), (25e9, 18 / 14)):  # of one node alone
        network = two_tiers(8, across_Bps=across_Bps)
        both = hierarchical_cost(np.array([1e6, 8e9]), 16, network)
        alone_s = hierarchical_cost(np.array([1e6, 8e9]), 8, network).total_s
        assert both.overlapped_s / alone_s == pytest.approx([ratio] * 2)
    slower = two_tiers(8, inside_s=1e-6, across_Bps=25e9, across_s=5e-6)
    both = hierarchical_cost(32 * KiB, 16, slower)
    # no latency hides another
    assert both.overlapped_s == pytest.approx(14e-6 + 2 * 5e-6 + 32 * KiB / 8 / 25e9)
    assert type(both.overlapped_s) is float


def test_a_flat_ring_of_tiny_messages_pays_the_latency_across_only_where_it_crosses():
    """With the latency on the wire, the 2 (K - 1) hops of one chunk in a row cross ceil(2 (K - 1) /
    w) times.
    """
    for nodes, node_size in SHAPES:
        if nodes == 1 or node_size == 1:
            continue
        ranks = nodes * node_size
        hops = 2 * (ranks - 1)
        network = two_tiers(node_size, 1.0, 1e-3, 1.0, 1.0)
        ring = make("all_reduce", "ring", ranks)
        crossings = -(-hops // node_size)
        case = f"{nodes} nodes of {node_size}"
        assert time_s(ring, network, 0, latency="wire") == pytest.approx(
            crossings + (hops - crossings) * 1e-3
        ), case
        # alpha-beta: every step waits for the slow hop
        assert time_s(ring, network, 0) == pytest.approx(hops), case


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(SHAPES), st.integers(0, 10**6))
def test_latency_on_the_wire_is_never_slower(shape, payload):
    nodes, node_size = shape
    network = two_tiers(node_size, **NETWORKS[0])
    for name in ("ring", "tree", "hierarchical"):
        schedule = make("all_reduce", name, nodes * node_size)
        on_wire, in_port = (
            time_s(schedule, network, payload, latency=latency) for latency in ("wire", "port")
        )
        assert on_wire <= in_port * (1 + 1e-12)


def test_where_latency_is_spent_is_named():
    with pytest.raises(ValueError, match="latency must be one of 'port', 'wire', got 'cable'"):
        time_s(make("all_reduce", "ring", 4), Network.flat(1.0, 0.0), 8, latency="cable")


@pytest.mark.parametrize("name", ["payload_bytes", "ranks", "node_size"])
def test_bad_sizes_are_named(name):
    good, network = {"payload_bytes": 1e9, "ranks": 16}, two_tiers(8)
    for bad in (-1, float("nan"), float("inf"), "8", True, None):
        with pytest.raises((ValueError, TypeError), match=f"^{name} "):
            sent_by_tier("ring", **{**good, "node_size": 8, name: bad})
        if name in good:
            for cost_of in (flat_ring_cost, hierarchical_cost):
                with pytest.raises((ValueError, TypeError), match=f"^{name} "):
                    cost_of(**{**good, name: bad}, network=network)


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (None, "^network must be a Network, such as Network.of_nodes"),
        (450e9, "^network must be a Network, such as Network.of_nodes"),
        (Network.flat(1.0, 0.0), "^network must have two tiers"),
        (Network((*two_tiers(2).tiers[:1], Tier("row", 1, 0, 4), Tier("all", 1, 0))), "two tiers"),
        (Network((Tier("inside", 1, 0, 2), Tier("across", 1, 0, 4))), "^network must have two"),
        (two_tiers(2).placed([0, 2, 4, 6]), r"^network must not be placed.*\(0, 2, 4, 6\)"),
        (two_tiers(4, ranks_per_card=8), "node_size=4 is not divisible by ranks_per_card=8"),
        (two_tiers(4, ranks_per_card=3), "node_size=4 is not divisible by ranks_per_card=3"),
        (
            Network((Tier("inside", 1, 0, 2, ranks_per_card=2), Tier("across", 1, 0))),
            "a card for each rank inside a node, got ranks_per_card=2",
        ),
    ],
)
def test_a_network_that_the_formulas_do_not_price_is_named(network, says):
    for call in (
        lambda: flat_ring_cost(1.0, 4, network),
        lambda: hierarchical_cost(1.0, 4, network),
        lambda: node_exit_Bps(network),
    ):
        with pytest.raises((TypeError, ValueError), match=says):
            call()


def test_ranks_that_do_not_fill_nodes_are_named():
    for ranks in (4, 12, np.array([16, 20])):  # half a node, one and a half, and in an array
        for cost_of in (flat_ring_cost, hierarchical_cost):
            with pytest.raises(ValueError, match="^ranks=.* is not divisible by node_size=8"):
                cost_of(1e9, ranks, two_tiers(8))
        with pytest.raises(ValueError, match="^ranks=.* is not divisible by node_size=8"):
            sent_by_tier("hierarchical", 1e9, ranks, 8)
    with pytest.raises(ValueError, match="payload_bytes .3,. and ranks .2,. do not broadcast"):
        flat_ring_cost(np.ones(3), np.array([2, 4]), two_tiers(2))


# --- The ledger, and careful readers --------------------------------------------------------------


def test_ledger_l08_to_l11_and_careful_1(ledger):
    printed, each_way, nic = (
        fact("h100-sxm.scaleup_printed"),
        fact("h100-sxm.scaleup"),
        fact("h100-sxm.nic"),
    )
    assert (printed.value, printed.direction) == (float(ledger["L08"]["value"]), "sum of both")
    assert nic.each_way_Bps == bytes_per_s(400) == float(ledger["L09"]["value"])
    assert printed.value / nic.value == float(ledger["L10"]["value"]) == 18
    assert each_way.each_way_Bps / nic.each_way_Bps == float(ledger["L11"]["value"]) == 9


def test_ledger_l13(ledger):
    rack = accelerator("GB200-NVL72")
    assert (rack.scaleup_domain, rack.scaleup_Bps) == (int(ledger["L13"]["value"]), 900e9)
    assert fact("gb200-nvl72.scaleup_printed").value == 1.8e12


def test_ledger_l12_and_l28(ledger):
    assert int(ledger["L12"]["value"]) == traffic.ALL_REDUCES_PER_LAYER
    assert traffic.data_bytes(405e9, 8, 16, 128) == pytest.approx(
        float(ledger["L28"]["value"]), rel=1e-6
    )


def test_ledger_l44(ledger):
    assert accelerator("H100-SXM").hbm_Bps / accelerator("H100-SXM").nic_Bps == float(
        ledger["L44"]["value"]
    )


def test_a_two_way_rate_in_place_of_a_one_way_rate_is_caught():
    def agrees(inside_Bps):
        """8 GB on 16 ranks in nodes of 8: 14 GB inside at 450 GB/s, 1 GB across at 50 GB/s each
        way.
        """
        schedule = make("all_reduce", "hierarchical", 16, node_size=8)
        return time_s(schedule, two_tiers(8, inside_Bps), 8 * GB) == pytest.approx(
            14 / 450 + 1 / 50
        )

    assert agrees(fact("h100-sxm.scaleup").value)
    assert not agrees(fact("h100-sxm.scaleup_printed").value)


def test_careful_2_the_link_ratio_is_not_the_slowdown():
    """Even at 18x, leaving the node costs a large all-reduce about 2x; at 32 KiB it is latency that
    counts.
    """
    network = two_tiers(8, across_Bps=25e9)
    inside_s = hierarchical_cost(GiB, 8, network).total_s
    assert network.inside.bandwidth_Bps / network.across.bandwidth_Bps == 18
    assert hierarchical_cost(GiB, 16, network).total_s / inside_s == pytest.approx(1 + 18 / 14)
    assert flat_ring_cost(GiB, 16, network).total_s / inside_s == pytest.approx(
        18 * (30 / 16) / (14 / 8)
    )
    named = Network.named("H100-SXM", inside_latency_s=0, across_latency_s=0)
    assert node_exit_Bps(named) == node_exit_Bps(two_tiers(8)) == 400e9
    assert node_exit_Bps(two_tiers(8, ranks_per_card=8)) == 50e9


def test_careful_2_as_measured_on_a_network_18_times_slower():
    """16 H100 in two nodes with 200 Gb/s a GPU, as printed in the run's log, against eight in one
    node.
    """
    two, one = sweep("nccl-16xh100-two-nodes"), sweep("nccl-8xh100")
    assert (two.at(32 * KiB), two.at(512 * MiB), two.at(8 * GiB)) == (155.2e-6, 3817.5e-6, 47535e-6)
    assert [
        round(two.at(size) / one.at(size), 1) for size in (32 * KiB, 512 * MiB, GiB, 8 * GiB)
    ] == [8.0, 1.8, 1.7, 1.5]
    printed_GBps = {MiB: 5.16, 512 * MiB: 140.63, 8 * GiB: 180.71}
    for size, rate in printed_GBps.items():
        assert algorithm_bandwidth_Bps(size, two.at(size)) / 1e9 == pytest.approx(rate, rel=2e-3)
    # Each payload byte leaves a node once (2 (N - 1)/N = 1): more than seven network cards' worth.
    exits = sent_by_tier("hierarchical", 8 * GiB, 16, 8).node_across / two.at(8 * GiB)
    assert 7 * 25e9 < exits < node_exit_Bps(two_tiers(8, across_Bps=25e9))


def test_careful_3_nominal_with_nominal():
    ring, wire = fact("bus-8xh100.ring"), fact("h100-sxm.scaleup")
    assert (ring.kind, wire.kind) == ("measured", "nominal")
    assert 360e9 <= ring.each_way_Bps <= 370e9 < wire.each_way_Bps == 450e9


def test_careful_4_switches_that_add():
    one, ring = sweep("nccl-8xh100"), fact("bus-8xh100.ring")
    best = algorithm_bandwidth_Bps(one.payload_bytes, one.time_s).max()
    in_ring = ring.each_way_Bps / (2 * 7 / 8)
    assert best / in_ring == pytest.approx(1.3, abs=0.01)
    assert best < accelerator("H100-SXM").scaleup_Bps < best * 2 * 7 / 8


def test_traffic_of_llama_3_405b_by_brute_force():
    """Every all-reduce of every layer and micro-batch counted one by one, on the busiest GPU of an
    average stage.
    """
    layers, hidden, micro_batches, tokens = 126, 16384, 16, 8192
    total = sum(
        2 * (7 / 8) * tokens * hidden * 2
        for _ in range(layers)
        for _ in range(micro_batches)
        for _ in range(4)
    )
    assert traffic.tensor_bytes(layers / 16, tokens * micro_batches, hidden, 8) == pytest.approx(
        total / 16
    )
    assert (
        traffic.pipeline_bytes(tokens * micro_batches, hidden, 8)
        == micro_batches * tokens * hidden * 2 / 8
    )


GOOD_TRAFFIC = {
    "parameters": 1e9,
    "layers": 2,
    "hidden": 8,
    "batch_tokens": 64,
    "tp": 1,
    "pp": 1,
    "dp": 1,
    "node_size": 4,
}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tp": 6}, "^the degree of tensor=6 is not divisible by those in one node=4"),
        ({"dp": 6}, "^the degree of data=6 is not divisible by those in one node=4"),
        ({"tp": 3, "dp": 4, "node_size": 8}, "^node_size=8 is not divisible by the span of its"),
        ({"layers": "2"}, "^layers must be a whole number"),
        ({"layers": 2.5}, "^layers must be a whole number"),
        ({"batch_tokens": 1e308}, "^batch_tokens must be a whole number"),
        ({"node_size": 0}, "^node_size must be at least 1"),
        # nothing is cut into more parts than it has
        ({"layers": 4, "pp": 16}, "^pp must be at most layers=4, so that .*, got 16"),
        ({"batch_tokens": 1, "dp": 128}, "^dp must be at most batch_tokens=1, .*, got 128"),
        ({"batch_tokens": 64, "dp": 128}, "^dp must be at most batch_tokens=64, .*, got 128"),
        ({"hidden": 8, "tp": 16}, "^tp must be at most hidden=8, .*, got 16"),
        ({"parameters": 3, "tp": 2, "pp": 2}, "^tp x pp must be at most parameters=3.0, .*, got 4"),
    ],
)
def test_traffic_names_what_does_not_fit(changes, says):
    assert traffic.traffic(**GOOD_TRAFFIC)
    with pytest.raises((TypeError, ValueError), match=says):
        traffic.traffic(**{**GOOD_TRAFFIC, **changes})


def test_as_many_parts_as_there_are_is_allowed():
    whole = {**GOOD_TRAFFIC, "layers": 2, "pp": 2, "hidden": 8, "tp": 8, "dp": 64}
    assert traffic.traffic(**whole)["data"].across > 0
    for call in (
        lambda: traffic.tensor_bytes(1, 1, hidden=8, tp=16),
        lambda: traffic.pipeline_bytes(1, hidden=8, tp=16),
        lambda: traffic.data_bytes(8, tp=4, pp=4, dp=1),
    ):
        with pytest.raises(ValueError, match="must be at most"):
            call()
