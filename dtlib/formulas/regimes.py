"""The latency and the bandwidth regime of a collective: which of its two parts rules at a given
size.
"""

from __future__ import annotations

from dtlib.arguments import broadcasting, whole_number
from dtlib.formulas.collectives import FORMULAS, Numbers, cost
from dtlib.network import Network

__all__ = ["balance_bytes"]


@broadcasting
def balance_bytes(collective: str, algorithm: str, ranks: Numbers, network: Network) -> Numbers:
    """The payload at which latency and transfer take equally long: Hockney's half-performance
    length.

    S = alpha B x messages / payloads, on a flat ``network``. Smaller payloads are in the latency
    regime, larger ones in the bandwidth regime; here half of the bandwidth is reached. For a ring
    it is n alpha B. It is refused for a pipeline, whose latency depends on the payload, and for one
    rank, which has no messages.

    >>> round(balance_bytes("all_reduce", "ring", 64, Network.flat(50e9, 5e-6)))
    16000000
    """
    whole_number("ranks", ranks, at_least=2, array=True)
    of_one_byte = cost(collective, algorithm, 1, ranks, network)
    if FORMULAS[collective][algorithm].best_m2 is not None:
        raise ValueError(
            f"algorithm must not be pipelined, got {algorithm!r}: its latency depends on the "
            "payload"
        )
    return of_one_byte.latency_s / of_one_byte.transfer_s
