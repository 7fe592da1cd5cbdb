"""Closed forms against figures from elsewhere: the source's ledger, nccl-tests, brute force."""

import numpy as np
import pytest

from dtlib.formulas.collectives import (
    FORMULAS,
    algorithm_bandwidth_Bps,
    best_pieces,
    bus_bandwidth_Bps,
    bytes_sent,
    cost,
    default_node_size,
    messages,
)
from dtlib.formulas.regimes import balance_bytes
from dtlib.network import Network, Tier
from dtlib.simulators import checker
from dtlib.simulators.collectives import ALGORITHMS, make

EVERY = [(collective, algorithm) for collective in FORMULAS for algorithm in FORMULAS[collective]]
BANDWIDTH_BPS, LATENCY_S = 50e9, 5e-6
FLAT = Network.flat(BANDWIDTH_BPS, LATENCY_S)


def test_every_schedule_has_a_formula():
    assert {c: list(table) for c, table in ALGORITHMS.items()} == {
        c: list(table) for c, table in FORMULAS.items()
    }


def test_ledger_l06_and_l07(ledger):
    """2(K-1)/K x S bytes in 2(K-1) steps, on the ledger's own cases."""
    assert (ledger["L06"]["inputs"], ledger["L07"]["inputs"]) == ("2(K-1)/K x S", "2(K-1)")
    assert bytes_sent("all_reduce", "ring", 8.1e11, 16_384) == pytest.approx(
        1.6199e12, rel=1e-4
    )  # L19's note
    assert bytes_sent("all_reduce", "ring", 6.328125e9, 128) == pytest.approx(
        float(ledger["L28"]["value"]), rel=1e-6
    )
    assert messages("all_reduce", "ring", 128) == 254


def test_ledger_l29_and_a_bandwidth_read_as_two_way(ledger):
    wanted_s = pytest.approx(float(ledger["L29"]["value"]), rel=1e-5)

    def seconds(bandwidth_Bps):
        network = Network.flat(bandwidth_Bps, 0.0)
        return cost("all_reduce", "ring", 6.328125e9, 128, network).total_s

    assert seconds(50e9) == wanted_s
    assert seconds(100e9) != wanted_s


def test_bus_bandwidth_of_nccl_tests():
    """doc/PERFORMANCE.md: S = 1 GB, t = 10 ms, n = 8."""
    assert algorithm_bandwidth_Bps(1e9, 0.010) == pytest.approx(100e9)
    for collective, bus_GBps in {
        "all_reduce": 175,
        "reduce_scatter": 87.5,
        "all_gather": 87.5,
        "all_to_all": 87.5,
        "broadcast": 100,
    }.items():
        bus_Bps = bus_bandwidth_Bps(collective, 1e9, 0.010, 8)
        assert bus_Bps == pytest.approx(bus_GBps * 1e9), collective


def test_bus_bandwidth_of_a_measured_all_reduce():
    """8 x H100, 32 MiB in 199.3 us, printed as 168.39 and 294.69 GB/s (dgxc-benchmarking,
    nccl/README.md).
    """
    assert algorithm_bandwidth_Bps(33_554_432, 199.3e-6) == pytest.approx(168.39e9, rel=1e-3)
    assert bus_bandwidth_Bps("all_reduce", 33_554_432, 199.3e-6, 8) == pytest.approx(
        294.69e9, rel=1e-3
    )


def test_a_bandwidth_optimal_all_reduce_has_the_bus_bandwidth_of_the_port():
    no_latency = Network.flat(BANDWIDTH_BPS, 0.0)
    for algorithm in ("ring", "halving_doubling"):
        for ranks in (2, 8, 64):
            seconds = cost("all_reduce", algorithm, 1e9, ranks, no_latency).total_s
            assert bus_bandwidth_Bps("all_reduce", 1e9, seconds, ranks) == pytest.approx(
                BANDWIDTH_BPS
            )


def test_the_busiest_rank_of_the_schedule_sends_as_much():
    for collective, algorithm in EVERY:
        for ranks in (*range(1, 14), 16, 17, 33):
            schedule = make(collective, algorithm, ranks)
            payload = schedule.chunks * ranks * 8
            assert bytes_sent(collective, algorithm, payload, ranks) == pytest.approx(
                checker.count_bytes_sent(schedule, payload).max(), rel=1e-12
            ), schedule


def test_one_rank_costs_nothing():
    for name in EVERY:
        alone = cost(*name, 1e9, 1, FLAT)
        assert (alone.latency_s, alone.transfer_s, bytes_sent(*name, 1e9, 1)) == (0, 0, 0), name


def test_arrays_and_numbers_agree():
    ranks, payloads = np.arange(1, 40), np.logspace(0, 10, 39)
    sizes = [(float(s), int(n)) for s, n in zip(payloads, ranks, strict=True)]
    for name in EVERY:
        curve, sent = cost(*name, payloads, ranks, FLAT), bytes_sent(*name, payloads, ranks)
        each = [cost(*name, *size, FLAT) for size in sizes]
        assert isinstance(each[0].latency_s, float) and isinstance(each[0].transfer_s, float)
        for part in ("latency_s", "transfer_s"):
            one_by_one = [getattr(one, part) for one in each]
            np.testing.assert_allclose(
                getattr(curve, part), one_by_one, rtol=1e-12, err_msg=f"{name} {part}"
            )
        np.testing.assert_allclose(sent, [bytes_sent(*name, *size) for size in sizes], rtol=1e-12)


def test_a_naive_tree_is_2_log2_n_and_a_double_tree_is_not():
    """careful.md 12, at n = 1024."""
    slow = Network.flat(1e9, 0.0)
    assert messages("all_reduce", "tree", 1024) == 20
    assert messages("all_reduce", "ring", 1024) == 2046
    assert cost("all_reduce", "tree", 1e9, 1024, slow).total_s == pytest.approx(20)
    assert cost("all_reduce", "ring", 1e9, 1024, slow).total_s == pytest.approx(2 * 1023 / 1024)
    assert cost(
        "all_reduce", "double_tree", 1e12, 1024, Network.flat(1e9, 1e-6)
    ).total_s == pytest.approx(2000, rel=0.001)
    assert (
        messages("all_reduce", "double_tree", 1024, pieces=1) == 38
    )  # below 2 per level and direction


def test_best_pieces_by_brute_force():
    candidates = np.arange(1, 2000)
    for name in (("all_reduce", "double_tree"), ("broadcast", "chain")):
        for ranks in (1, 2, 3, 4, 8, 13, 64):
            for size in (0.0, 1.0, 1e5, 1e7, 3e8):
                least_s = cost(*name, size, ranks, FLAT, candidates).total_s.min()
                best = best_pieces(*name, size, ranks, FLAT)
                for taken in (
                    cost(*name, size, ranks, FLAT, best),
                    cost(*name, size, ranks, FLAT),
                ):
                    case = f"{name}, {ranks} ranks, {size} B"
                    assert taken.total_s == pytest.approx(least_s, rel=1e-12), case


def test_without_latency_pieces_are_single_bytes():
    no_latency = Network.flat(BANDWIDTH_BPS, 0.0)
    assert best_pieces("all_reduce", "double_tree", 1000.0, 8, no_latency) == 1000


GOOD = {
    "payload_bytes": 1e9,
    "ranks": 8,
    "network": FLAT,
    "time_s": 0.01,
    "pieces": 4,
}
PUBLIC = [
    (cost, ("all_reduce", "double_tree"), ("payload_bytes", "ranks", "network", "pieces")),
    (messages, ("all_reduce", "double_tree"), ("ranks", "pieces")),
    (bytes_sent, ("all_reduce", "ring"), ("payload_bytes", "ranks")),
    (best_pieces, ("all_reduce", "double_tree"), ("payload_bytes", "ranks", "network")),
    (balance_bytes, ("all_reduce", "ring"), ("ranks", "network")),
    (algorithm_bandwidth_Bps, (), ("payload_bytes", "time_s")),
    (bus_bandwidth_Bps, ("all_reduce",), ("payload_bytes", "time_s", "ranks")),
]
BAD = [0, -1, 2.5, float("nan"), float("inf"), "8", True, None]


def is_fine(name, value):
    whole = name in ("ranks", "pieces")
    return (
        (value == 0 and name == "payload_bytes")
        or (value == 2.5 and not whole and name != "network")
        or (value is None and name == "pieces")
    )


def test_bad_input_is_named():
    for function, names, parameters in PUBLIC:
        good = {name: GOOD[name] for name in parameters}
        assert function(*names, **good) is not None
        for name in parameters:
            for bad in BAD:
                if not (is_fine(name, bad) and type(bad) is not bool):
                    with pytest.raises((ValueError, TypeError), match=f"^{name} "):
                        function(*names, **{**good, name: bad})


@pytest.mark.parametrize(
    "network",
    [
        Network.of_nodes(8, inside_Bps=2, across_Bps=1, inside_latency_s=0, across_latency_s=0),
        Network((Tier("a node", 1.0, 0.0, node_size=8),)),  # who joins two of them?
        Network((Tier("shared", 1.0, 0.0, ranks_per_card=8),)),
    ],
)
def test_a_network_that_is_not_flat_is_named(network):
    for call in (
        lambda: cost("all_reduce", "ring", 1.0, 8, network),
        lambda: best_pieces("all_reduce", "double_tree", 1.0, 8, network),
        lambda: balance_bytes("all_reduce", "ring", 8, network),
    ):
        with pytest.raises(ValueError, match="^network must be flat: one tier that joins all"):
            call()


def test_wrong_names_are_named():
    with pytest.raises(ValueError, match="^collective must be one of 'all_reduce'"):
        cost("allreduce", "ring", 1e9, 8, FLAT)
    with pytest.raises(ValueError, match="^algorithm must be one of 'ring'"):
        cost("all_reduce", "rings", 1e9, 8, FLAT)
    with pytest.raises(ValueError, match="^pieces must be left out"):
        cost("all_reduce", "ring", 1e9, 8, FLAT, pieces=4)
    with pytest.raises(ValueError, match="^algorithm must be pipelined"):
        best_pieces("all_reduce", "ring", 1e9, 8, FLAT)
    with pytest.raises(ValueError, match="^collective must be one of"):
        bus_bandwidth_Bps("gather", 1e9, 0.01, 8)


def test_a_pipeline_of_a_huge_payload_reaches_its_limit():
    """With any number of pieces for free, a double tree moves 2 payloads and a chain 1; at 1 GB
    pieces have a price.
    """
    for name, payloads in ((("all_reduce", "double_tree"), 2), (("broadcast", "chain"), 1)):
        for size, bandwidth_Bps in ((1e9, 50e9), (1e15, 50e9), (1e30, 50e9), (1e30, 1e-30)):
            for latency_s in (0.0, 5e-324, 1e-30, 5e-6):
                network = Network.flat(bandwidth_Bps, latency_s)
                spent, case = cost(*name, size, 64, network), f"{name}, {size} B, {network}"
                assert spent.transfer_s == pytest.approx(
                    payloads * size / bandwidth_Bps, rel=0.2 if size == 1e9 else 1e-3
                ), case
                assert 0 <= spent.latency_s < spent.transfer_s, case
                assert best_pieces(*name, size, 64, network) <= 2**53, case


def test_messages_of_many_pieces_do_not_wrap_around():
    for pieces in (2**30, 2**53):
        wanted = 2 * (2 * pieces + 2 * 6 - 3)
        assert messages("all_reduce", "double_tree", 64, pieces) == wanted
        ranks, many = np.array([64]), np.array([pieces])
        assert messages("all_reduce", "double_tree", ranks, many).tolist() == [wanted]
        assert messages("broadcast", "chain", 64, pieces) == pieces + 62


def test_the_most_ranks_cost_a_positive_time():
    for name in EVERY:
        ranks = 10**10 if name[1] == "hierarchical" else 2**53
        for given in (ranks, np.array([ranks])):
            spent = cost(*name, 1e9, given, FLAT)
            assert 0 < spent.latency_s < np.inf and 0 < spent.transfer_s < np.inf, name


def test_the_node_size_of_a_prime_number_of_ranks_is_found_at_once():
    assert default_node_size(9_999_999_967) == 1 and default_node_size(10**10) == 10**5
    assert default_node_size(np.array([[12, 17], [1, 48]])).tolist() == [[3, 1], [1, 6]]


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: messages("all_reduce", "ring", np.array([2**63 - 1])), "^ranks must be at most"),
        (
            lambda: bus_bandwidth_Bps("all_reduce", 1e9, 0.01, np.array([2**62 + 1])),
            "^ranks must be at most",
        ),
        (lambda: algorithm_bandwidth_Bps(1e308, 0.01), "^payload_bytes must be finite"),
        (lambda: algorithm_bandwidth_Bps(1e9, 5e-324), "^time_s must be at least 1e-30 s"),
        (
            lambda: messages("all_reduce", "hierarchical", 2**53),
            "^ranks must be at most 10000000000",
        ),
        (lambda: default_node_size(0), "^ranks must be at least 1"),
        (
            lambda: cost("all_reduce", "ring", np.ones(3), np.array([1, 2]), FLAT),
            "the shapes of payload_bytes .3,. and ranks .2,.",
        ),
    ],
)
def test_what_would_overflow_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()
