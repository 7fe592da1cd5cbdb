"""A described network imposed on real ranks: against the simulators' clock, on a clock of its own,
and on real processes, which are never early.
"""

from __future__ import annotations

import contextlib
import sys
import time

import cloudpickle
import numpy as np
import pytest

from dtlib.network import Network, Tier
from dtlib.ranks import Cluster, RankError
from dtlib.ranks.local.shared_memory import MAX_RANKS
from dtlib.ranks.local.throttle import Throttle
from dtlib.ranks.plan import plan
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.fastest import fastest
from dtlib.simulators.schedule import Schedule

cloudpickle.register_pickle_by_value(sys.modules[__name__])
FLAT = Network.flat(50e6, 1e-3)
NODES_OF_TWO = Network.of_nodes(
    2, inside_Bps=450e6, across_Bps=25e6, inside_latency_s=0.1e-3, across_latency_s=1e-3
)
ONE_CARD_A_NODE = Network.of_nodes(
    2,
    inside_Bps=450e6,
    across_Bps=25e6,
    inside_latency_s=0.1e-3,
    across_latency_s=1e-3,
    ranks_per_card=2,
)
NETWORKS = {"flat": FLAT, "a card a rank": NODES_OF_TWO, "a card a node": ONE_CARD_A_NODE}


class TestClock:
    """A clock that stands still until somebody sleeps; a sleep overruns by ``late_s``."""

    __test__ = False

    def __init__(self, late_s: float = 0.0) -> None:
        self.now_s, self.late_s = 0.0, late_s

    def now(self) -> float:
        return self.now_s

    def sleep_until(self, time_s: float) -> None:
        self.now_s = max(self.now_s, time_s) + self.late_s


class Ranks:
    """Ranks without processes: each has a throttle and a clock, and all share the bookings."""

    def __init__(self, network: Network, ranks: int, late_s: float = 0.0) -> None:
        free_s = np.zeros((len(network.tiers), 2, 2, MAX_RANKS))
        self.clocks = [TestClock(late_s) for _ in range(ranks)]
        self.throttles = [
            Throttle(network, free_s, contextlib.nullcontext, clock) for clock in self.clocks
        ]

    def exchange(self, messages: list[tuple[int, int, int]]) -> None:
        """Messages (source, destination, bytes) of one step, sent in the order of time."""
        since_s = [clock.now() for clock in self.clocks]
        messages = sorted(messages, key=lambda message: since_s[message[0]])
        due_s = [self.throttles[source].book(source, to, size) for source, to, size in messages]
        for (_, to, _), due in zip(messages, due_s, strict=True):
            self.throttles[to].deliver(due, since_s[to], check=lambda: None)

    def carry_out(self, schedule: Schedule, payload: int) -> float:
        """When the last rank is done with a schedule."""
        sizes = schedule.chunk_sizes(payload)
        plans = [plan(schedule, rank) for rank in range(schedule.ranks)]
        for step in range(len(schedule.steps)):
            self.exchange(
                [
                    (source, destination, int(sizes[chunks].sum()))
                    for source, mine in enumerate(plans)
                    for destination, chunks in mine.parts[step].sends.items()
                ]
            )
        return max(clock.now() for clock in self.clocks)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=list(NETWORKS))
def test_a_schedule_takes_what_the_clock_says(network):
    for collective, algorithms in ALGORITHMS.items():
        for name in algorithms:
            schedule = make(collective, name, 4)
            for payload in (4, 2_000_000):
                wanted_s = time_s(schedule, network, payload)
                for late_s in (0.0, 1e-4):  # oversleeping is forgiven, but for the last time
                    taken_s = Ranks(network, 4, late_s).carry_out(schedule, payload)
                    where = collective, name, payload, late_s
                    assert taken_s == pytest.approx(wanted_s, rel=0.03, abs=1.1 * late_s), where


def test_directions_are_separate_and_a_card_is_shared():
    def taken_s(network: Network, *messages: tuple[int, int, int]) -> float:
        ranks = Ranks(network, 4)
        ranks.exchange(list(messages))
        return max(clock.now() for clock in ranks.clocks)

    size = 2_500_000
    assert taken_s(FLAT, (0, 1, size), (1, 0, size)) == pytest.approx(0.051)
    assert taken_s(FLAT, (1, 0, size), (2, 0, size), (3, 0, size)) == pytest.approx(0.153)
    assert taken_s(NODES_OF_TWO, (0, 2, size), (1, 3, size)) == pytest.approx(0.101)
    assert taken_s(ONE_CARD_A_NODE, (0, 2, size), (1, 3, size)) == pytest.approx(0.201)
    placed = ONE_CARD_A_NODE.placed([0, 1, 4, 5])  # ranks 2 and 3 share another card
    assert taken_s(placed, (0, 2, size), (1, 3, size)) == pytest.approx(0.201)
    assert taken_s(ONE_CARD_A_NODE.placed([0, 2, 4, 6]), (0, 2, size), (1, 3, size)) == (
        pytest.approx(0.101)
    )
    assert taken_s(ONE_CARD_A_NODE, (0, 1, size), (2, 3, size)) == pytest.approx(
        size / 450e6 + 0.1e-3
    )


@pytest.fixture(scope="module")
def four():
    with Cluster(4) as cluster:
        yield cluster


def duration_s(comm, act, *args) -> tuple[float, float]:
    """When this rank began and ended, all having come together before."""
    comm.barrier()
    start_s = time.perf_counter()
    act(comm, *args)
    return start_s, time.perf_counter()


def test_real_ranks_are_never_early(four):
    def ring(comm, size):
        comm.all_reduce(np.zeros(size, np.uint8), algorithm="ring")

    def message(comm, size):
        if comm.rank == 0:
            comm.send(np.zeros(size, np.uint8), 2)
        if comm.rank == 2:
            comm.recv(0)

    size = 400_000
    for act, least_s in (
        (ring, time_s(make("all_reduce", "ring", 4), NODES_OF_TWO, size)),
        (message, 1e-3 + size / 25e6),
    ):
        times = list(four.run(duration_s, (act, size), network=NODES_OF_TWO))
        taken_s = max(end for _, end in times) - min(start for start, _ in times)
        assert taken_s >= least_s * 0.999, act.__name__


def test_the_members_of_a_split_stay_on_their_tiers(four):
    """Ranks 0 and 2 are on two nodes, ranks 0 and 1 on one, also as ranks 0 and 1 of a part.

    What is slow is slow in a part, too, and the fastest schedule is that of the places.
    """
    size = 200_000

    def program(comm, apart):
        part = comm.split(comm.rank % 2 if apart else comm.rank // 2)
        return duration_s(part, lambda part: part.all_reduce(np.zeros(size, np.uint8)))

    for apart, members in ((True, [0, 2]), (False, [0, 1])):
        result = four.run(program, (apart,), network=NODES_OF_TWO)
        chosen = fastest("all_reduce", 2, size, NODES_OF_TWO.placed(members))
        least_s = time_s(chosen, NODES_OF_TWO.placed(members), size)
        assert max(end for _, end in result) - min(s for s, _ in result) >= 0.999 * least_s
        assert {event.members for event in result.trace} == (
            {(0, 2), (1, 3)} if apart else {(0, 1), (2, 3)}
        )


def test_the_default_is_the_fastest_schedule_by_the_clock(four):
    size = 8_000
    result = four.run(lambda comm: comm.all_reduce(np.ones(size // 8)), network=NODES_OF_TWO)
    chosen = fastest("all_reduce", 4, size, NODES_OF_TWO)
    told = [(event.step, event.source, event.destination, event.chunk) for event in result.trace]
    assert sorted(told) == sorted(
        (number, *transfer[:3])
        for number, step in enumerate(chosen.steps)
        for transfer in zip(*(column.tolist() for column in step), strict=True)
    )


def test_what_a_network_cannot_do_is_named(four):
    islands = Network((Tier("inside", 1e9, 0, node_size=2),))
    with pytest.raises(RankError, match="no tier joins ranks 1 and 2"):
        four.run(lambda comm: comm.send(1, 2) if comm.rank == 1 else None, network=islands)
    tiers = tuple(Tier(str(size), 1e9, 0, node_size=size) for size in (1, 2, 4, 8, 16))
    with pytest.raises(ValueError, match="network must have at most 4 tiers, got 5"):
        four.run(lambda comm: None, network=Network(tiers))
    with pytest.raises(ValueError, match="a place for each of the 4 ranks, got \\(0, 1, 2\\)"):
        four.run(lambda comm: None, network=FLAT.placed([0, 1, 2]))


def test_a_rank_that_waits_for_the_network_hears_of_a_failure(four):
    def program(comm):
        if comm.rank == 0:
            comm.send(np.zeros(50_000_000, np.int8), 1)
        if comm.rank == 1:
            comm.recv(0)
        if comm.rank == 2:
            raise ValueError("meanwhile")

    start_s = time.perf_counter()
    with pytest.raises(RankError, match="rank 2 raised ValueError: meanwhile"):
        four.run(program, network=Network.flat(1e6, 0))
    assert time.perf_counter() - start_s < 25  # and not the 50 s of the message
