"""The explorers and predictions of the chapter on the hierarchy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dtlib.formulas.collectives import bytes_sent
from dtlib.formulas.traffic import KINDS, traffic
from dtlib.network import Network
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import make
from dtlib.units import GiB, KiB, duration, si
from dtlib.views.explorers import hierarchy as views
from dtlib.views.predictions import hierarchy as predictions
from tests.explorers import silent_moves

EXPLORERS = [views.topology, views.flat_or_hierarchical, views.where_traffic_lands]
each = pytest.mark.parametrize("explorer", EXPLORERS, ids=lambda e: e.name)


@each
def test_every_control_changes_a_readout_at_every_setting(explorer):
    assert silent_moves(explorer) == []


def test_no_point_leaves_the_fixed_axes():
    for explorer, table, (low, high) in (
        (views.flat_or_hierarchical, "curves", (1e-6, 10)),
        (views.where_traffic_lands, "traffic", views.AXIS_S),
    ):
        times = [row["time_s"] for at in explorer.states() for row in explorer.at(at).tables[table]]
        assert low < min(times) and max(times) < high


# --- The topology ---------------------------------------------------------------------------------


def test_the_bill_of_two_nodes_of_eight():
    ring = views.topology.shown(nodes=2, node_size=8, algorithm="ring", payload=GiB).readouts
    hierarchical = views.topology.shown(
        nodes=2, node_size=8, algorithm="hierarchical", payload=GiB
    ).readouts
    assert ring["leaves"] == si(15 / 8 * GiB) and hierarchical["leaves"] == si(GiB)
    assert (
        ring["card"] == f"{si(15 / 8 * GiB)} (1 of 8)"
        and hierarchical["card"] == f"{si(GiB / 8)} (8 of 8)"
    )
    one_card = views.topology.shown(
        nodes=2, node_size=8, algorithm="hierarchical", payload=GiB, shared=True
    ).readouts
    assert one_card["card"] == f"{si(GiB)} (1 of 1)"
    assert hierarchical["across_s"] == duration(2 * 5e-6 + GiB / 8 / 50e9)
    assert one_card["across_s"] == duration(2 * 5e-6 + GiB / 50e9)  # eight times the bytes
    assert one_card["inside_s"] == duration(14e-6 + 14 / 8 * GiB / 450e9)


def test_links_carry_what_leaves():
    for algorithm, links in (("ring", 3), ("hierarchical", 24)):
        shown = views.topology.shown(nodes=3, node_size=8, algorithm=algorithm, payload=GiB)
        across = {
            row["link"]: row["link_GB"] for row in shown.tables["links"] if row["tier"] == "across"
        }
        assert len(across) == links
        assert si(sum(across.values()) * 1e9 / 3) == shown.readouts["leaves"]


def test_cards_send_receive_or_do_nothing():
    def cards(**at):
        return [
            row["card"]
            for row in views.topology.shown(nodes=2, node_size=4, payload=GiB, **at).tables["cards"]
        ]

    assert cards(algorithm="ring") == ["receives", "idle", "idle", "sends"] * 2
    assert cards(algorithm="hierarchical") == ["sends"] * 8
    assert cards(algorithm="hierarchical", shared=True) == ["sends"] * 2


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
def test_a_shared_card_carries_what_leaves_its_node(algorithm):
    shown = views.topology.shown(
        nodes=3, node_size=4, algorithm=algorithm, payload=GiB, shared=True
    )
    carried = {row["link"]: row["link_GB"] for row in shown.tables["links"]}
    assert (
        si(carried["node 0 to its card"] * 1e9)
        == si(carried["node 2 to 0"] * 1e9)
        == shown.readouts["leaves"]
    )
    stubs = [
        size
        for link, size in carried.items()
        if link.startswith("GPU") and link.endswith("its card")
    ]
    assert len(stubs) == (6 if algorithm == "ring" else 12)
    assert si(max(stubs) * 1e9) == si(
        {"ring": 1, "hierarchical": 1 / 4}[algorithm] * carried["node 0 to its card"] * 1e9
    )


# --- Flat or hierarchical -------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("ratio", "node_size", "nodes"), [(9, 8, 2), (18, 4, 8), (2, 16, 2)])
def test_drawn_times_are_those_of_the_clock(ratio, node_size, nodes, shared):
    shown = views.flat_or_hierarchical.shown(
        ratio=ratio, node_size=node_size, nodes=nodes, shared=shared
    )
    network = Network.of_nodes(
        node_size,
        inside_Bps=450e9,
        across_Bps=450e9 / ratio,
        inside_latency_s=1e-6,
        across_latency_s=5e-6,
        ranks_per_card=node_size if shared else 1,
    )
    ranks = nodes * node_size
    drawn = {(row["algorithm"], row["payload"]): row["time_s"] for row in shown.tables["curves"]}
    for name, schedule in (
        (views.RING, make("all_reduce", "ring", ranks)),
        (views.HIERARCHICAL, make("all_reduce", "hierarchical", ranks, node_size=node_size)),
        (views.ALONE, make("all_reduce", "ring", node_size)),
    ):
        for payload in (32 * KiB, GiB):
            assert time_s(schedule, network, payload) == pytest.approx(
                drawn[name, payload], rel=1e-3
            )


def test_careful_2_neither_nine_nor_eighteen():
    def readouts(**at):
        return views.flat_or_hierarchical.shown(nodes=2, node_size=8, **at).readouts

    assert readouts(ratio=9)["leaving_large"] == "1.64 x"
    assert readouts(ratio=18)["leaving_large"] == "2.28 x"
    assert float(readouts(ratio=18, shared=True)["leaving_large"].split()[0]) > 10


# --- Where traffic lands --------------------------------------------------------------------------


def test_llama_3_405b_lands_where_the_source_says():
    shown = views.where_traffic_lands.shown(tp=8, pp=16, node_size=8)
    assert shown.readouts["tp"] == "237 GB inside"
    assert shown.readouts["pp"] == "1.07 GB across"
    assert shown.readouts["data"] == "12.6 GB across"
    assert shown.readouts["dp"] == "128 on 2,048 nodes"
    assert "Warning" not in shown.alt_text


def test_it_warns_exactly_where_tensor_parallelism_leaves_the_node():
    for node_size in views.LLAMA_NODE_SIZES:
        for tp in views.TP:
            shown = views.where_traffic_lands.shown(tp=tp, pp=16, node_size=node_size)
            crossing = {row["kind"] for row in shown.tables["traffic"] if row["tier"] == "across"}
            assert (
                (tp > node_size)
                == ("tensor" in crossing)
                == ("Warning" in shown.alt_text)
                == ("⚠" in shown.readouts["tp"])
            ), (tp, node_size)


def test_traffic_in_any_order_by_walking_through_the_ranks():
    """The same bill from rank numbers alone: who is whose neighbor, and in which node."""
    for case in itertools.product(
        itertools.permutations(KINDS),
        [(4, 2, 8, 8), (2, 4, 4, 8), (8, 4, 2, 4), (1, 8, 4, 4), (2, 2, 2, 8)],
    ):
        order, (tp, pp, dp, node_size) = case
        degrees, apart, stride = {"tensor": tp, "pipeline": pp, "data": dp}, {}, 1
        for kind in order:
            apart[kind], stride = stride, stride * degrees[kind]
        bill = traffic(8e9, 8, 64, 2**10, tp=tp, pp=pp, dp=dp, node_size=node_size, order=order)

        def ranks_of(rank, kind, apart=apart, degrees=degrees):
            first = rank - rank // apart[kind] % degrees[kind] * apart[kind]
            return [first + place * apart[kind] for place in range(degrees[kind])]

        def neighbors(rank, apart=apart, pp=pp):
            stages, stage = ranks_of(rank, "pipeline"), rank // apart["pipeline"] % pp
            return [stages[other] for other in (stage - 1, stage + 1) if 0 <= other < pp]

        hop = 2**10 / dp * 64 * 2 / tp
        for tier, inside in (("inside", True), ("across", False)):
            busiest = max(
                sum(
                    (other // node_size == rank // node_size) == inside for other in neighbors(rank)
                )
                for rank in range(stride)
            )
            assert getattr(bill["pipeline"], tier) == pytest.approx(busiest * hop), case
        payloads = {"tensor": 4 * (8 / pp) * (2**10 / dp) * 64 * 2, "data": 2 * 8e9 / (tp * pp)}
        for kind, payload in payloads.items():
            near = sum(other // node_size == 0 for other in ranks_of(0, kind))
            nodes = degrees[kind] // near
            assert bill[kind].inside == pytest.approx(2 * (near - 1) / near * payload), case
            assert bill[kind].across == pytest.approx(2 * (nodes - 1) / nodes * payload / near), (
                case
            )


def test_what_the_first_page_says_of_all_cards_at_once():
    """A whole copy on every GPU: 32.4 s in a flat ring, 4 to 7 s by all cards; and FP32 gradients
    sharded, 1.5 times BF16.
    """
    shown = views.where_traffic_lands.shown(tp=1, pp=1, node_size=8)
    inside_s, across_s = (
        next(
            row["time_s"]
            for row in shown.tables["traffic"]
            if (row["kind"], row["tier"]) == ("data", tier)
        )
        for tier in ("inside", "across")
    )
    assert (round(max(inside_s, across_s), 1), round(inside_s + across_s, 1)) == (4.0, 7.2)
    halves = [
        bytes_sent(collective, "ring", 1, 128) for collective in ("reduce_scatter", "all_gather")
    ]
    assert (4 * halves[0] + 2 * halves[1]) / (
        2 * bytes_sent("all_reduce", "ring", 1, 128)
    ) == pytest.approx(1.5)


def test_whatever_else_is_innermost_drives_tensor_parallelism_out():
    for innermost, across in (("tensor", 0), ("pipeline", 236.8), ("data", 236.8)):
        shown = views.where_traffic_lands.shown(tp=8, pp=16, node_size=8, innermost=innermost)
        assert sum(
            row["sent_GB"]
            for row in shown.tables["traffic"]
            if (row["kind"], row["tier"]) == ("tensor", "across")
        ) == pytest.approx(across, abs=0.05)
        assert (f"beside {innermost}" in shown.alt_text) == (innermost != "tensor")


# --- Predictions ----------------------------------------------------------------------------------


def test_predictions():
    assert predictions.link_ratio.answer == 9
    assert predictions.node_exit.answer == 400
    assert predictions.slowdown.answer == pytest.approx(1 + 9 / 14)
    assert predictions.tensor_traffic.answer == pytest.approx(236.76, abs=0.01)


def test_a_two_way_rate_gives_another_ratio():
    assert (
        dict(predictions.link_ratio.hints)[18]
        == "That divides a sum of both directions by the rate of one."
    )


def test_hints_are_not_the_answer():
    for name in predictions.__all__:
        prediction = getattr(predictions, name)
        wrong = [value for value, _ in prediction.hints]
        assert wrong and len(set(wrong)) == len(wrong), name
        assert np.isfinite(wrong).all(), name
        assert not any(
            math.isclose(value, prediction.answer, rel_tol=2 * prediction.tolerance)
            for value in wrong
        ), name
