"""The explorers and predictions of the chapter on the hierarchy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dtlib.formulas.collectives import bytes_sent
from dtlib.formulas.traffic import KINDS, traffic
from dtlib.network import Network, Tier
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import make
from dtlib.units import GiB, KiB, MiB, si
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
    ring = views.topology.shown(nodes=2, width=8, algorithm="ring", payload=GiB).readouts
    hierarchical = views.topology.shown(
        nodes=2, width=8, algorithm="hierarchical", payload=GiB
    ).readouts
    assert ring["leaves"] == si(15 / 8 * GiB) and hierarchical["leaves"] == si(GiB)
    assert (
        ring["card"] == f"{si(15 / 8 * GiB)} (1 of 8)"
        and hierarchical["card"] == f"{si(GiB / 8)} (8 of 8)"
    )
    assert views.topology.shown(
        nodes=2, width=8, algorithm="hierarchical", payload=GiB, shared=True
    ).readouts["card"] == (f"{si(GiB)} (1 of 1)")


def test_links_carry_what_leaves():
    for algorithm, links in (("ring", 3), ("hierarchical", 24)):
        shown = views.topology.shown(nodes=3, width=8, algorithm=algorithm, payload=GiB)
        across = {
            row["link"]: row["link_GB"] for row in shown.tables["links"] if row["tier"] == "across"
        }
        assert len(across) == links
        assert si(sum(across.values()) * 1e9 / 3) == shown.readouts["leaves"]


def test_cards_send_receive_or_do_nothing():
    def cards(**at):
        return [
            row["card"]
            for row in views.topology.shown(nodes=2, width=4, payload=GiB, **at).tables["cards"]
        ]

    assert cards(algorithm="ring") == ["receives", "idle", "idle", "sends"] * 2
    assert cards(algorithm="hierarchical") == ["sends"] * 8
    assert cards(algorithm="hierarchical", shared=True) == ["sends"] * 2


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
def test_a_shared_card_carries_what_leaves_its_node(algorithm):
    shown = views.topology.shown(nodes=3, width=4, algorithm=algorithm, payload=GiB, shared=True)
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
@pytest.mark.parametrize(("ratio", "width", "nodes"), [(9, 8, 2), (18, 4, 8), (2, 16, 2)])
def test_drawn_times_are_those_of_the_clock(ratio, width, nodes, shared):
    shown = views.flat_or_hierarchical.shown(ratio=ratio, width=width, nodes=nodes, shared=shared)
    network = Network(
        (
            Tier("inside", 450e9, 1e-6, node_size=width),
            Tier("across", 450e9 / ratio, 5e-6, ranks_per_card=width if shared else 1),
        )
    )
    drawn = {(row["algorithm"], row["payload"]): row["time_s"] for row in shown.tables["curves"]}
    for name, schedule in (
        (views.RING, make("all_reduce", "ring", nodes * width)),
        (views.HIERARCHICAL, make("all_reduce", "hierarchical", nodes * width, group=width)),
        (views.ALONE, make("all_reduce", "ring", width)),
    ):
        for payload in (32 * KiB, MiB, GiB):
            assert time_s(schedule, network, payload) == pytest.approx(
                drawn[name, payload], rel=1e-3
            )


def test_careful_2_neither_nine_nor_eighteen():
    def readouts(**at):
        return views.flat_or_hierarchical.shown(nodes=2, width=8, **at).readouts

    assert readouts(ratio=9)["leaving_large"] == "1.64 x"
    assert readouts(ratio=18)["leaving_large"] == "2.28 x"
    assert float(readouts(ratio=18, shared=True)["leaving_large"].split()[0]) > 10


# --- Where traffic lands --------------------------------------------------------------------------


def test_llama_3_405b_lands_where_the_source_says():
    shown = views.where_traffic_lands.shown(tp=8, pp=16, island=8)
    assert shown.readouts["tp"] == "237 GB inside"
    assert shown.readouts["pp"] == "1.07 GB across"
    assert shown.readouts["data"] == "12.6 GB across"
    assert shown.readouts["dp"] == "128 on 2,048 islands"
    assert "Warning" not in shown.says


@pytest.mark.parametrize("island", views.ISLANDS)
@pytest.mark.parametrize("tp", views.TP)
def test_it_warns_exactly_where_tensor_parallelism_leaves_the_island(tp, island):
    shown = views.where_traffic_lands.shown(tp=tp, pp=16, island=island)
    crossing = {row["kind"] for row in shown.tables["traffic"] if row["tier"] == "across"}
    assert (
        (tp > island)
        == ("tensor" in crossing)
        == ("Warning" in shown.says)
        == ("⚠" in shown.readouts["tp"])
    )


def test_traffic_by_walking_through_the_ranks():
    """The same bill from rank numbers alone: who is whose neighbor, and on which island."""
    for tp, pp, island in [(8, 16, 8), (4, 4, 8), (2, 2, 16), (16, 2, 8), (8, 4, 64), (4, 2, 4)]:
        bill = views.traffic(
            405e9, 126, 16384, 2**24, tp=tp, pp=pp, dp=16384 // (tp * pp), island=island
        )
        hop = 2**24 // (16384 // (tp * pp)) * 16384 * 2 / tp
        most = max(
            sum(
                hop
                for stage in (s - 1, s + 1)
                if 0 <= stage < pp and (stage * tp) // island != (s * tp) // island
            )
            for s in range(pp)
        )
        assert bill["pipeline"].across == pytest.approx(most)
        assert (bill["tensor"].across > 0) == (len({rank // island for rank in range(tp)}) > 1)
        replicas = {rank // island for rank in range(0, 16384, tp * pp)}
        assert bill["data"].across > 0 and len(replicas) > 1


@pytest.mark.parametrize("order", list(itertools.permutations(KINDS)))
@pytest.mark.parametrize(
    ("tp", "pp", "dp", "island"),
    [(4, 2, 8, 8), (2, 4, 4, 8), (8, 4, 2, 4), (1, 8, 4, 4), (2, 2, 2, 8)],
)
def test_traffic_in_any_order_by_walking_through_the_ranks(order, tp, pp, dp, island):
    degrees, apart, stride = {"tensor": tp, "pipeline": pp, "data": dp}, {}, 1
    for kind in order:
        apart[kind], stride = stride, stride * degrees[kind]
    bill = traffic(8e9, 4, 64, 2**10, tp=tp, pp=pp, dp=dp, island=island, order=order)

    def group(rank, kind):
        first = rank - rank // apart[kind] % degrees[kind] * apart[kind]
        return [first + place * apart[kind] for place in range(degrees[kind])]

    def neighbors(rank):
        stages, stage = group(rank, "pipeline"), rank // apart["pipeline"] % pp
        return [stages[other] for other in (stage - 1, stage + 1) if 0 <= other < pp]

    hop = 2**10 / dp * 64 * 2 / tp
    busiest = max(
        sum(other // island != rank // island for other in neighbors(rank))
        for rank in range(stride)
    )
    assert bill["pipeline"].across == pytest.approx(busiest * hop)
    busiest = max(
        sum(other // island == rank // island for other in neighbors(rank))
        for rank in range(stride)
    )
    assert bill["pipeline"].inside == pytest.approx(busiest * hop)
    payloads = {"tensor": 4 * (4 / pp) * (2**10 / dp) * 64 * 2, "data": 2 * 8e9 / (tp * pp)}
    for kind, payload in payloads.items():
        near = sum(other // island == 0 for other in group(0, kind))
        nodes = degrees[kind] // near
        assert bill[kind].inside == pytest.approx(2 * (near - 1) / near * payload)
        assert bill[kind].across == pytest.approx(2 * (nodes - 1) / nodes * payload / near)


def test_what_the_first_page_says_of_all_cards_at_once():
    """A whole copy on every GPU: 32.4 s in a flat ring, 4 to 7 s by all cards; and FP32 gradients
    sharded, 1.5 times BF16.
    """
    shown = views.where_traffic_lands.shown(tp=1, pp=1, island=8)
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
        shown = views.where_traffic_lands.shown(tp=8, pp=16, island=8, innermost=innermost)
        assert sum(
            row["sent_GB"]
            for row in shown.tables["traffic"]
            if (row["kind"], row["tier"]) == ("tensor", "across")
        ) == pytest.approx(across, abs=0.05)
        assert (f"beside {innermost}" in shown.says) == (innermost != "tensor")


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


@pytest.mark.parametrize("name", predictions.__all__)
def test_hints_are_not_about_the_answer(name):
    prediction = getattr(predictions, name)
    wrong = [value for value, _ in prediction.hints]
    assert wrong and len(set(wrong)) == len(wrong)
    assert all(
        not math.isclose(value, prediction.answer, rel_tol=2 * prediction.tolerance)
        for value in wrong
    )
    assert np.isfinite(wrong).all()
