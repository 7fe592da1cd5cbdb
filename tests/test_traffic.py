"""What each parallelism sends, and where it lands: worked by hand on small plans."""

from __future__ import annotations

import numpy as np
import pytest

from dtlib.formulas.regimes import balance_bytes
from dtlib.formulas.traffic import (
    activation_bytes,
    data_bytes,
    gradient_bytes,
    pipeline_bytes,
    tensor_bytes,
    tensor_payload_bytes,
    traffic,
)
from dtlib.network import Network

# 5 layers, 3 columns, 7 tokens: nothing divides, so that a whole-number division shows.
TINY = {"parameters": 1001, "layers": 5, "hidden": 4, "batch_tokens": 7}


@pytest.mark.parametrize(
    ("tp", "pp", "node_size", "inside", "across"),
    [
        (4, 8, 4, 0, 2),  # every neighbor is on another node
        (4, 2, 4, 0, 1),  # and there is only one
        (4, 3, 4, 0, 2),
        (2, 4, 4, 1, 1),  # two stages a node: one neighbor inside, one across
        (1, 8, 4, 2, 1),  # four stages a node: the inner ones have both inside
        (1, 6, 3, 2, 1),
        (2, 2, 4, 1, 0),  # the whole pipeline in a node
        (1, 4, 4, 2, 0),
        (1, 2, 2, 1, 0),
        (4, 1, 4, 0, 0),  # no pipeline
    ],
)
def test_a_stage_sends_to_its_neighbors_where_they_stand(tp, pp, node_size, inside, across):
    plan = {"parameters": 10**6, "layers": 8, "hidden": 4, "batch_tokens": 7}
    sent = traffic(**plan, tp=tp, pp=pp, dp=3, node_size=node_size)["pipeline"]
    hop = 7 / 3 * 4 * 2 / tp
    assert sent == pytest.approx((inside * hop, across * hop))


def test_the_pieces_on_numbers_that_do_not_divide():
    assert activation_bytes(3.5, 5) == 35
    assert tensor_payload_bytes(1.25, 3.5, 5) == 4 * 1.25 * 35
    assert tensor_bytes(1.25, 3.5, 5, 3) == pytest.approx(2 * 2 / 3 * 4 * 1.25 * 35)
    assert pipeline_bytes(3.5, 5, 3) == pytest.approx(35 / 3)
    assert gradient_bytes(1001, 2, 3) == pytest.approx(2 * 1001 / 6)
    assert data_bytes(1001, 2, 3, 4) == pytest.approx(2 * 3 / 4 * 2 * 1001 / 6)
    sent = traffic(**TINY, tp=2, pp=3, dp=4, node_size=2)
    assert sent["tensor"] == pytest.approx((4 * 5 / 3 * 7 / 4 * 4 * 2, 0))
    assert sent["data"] == pytest.approx((0, 2 * 3 / 4 * 2 * 1001 / 6))


def test_degrees_and_nodes_fit_into_one_another_or_are_named():
    for plan, message in (
        ({"tp": 3, "pp": 1, "dp": 1, "node_size": 2}, "the degree of tensor=3 is not divisible"),
        ({"tp": 2, "pp": 1, "dp": 1, "node_size": 3}, "node_size=3 is not divisible by the span"),
        ({"tp": 1, "pp": 2, "dp": 4, "node_size": 6}, "the degree of data=4 is not divisible"),
        ({"tp": 1, "pp": 16, "dp": 1, "node_size": 4}, "pp must be at most layers=5"),
        ({"tp": 1, "pp": 1, "dp": 128, "node_size": 4}, "dp must be at most batch_tokens=7"),
    ):
        with pytest.raises(ValueError, match=message):
            traffic(**TINY, **plan)


def test_nothing_is_not_a_quantity():
    for call, name in (
        (lambda: activation_bytes(0, 5), "tokens"),
        (lambda: tensor_payload_bytes(0, 5, 5), "layers"),
        (lambda: gradient_bytes(0, 1, 1), "parameters"),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be above 0"):
            call()


def test_arrays_broadcast_or_their_shapes_are_named():
    assert np.array_equal(activation_bytes(np.array([1, 2]), 5), [10, 20])
    assert np.allclose(tensor_bytes(1, np.array([1.0, 2.0]), 5, np.array([2, 4])), [40, 120])
    three, two = np.ones(3), np.ones(2, int) * 2
    for call in (
        lambda: tensor_payload_bytes(three, np.ones(2), 5),
        lambda: tensor_bytes(1, three, 5, two),
        lambda: balance_bytes("all_reduce", "ring", np.array([2, 3]), three),
    ):
        with pytest.raises((ValueError, TypeError), match="broadcast|network must be"):
            call()


def test_where_latency_and_bytes_take_equally_long():
    network = Network.flat(bandwidth_Bps=3e9, latency_s=5e-6)
    for ranks in (2, 3, 64):
        assert balance_bytes("all_reduce", "ring", ranks, network) == pytest.approx(ranks * 15_000)
    assert np.allclose(balance_bytes("all_reduce", "ring", np.array([2, 5]), network), [3e4, 7.5e4])
    slow = Network.flat(bandwidth_Bps=7, latency_s=0.1)
    assert balance_bytes("all_reduce", "ring", 2, slow) == pytest.approx(1.4)
    with pytest.raises(ValueError, match="^ranks must be at least 2, got 1"):
        balance_bytes("all_reduce", "ring", 1, network)
