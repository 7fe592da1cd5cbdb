"""The exercises of the all-reduce chapter."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtlib.assumptions import ACROSS_LATENCY_S
from dtlib.facts.registry import accelerator, model, training_run
from dtlib.facts.sweeps import sweep
from dtlib.formulas.collectives import (
    algorithm_bandwidth_Bps,
    bus_bandwidth_Bps,
    bytes_sent,
    cost,
    messages,
)
from dtlib.formulas.memory import training_state
from dtlib.formulas.regimes import balance_bytes
from dtlib.network import Network
from dtlib.simulators import checker
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.execute import contributions
from dtlib.simulators.schedule import Schedule
from dtlib.teaching.checks import FunctionCheck, NumberCheck, define
from dtlib.teaching.verdict import sentence
from dtlib.units import MB, GiB, KiB, MiB, binary, duration

__all__ = [
    "check_balance",
    "check_bus_bandwidth",
    "check_choice",
    "check_ring",
    "check_ring_bytes",
    "check_ring_steps",
]

STEP_RANKS = 64

check_ring_steps = define(
    "all-reduce-ring-steps",
    chapter="all-reduce",
    title="Steps of a ring",
    kind="predict",
    minutes=2,
    points=1,
    task=f"How many steps does a ring all-reduce on {STEP_RANKS} ranks take?",
    check=NumberCheck(
        lambda: messages("all_reduce", "ring", STEP_RANKS),
        unit="steps",
        hints=(
            (
                STEP_RANKS - 1,
                "That is one phase. Once the sums are complete, everyone still needs all of them.",
            ),
            (
                2 * STEP_RANKS,
                "A chunk that visits every rank makes fewer hops than there are ranks.",
            ),
            (
                STEP_RANKS,
                "A chunk goes around more than once, and makes fewer hops a round than there are "
                "ranks.",
            ),
            (2 * 6, "That is what a tree needs. A ring passes from neighbor to neighbor."),
        ),
        explanation=(
            "Two phases of K - 1 steps: the chunk visits all the others to be summed, and "
            "again to be copied."
        ),
    ),
)


def _whole_gradient_B() -> float:
    """The BF16 gradient of Llama 3 405B; the parameter count as printed, 405e9."""
    return training_state(
        model("Llama-3.1-405B")["parameters_rounded"].value, gradient_dtype="bf16"
    ).gradients


def _llama_gradient_B() -> float:
    """The part of it that belongs to the parameters of one GPU."""
    llama = training_run("Llama-3-405B")
    return _whole_gradient_B() / (llama["tp"].value * llama["pp"].value)


def _llama_ranks() -> int:
    return int(training_run("Llama-3-405B")["dp"].value)


check_ring_bytes = define(
    "all-reduce-ring-bytes",
    chapter="all-reduce",
    title="Bytes of a ring",
    kind="compute",
    minutes=4,
    points=1,
    task="In the Llama 3 405B run a GPU holds 405e9 / 128 parameters, with a BF16 gradient of 2 "
    "bytes each. A ring of 128 "
    "ranks all-reduces that gradient. How many bytes does each rank send?",
    check=NumberCheck(
        lambda: bytes_sent("all_reduce", "ring", _llama_gradient_B(), _llama_ranks()),
        unit="bytes",
        hints=(
            (
                lambda: 2 * _llama_gradient_B(),
                "That is the limit for very many ranks. Here their number is known.",
            ),
            (
                _llama_gradient_B,
                "That is the gradient S itself. How often does a rank send as much as that?",
            ),
            (
                lambda: bytes_sent("reduce_scatter", "ring", _llama_gradient_B(), _llama_ranks()),
                "That is the reduce-scatter alone. The all-gather sends as much again.",
            ),
            (
                lambda: bytes_sent("all_reduce", "naive", _llama_gradient_B(), _llama_ranks()),
                "That is what rank 0 sends in the naive way. A ring sends chunks of S / K.",
            ),
            (
                lambda: bytes_sent("all_reduce", "ring", _whole_gradient_B(), _llama_ranks()),
                "That all-reduces the gradient of the whole model. A GPU holds a part of it.",
            ),
        ),
        explanation="And it receives as many, at the same time.",
    ),
)

MEASURED_B = 16 * MiB


def _measured() -> tuple[float, int]:
    measured = sweep("nccl-8xh100")
    return measured.at(MEASURED_B), measured.ranks


check_bus_bandwidth = define(
    "all-reduce-bus-bandwidth",
    chapter="all-reduce",
    title="Bus bandwidth",
    kind="compute",
    minutes=4,
    points=1,
    task="Eight H100 all-reduced 16 MiB in 123.8 µs. What was the bus bandwidth, in GB/s?",
    check=NumberCheck(
        lambda: bus_bandwidth_Bps("all_reduce", MEASURED_B, *_measured()) / 1e9,
        unit="GB/s",
        both_directions=True,
        hints=(
            (
                lambda: algorithm_bandwidth_Bps(MEASURED_B, _measured()[0]) / 1e9,
                "That is the algorithm bandwidth, S/t. The bus bandwidth has a factor that depends "
                "on K.",
            ),
            (
                lambda: bus_bandwidth_Bps("all_reduce", 16 * MB, *_measured()) / 1e9,
                "A MiB is more than a MB.",
            ),
            (
                lambda: bus_bandwidth_Bps("all_gather", MEASURED_B, *_measured()) / 1e9,
                "That is the factor of a reduce-scatter or an all-gather. An all-reduce is both.",
            ),
            (
                lambda: 2 * algorithm_bandwidth_Bps(MEASURED_B, _measured()[0]) / 1e9,
                "Two is the factor for very many ranks. Here there are eight.",
            ),
            (
                lambda: accelerator("H100-SXM").scaleup_Bps / 1e9,
                "That is the nominal rate of the link. Compute from the measured time.",
            ),
        ),
        explanation=(
            "About half of what it reaches for large payloads: part of these microseconds "
            "is latency."
        ),
    ),
)

BANDWIDTH_BPS = 50e9
NETWORK = Network.flat(BANDWIDTH_BPS, ACROSS_LATENCY_S)
IN_FLIGHT_B = (
    BANDWIDTH_BPS * ACROSS_LATENCY_S
)  # the message whose bytes take as long as its latency

check_balance = define(
    "all-reduce-balance",
    chapter="all-reduce",
    title="Where latency and bytes balance",
    kind="compute",
    minutes=5,
    points=1,
    task="A ring of 64 ranks, 50 GB/s each way, 5 µs a hop. At which payload, in bytes, do its "
    "hops cost as much time as its "
    "bytes?",
    check=NumberCheck(
        lambda: balance_bytes("all_reduce", "ring", 64, NETWORK),
        unit="bytes",
        hints=(
            (
                IN_FLIGHT_B,
                "That is the message whose bytes take as long as its latency. How large is a "
                "message of a ring?",
            ),
            (
                2 * 63 * IN_FLIGHT_B,
                "That charges every hop for the whole payload. A hop carries one chunk.",
            ),
            (
                63 * IN_FLIGHT_B,
                "Close: write both parts of the ring's time, set them equal, and let K - 1 cancel.",
            ),
            (2 * 64 * IN_FLIGHT_B, "The factor of two is in both parts, the hops and the bytes."),
        ),
        explanation=(
            "S = K α B. Below it a faster link helps little; above it a lower latency does."
        ),
    ),
)


# --- Write the ring -------------------------------------------------------------------------------


def _judge_ring(steps: Any, ranks: int) -> str | None:
    """What is wrong with ``steps`` as a ring all-reduce, or None."""
    try:
        schedule = Schedule("your schedule", "all_reduce", ranks, ranks, steps)
    except (TypeError, ValueError) as error:
        text = sentence(str(error))
        return (
            f"{text} A ring is closed: what follows the last one is the first."
            if "does not exist" in text
            else text
        )
    report = checker.check(schedule)
    return _dear(schedule) if report.ok else _diagnosis(schedule) or sentence(str(report.faults[0]))


def _dear(schedule: Schedule) -> str | None:
    """What is too dear about a schedule that computes the right sums."""
    ranks, steps = schedule.ranks, len(schedule.steps)
    if ranks == 1:
        return "A single rank has nothing to send." if steps else None
    needed = messages("all_reduce", "ring", ranks)
    chunk = 1000
    payload = chunk * ranks
    most, least = (
        checker.count_bytes_sent(schedule, payload).max(),
        bytes_sent("all_reduce", "ring", payload, ranks),
    )
    if steps > needed and 0 < most - least <= 2 * chunk:
        return (
            "The sums are right, but a loop runs once too often: one step brings everyone what "
            "is not needed."
        )
    if most > least:
        return (
            f"The sums are right, but on {ranks} ranks the busiest one sends {most / payload:.3g} "
            "S. "
            "Cut the payload into K chunks, and let every rank send one of them a step."
        )
    if steps > needed:
        return (
            f"The sums and the bytes are right, but it takes {steps} steps: all ranks can send "
            "in every one of them."
        )
    way = {int(hop) for step in schedule.steps for hop in (step.destination - step.source) % ranks}
    if len(way) > 1:
        return (
            "The sums and the bytes are right, but in a ring everyone sends to the same side, "
            "and only to the neighbor."
        )
    return None


def _diagnosis(schedule: Schedule) -> str | None:
    """The mistake behind wrong sums, if it is a known one."""
    ranks, steps = schedule.ranks, schedule.steps
    phase = [bool(step.reduce.all()) for step in steps if len(step.reduce)]
    adding, copying = phase.count(True), phase.count(False)
    if not phase:
        return "It has no transfers. Does the function yield a step in every round of its loop?"
    if ranks > 2 and len(np.unique(np.concatenate([step.chunk for step in steps]))) == 1:
        return (
            f"Only chunk {steps[0].chunk[0]} ever travels. In one step the ranks send different "
            "chunks."
        )
    if not adding:
        return (
            "Every transfer replaces what it meets, and nothing is added: see the field reduce "
            "of a Transfer."
        )
    if not copying:
        if adding >= ranks:
            return (
                "It adds in every step, and counts contributions twice: a chunk that is "
                "complete is to be copied."
            )
        *_, end = contributions(schedule)
        if (end == 1).all(axis=-1).any(axis=0).all():
            return (
                "Every chunk is summed on one rank: this is a reduce-scatter. The others still "
                "have to get the sums."
            )
    if adding != ranks - 1 and copying:
        return (
            f"It adds in {adding} steps, which is too {'few' if adding < ranks - 1 else 'many'}: "
            "count the hops that a chunk needs to collect from every rank once."
        )
    return _wrong_chunk(schedule, adding) or (
        f"After {copying} copying steps somebody lacks a chunk: count the hops that a complete "
        "chunk needs to reach everyone."
        if copying != ranks - 1
        else None
    )


def _wrong_chunk(schedule: Schedule, adding: int) -> str | None:
    """The first transfer that sends the wrong chunk, in words."""
    ranks = schedule.ranks
    for number, (held, step) in enumerate(
        zip(contributions(schedule), schedule.steps, strict=False)
    ):
        count = held[step.source, step.chunk].sum(axis=-1)
        there = held[step.destination, step.chunk]
        twice = (held[step.source, step.chunk] + there > 1).any(axis=-1)
        wrong = (twice | (count <= number)) if number < adding else count != ranks
        if not wrong.any():
            continue
        first = int(np.flatnonzero(wrong)[0])
        sender = f"In step {number} rank {step.source[first]} sends chunk {step.chunk[first]}"
        if number >= adding:
            return (
                f"{sender}, of which it holds {count[first]} of {ranks} contributions. "
                "In the second phase a rank sends on a chunk that is complete."
            )
        if count[first] <= number:
            return (
                f"{sender}, which it has not just received. Send on the chunk that arrived in "
                "the step before."
            )
        return f"{sender} to a rank that has a part of that sum already: it counts double."
    return None


check_ring = define(
    "all-reduce-write-the-ring",
    chapter="all-reduce",
    title="Write the ring",
    kind="implement",
    minutes=12,
    points=3,
    task="Write ring(ranks): a generator that yields the steps of a ring all-reduce, each a "
    "Transfer or a list of them. Every "
    "rank sends one of K chunks a step to the same neighbor. Judged by the sums, the bytes (2(K - "
    "1)/K S a rank) and "
    "the steps, on several rank counts.",
    check=FunctionCheck(
        lambda ranks: list(make("all_reduce", "ring", ranks).steps),
        cases=((4,), (3,), (2,), (8,), (1,), (17,)),
        judge=_judge_ring,
        explanation="Right sums on every rank, in as few bytes and steps as a ring can.",
    ),
)


# --- Choose an algorithm --------------------------------------------------------------------------

CLUSTER = {"ranks": 48, "network": NETWORK}
LIMITS_S = {16 * KiB: 70e-6, 4 * MiB: 550e-6, 2 * GiB: 90e-3}
NAMES = tuple(ALGORITHMS["all_reduce"])


def _judge_choice(name: Any, payload_bytes: int) -> str | None:
    """Why all-reducing ``payload_bytes`` with the algorithm ``name`` misses its limit, or None."""
    if name not in NAMES:
        return f"Return one of the names {', '.join(NAMES)}, as text."
    price, limit_s = cost("all_reduce", name, payload_bytes, **CLUSTER), LIMITS_S[payload_bytes]
    if price.total_s <= limit_s:
        return None
    why = (
        "its latency alone breaks the limit: fewer messages one after another."
        if price.latency_s > limit_s
        else "its bytes alone break the limit: fewer payloads through one port."
        if price.transfer_s > limit_s
        else "each part would do, but both together are too much."
    )
    return (
        f"{binary(payload_bytes)} takes {duration(price.total_s)}, and {duration(limit_s)} are "
        f"allowed; {why}"
    )


def _fastest(payload_bytes: int) -> str:
    return min(NAMES, key=lambda name: cost("all_reduce", name, payload_bytes, **CLUSTER).total_s)


check_choice = define(
    "all-reduce-choose",
    chapter="all-reduce",
    title="Choose the algorithm",
    kind="design",
    minutes=8,
    points=2,
    task="48 ranks, 50 GB/s each way, 5 µs a message. Write choose(payload_bytes), which returns "
    "the name of an algorithm, so "
    "that 16 KiB takes at most 70 µs, 4 MiB at most 550 µs and 2 GiB at most 90 ms.",
    check=FunctionCheck(
        _fastest,
        cases=tuple((size,) for size in LIMITS_S),
        judge=_judge_choice,
        explanation=(
            "No single algorithm meets all three limits, which is why libraries carry several."
        ),
    ),
)
