"""The one error that a run on real ranks ends with."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["RankError", "death", "disagreement"]


class RankError(RuntimeError):
    """A run ended because of one rank: ``rank`` says which, ``cause`` what happened to it,
    ``exit_code`` how its process ended (None: it did not), ``traceback`` where it was. It is raised
    on every rank and in the caller; ``results`` is, for the caller, what the ranks that caught it
    still returned (None for the others).
    """

    def __init__(
        self,
        rank: int,
        cause: str,
        exit_code: int | None = None,
        traceback: str = "",
        results: list[Any] | None = None,
    ) -> None:
        super().__init__(rank, cause, exit_code, traceback, results)
        self.rank, self.cause, self.exit_code, self.traceback = rank, cause, exit_code, traceback
        self.results = results

    def __str__(self) -> str:
        where = f"\n\nOn rank {self.rank}:\n{self.traceback.rstrip()}" if self.traceback else ""
        return f"rank {self.rank} {self.cause}{where}"


def death(exit_code: int) -> str:
    """In words, how a process with this exit code ended (negative: by a signal).

    >>> death(-9)
    'was killed by SIGKILL (exit code -9); if nobody did that, the machine ran out of memory'
    """
    if exit_code >= 0:
        return f"exited in the middle of the run (exit code {exit_code})"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    hint = "; if nobody did that, the machine ran out of memory" if name == "SIGKILL" else ""
    return f"was killed by {name} (exit code {exit_code}){hint}"


def disagreement(calls: Sequence[str], members: Sequence[int]) -> RankError:
    """The error that ranks end with that did not all call the same: the first one that is not like
    most is named.

    >>> print(disagreement(["called barrier()", "called split()", "called barrier()"], members=[0, 1, 2]))
    rank 1 called split(), but rank 0 called barrier(); all ranks must call the same, with the same shape and dtype
    """
    usual = Counter(calls).most_common(1)[0][0]
    odd = next(member for member, call in enumerate(calls) if call != usual)
    return RankError(
        members[odd],
        f"{calls[odd]}, but rank {members[calls.index(usual)]} {usual}; all ranks must call the "
        "same, with the same shape and dtype",
    )
