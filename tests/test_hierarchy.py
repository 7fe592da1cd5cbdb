"""Two tiers: the hierarchical schedule, its bytes and its time, and what careful readers object to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtlib.facts.registry import accelerator, fact
from dtlib.facts.sweeps import sweep
from dtlib.formulas import hierarchy, traffic
from dtlib.formulas.collectives import algorithm_bandwidth_Bps, cost
from dtlib.formulas.hierarchy import (
    TwoTiers,
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

SHAPES = [(nodes, width) for nodes in range(1, 18) for width in range(1, 18) if nodes * width <= 17]
each_shape = pytest.mark.parametrize(("nodes", "width"), SHAPES)


def described(tiers: TwoTiers, width: int) -> Network:
    return Network(
        (
            Tier("inside", tiers.inner_Bps, tiers.inner_latency_s, node_size=width),
            Tier(
                "across",
                tiers.outer_Bps,
                tiers.outer_latency_s,
                ranks_per_card=tiers.ranks_per_card,
            ),
        )
    )


# --- The schedule ---------------------------------------------------------------------------------


@each_shape
def test_right_for_every_shape_and_size(nodes, width):
    ranks = nodes * width
    schedule = make("all_reduce", "hierarchical", ranks, group=width)
    assert check(schedule).ok
    assert len(schedule.steps) == 2 * (width - 1) + 2 * (nodes - 1)
    random = np.random.default_rng(ranks)
    for size in range(41):
        arrays = list(random.integers(-999, 999, (ranks, size)))
        for result in execute(schedule, arrays).results:
            np.testing.assert_array_equal(result, np.sum(arrays, axis=0))


def test_ranks_that_do_not_divide_and_groups_where_there_are_none():
    with pytest.raises(ValueError, match="ranks=16 is not divisible by group=6"):
        make("all_reduce", "hierarchical", 16, group=6)
    with pytest.raises(
        ValueError, match="group is for hierarchical algorithms, ring is not one, got 4"
    ):
        make("all_reduce", "ring", 16, group=4)
    for bad in (0, -1, 2.5, float("nan"), "8", True):
        with pytest.raises((ValueError, TypeError), match="^group "):
            make("all_reduce", "hierarchical", 16, group=bad)
    with pytest.raises(ValueError, match="ranks=16 is not divisible by group=6"):
        hierarchical_cost(1e9, 16, 6, TwoTiers(1, 0, 1, 0))


def test_without_a_group_the_fewest_messages_are_taken():
    for ranks in range(1, 65):
        fewest = min(
            len(make("all_reduce", "hierarchical", ranks, group=width).steps)
            for width in range(1, ranks + 1)
            if ranks % width == 0
        )
        assert len(make("all_reduce", "hierarchical", ranks).steps) == fewest


def test_without_the_all_reduce_between_nodes_the_sums_are_those_of_a_node(monkeypatch):
    monkeypatch.setattr(collectives, "across", lambda *_: iter(()))
    report = check(make("all_reduce", "hierarchical", 8, group=4))
    assert not report.ok
    assert report.faults[0].missing == (4, 5, 6, 7)


# --- Bytes ----------------------------------------------------------------------------------------


@each_shape
def test_bytes_by_tier_equal_the_closed_forms(nodes, width):
    ranks = nodes * width
    payload, network = ranks * 840, described(TwoTiers(1, 0, 1, 0), width)
    for name in ("ring", "hierarchical"):
        schedule = make(
            "all_reduce", name, ranks, **({"group": width} if name == "hierarchical" else {})
        )
        counted, closed = (
            count_bytes_by_tier(schedule, network, payload),
            sent_by_tier(name, payload, ranks, width),
        )
        np.testing.assert_array_equal(
            counted["inside"] + counted["across"], count_bytes_sent(schedule, payload)
        )
        assert counted["inside"].max() == pytest.approx(closed.inside)
        assert counted["across"].max() == pytest.approx(closed.across)
        np.testing.assert_allclose(
            counted["across"].reshape(nodes, width).sum(axis=1), closed.node_across
        )


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 300))
def test_no_byte_is_lost_between_the_tiers(nodes, width, payload):
    schedule = make("all_reduce", "hierarchical", nodes * width, group=width)
    events = execute(schedule, [np.zeros(payload, np.int8)] * schedule.ranks).events
    counted = count_bytes_by_tier(schedule, described(TwoTiers(1, 0, 1, 0), width), payload)
    for name, leaves in (("inside", False), ("across", True)):
        assert counted[name].tolist() == [
            sum(
                e.bytes
                for e in events
                if e.source == rank and (e.source // width != e.destination // width) == leaves
            )
            for rank in range(schedule.ranks)
        ]


def test_one_rank_of_a_node_carries_a_flat_ring_across():
    across = count_bytes_by_tier(
        make("all_reduce", "ring", 16), described(TwoTiers(1, 0, 1, 0), 8), 16_000
    )["across"]
    assert across.nonzero()[0].tolist() == [7, 15] and set(across) == {0, 30_000}


# --- Time -----------------------------------------------------------------------------------------

NETWORKS = [
    TwoTiers(450e9, 1e-6, 50e9, 5e-6),
    TwoTiers(450e9, 1e-6, 50e9, 5e-6, ranks_per_card=17),
    TwoTiers(1e9, 1e-3, 50e9, 0.0),
    TwoTiers(450e9, 0.0, 25e9, 1.0),
    TwoTiers(1.0, 0.5, 1.0, 0.5),
]


@each_shape
@pytest.mark.parametrize("tiers", NETWORKS)
@pytest.mark.parametrize("unit", [0, 1, 10**6])
def test_the_clock_equals_the_closed_forms(nodes, width, tiers, unit):
    ranks = nodes * width
    # A port is shared by the ranks of one node.
    tiers = TwoTiers(
        tiers.inner_Bps,
        tiers.inner_latency_s,
        tiers.outer_Bps,
        tiers.outer_latency_s,
        min(tiers.ranks_per_card, width),
    )
    network, payload = described(tiers, width), ranks * unit
    hierarchical = make("all_reduce", "hierarchical", ranks, group=width)
    closed = hierarchical_cost(payload, ranks, width, tiers).total_s
    for latency in LATENCIES:
        assert time_s(hierarchical, network, payload, latency=latency) == pytest.approx(
            closed, rel=1e-12
        )
    assert time_s(make("all_reduce", "ring", ranks), network, payload) == pytest.approx(
        flat_ring_cost(payload, ranks, width, tiers).total_s, rel=1e-12
    )


def test_two_equal_tiers_are_one_flat_network():
    tiers = TwoTiers(50e9, 5e-6, 50e9, 5e-6)
    for width in (1, 2, 4, 8, 16):
        assert flat_ring_cost(1e9, 16, width, tiers).total_s == pytest.approx(
            cost("all_reduce", "ring", 1e9, 16, 50e9, 5e-6).total_s
        )
    assert hierarchical_cost(1e9, 16, 4, tiers).total_s == pytest.approx(
        cost("all_reduce", "hierarchical", 1e9, 16, 50e9, 5e-6).total_s
    )


def test_arrays_and_numbers_agree():
    tiers, sizes = NETWORKS[0], np.logspace(3, 10, 8)
    for function in (flat_ring_cost, hierarchical_cost):
        curve = function(sizes, 64, 8, tiers).total_s
        each = [function(float(size), 64, 8, tiers).total_s for size in sizes]
        assert all(type(one) is float for one in each)
        np.testing.assert_allclose(curve, each, rtol=1e-12)
    widths = np.array([2, 4, 8])
    np.testing.assert_allclose(node_exit_Bps(widths, tiers), widths * 50e9)


def test_design_figures_of_two_nodes_of_four():
    """4 MB at 25 MB/s and 1 ms between nodes: measured on throttled links, flat 295 ms and
    hierarchical 52 ms.
    """
    tiers = TwoTiers(450e6, 0.0, 25e6, 1e-3)
    assert flat_ring_cost(4e6, 8, 4, tiers).total_s == pytest.approx(0.294)
    assert hierarchical_cost(4e6, 8, 4, tiers).total_s == pytest.approx(0.042 + 6e6 / 450e6)


def test_overlapped_phases_take_as_long_as_the_slower_one():
    for outer_Bps, ratio in ((50e9, 1.0), (25e9, 18 / 14)):  # of one node alone
        both = hierarchical_cost(np.array([1e6, 8e9]), 16, 8, TwoTiers(450e9, 0, outer_Bps, 0))
        alone_s = hierarchical_cost(
            np.array([1e6, 8e9]), 8, 8, TwoTiers(450e9, 0, outer_Bps, 0)
        ).total_s
        assert both.overlapped_s / alone_s == pytest.approx([ratio] * 2)
    both = hierarchical_cost(32 * KiB, 16, 8, TwoTiers(450e9, 1e-6, 25e9, 5e-6))
    assert both.overlapped_s == pytest.approx(
        14e-6 + 2 * 5e-6 + 32 * KiB / 8 / 25e9
    )  # no latency hides another
    assert type(both.overlapped_s) is float


@pytest.mark.parametrize(
    ("nodes", "width"), [shape for shape in SHAPES if shape[0] > 1 and shape[1] > 1]
)
def test_a_flat_ring_of_tiny_messages_pays_the_outer_latency_only_where_it_crosses(nodes, width):
    """With the latency on the wire, the 2 (K - 1) hops of one chunk in a row cross ceil(2 (K - 1) /
    w) times.
    """
    ranks = nodes * width
    hops = 2 * (ranks - 1)
    network = described(TwoTiers(1.0, 1e-3, 1.0, 1.0), width)
    ring = make("all_reduce", "ring", ranks)
    crossings = -(-hops // width)
    assert time_s(ring, network, 0, latency="wire") == pytest.approx(
        crossings + (hops - crossings) * 1e-3
    )
    assert time_s(ring, network, 0) == pytest.approx(
        hops
    )  # alpha-beta: every step waits for the slow hop


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SHAPES), st.integers(0, 10**6))
def test_latency_on_the_wire_is_never_slower(shape, payload):
    nodes, width = shape
    for name in ("ring", "tree", "hierarchical"):
        schedule, network = make("all_reduce", name, nodes * width), described(NETWORKS[0], width)
        on_wire, in_port = (
            time_s(schedule, network, payload, latency=latency) for latency in ("wire", "port")
        )
        assert on_wire <= in_port * (1 + 1e-12)


def test_where_latency_is_spent_is_named():
    with pytest.raises(ValueError, match="latency must be one of 'port', 'wire', got 'cable'"):
        time_s(
            make("all_reduce", "ring", 4), NETWORKS and Network.flat(1.0, 0.0), 8, latency="cable"
        )


@pytest.mark.parametrize(
    "name", ["inner_Bps", "outer_Bps", "inner_latency_s", "outer_latency_s", "ranks_per_card"]
)
def test_bad_tiers_are_named(name):
    good = {
        "inner_Bps": 1.0,
        "inner_latency_s": 0.0,
        "outer_Bps": 1.0,
        "outer_latency_s": 0.0,
        "ranks_per_card": 1,
    }
    for bad in (-1, float("nan"), float("inf"), "8", True, None):
        with pytest.raises((ValueError, TypeError), match=f"^{name} "):
            TwoTiers(**{**good, name: bad})


@pytest.mark.parametrize("name", ["payload_bytes", "ranks", "group"])
def test_bad_sizes_are_named(name):
    good = {"payload_bytes": 1e9, "ranks": 16, "group": 8}
    for bad in (-1, float("nan"), float("inf"), "8", True, None):
        values = {**good, name: bad}
        for call in (
            lambda v: flat_ring_cost(**v, tiers=NETWORKS[0]),
            lambda v: hierarchical_cost(**v, tiers=NETWORKS[0]),
            lambda v: sent_by_tier("ring", **v),
        ):
            with pytest.raises((ValueError, TypeError), match=f"^{name} "):
                call(values)


# --- The ledger, and careful readers --------------------------------------------------------------


def h100(**changes) -> TwoTiers:
    """Rates of an H100 cluster each way, without latency."""
    gpu = accelerator("H100-SXM")
    return TwoTiers(
        **{
            "inner_Bps": gpu.scaleup_Bps,
            "inner_latency_s": 0.0,
            "outer_Bps": gpu.nic_Bps,
            "outer_latency_s": 0.0,
            **changes,
        }
    )


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
    island = accelerator("GB200-NVL72")
    assert (island.scaleup_domain, island.scaleup_Bps) == (int(ledger["L13"]["value"]), 900e9)
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
    def agrees(inner_Bps):
        """8 GB on 16 ranks in nodes of 8: 14 GB inside at 450 GB/s, 1 GB across at 50 GB/s each
        way.
        """
        schedule, network = (
            make("all_reduce", "hierarchical", 16, group=8),
            described(h100(inner_Bps=inner_Bps), 8),
        )
        return time_s(schedule, network, 8 * GB) == pytest.approx(14 / 450 + 1 / 50)

    assert agrees(fact("h100-sxm.scaleup").value)
    assert not agrees(fact("h100-sxm.scaleup_printed").value)


def test_careful_2_the_link_ratio_is_not_the_slowdown():
    """Even at 18x, leaving the node costs a large all-reduce about 2x; at 32 KiB it is latency that
    counts.
    """
    tiers = h100(outer_Bps=25e9)
    inside_s = hierarchical_cost(GiB, 8, 8, tiers).total_s
    assert tiers.inner_Bps / tiers.outer_Bps == 18
    assert hierarchical_cost(GiB, 16, 8, tiers).total_s / inside_s == pytest.approx(1 + 18 / 14)
    assert flat_ring_cost(GiB, 16, 8, tiers).total_s / inside_s == pytest.approx(
        18 * (30 / 16) / (14 / 8)
    )
    assert node_exit_Bps(8, h100()) == 400e9


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
    assert 7 * 25e9 < exits < node_exit_Bps(8, h100(outer_Bps=25e9))


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


def test_module_names_are_exported():
    assert all(hasattr(hierarchy, name) for name in hierarchy.__all__)
    assert all(hasattr(traffic, name) for name in traffic.__all__)


def test_lifted_pieces_are_schedules_of_their_own():
    """Inside alone, a reduce-scatter leaves the sum of a node with the rank of each place."""
    steps = list(collectives.inside(collectives.ring_reduce_scatter(4), groups=2, group=4))
    half = Schedule("half", "all_reduce", 8, 8, steps)
    held = execute(half, [np.full(8, 10**rank) for rank in range(8)]).results
    assert held[0][:2].tolist() == [1111, 1111] and held[5][2:4].tolist() == [11110000, 11110000]


@pytest.mark.parametrize("bad", [None, 5, Network.flat(1.0, 0.0)])
def test_what_is_no_two_tiers_is_named(bad):
    for call in (
        lambda: flat_ring_cost(1.0, 4, 2, bad),
        lambda: hierarchical_cost(1.0, 4, 2, bad),
        lambda: node_exit_Bps(2, bad),
    ):
        with pytest.raises(TypeError, match="^tiers must be a TwoTiers, got"):
            call()


def test_two_tiers_keep_plain_numbers_and_shapes_must_broadcast():
    assert hash(TwoTiers(np.array(1.0), 0, np.float64(2), 0, np.int8(2))) == hash(
        TwoTiers(1.0, 0, 2, 0, 2)
    )
    with pytest.raises(
        ValueError, match="the shapes of payload_bytes .3,. and ranks .2,. do not broadcast"
    ):
        flat_ring_cost(np.ones(3), np.array([2, 4]), 2, NETWORKS[0])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tp": 6}, "^the degree of tensor=6 is not divisible by those on one island=4"),
        ({"dp": 6}, "^the degree of data=6 is not divisible by those on one island=4"),
        ({"tp": 3, "dp": 4, "island": 8}, "^island=8 is not divisible by the span of its"),
        ({"layers": "2"}, "^layers must be a number"),
        ({"batch_tokens": 1e308}, "^batch_tokens must be finite"),
    ],
)
def test_traffic_names_what_does_not_fit(changes, says):
    good = {
        "parameters": 1e9,
        "layers": 2,
        "hidden": 8,
        "batch_tokens": 64,
        "tp": 1,
        "pp": 1,
        "dp": 1,
        "island": 4,
    }
    with pytest.raises((TypeError, ValueError), match=says):
        traffic.traffic(**{**good, **changes})
