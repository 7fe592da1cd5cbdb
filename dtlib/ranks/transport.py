"""What an engine has to provide: how the ranks of one communicator reach each other.

A new engine is a subclass of ``Transport``. ``Communicator`` is what programs see of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from dtlib.network import Network
from dtlib.ranks.result import Counters

__all__ = ["MESSAGE", "TRANSFER", "Collectives", "Message", "Transport", "sum_and_result_dtypes"]

MESSAGE, TRANSFER = 0, 1  # the kinds of messages: those of send and recv, those of schedules


class Message(NamedTuple):
    """What ``Transport.receive`` returns. ``data`` is the sender's memory or a buffer of this rank:
    it is read before ``done`` is called. ``sent_s`` is when it was sent, by this machine's clock.
    """

    data: np.ndarray
    meta: bytes
    sent_s: float
    done: Callable[[], None]


class Collectives(Protocol):
    """An engine's own collectives: arrays in, arrays out, shapes as ``Communicator`` has them."""

    def all_reduce(self, array: np.ndarray, op: str, out: np.ndarray | None) -> np.ndarray: ...
    def reduce_scatter(self, array: np.ndarray, op: str) -> np.ndarray: ...
    def all_gather(self, array: np.ndarray) -> np.ndarray: ...
    def all_to_all(self, array: np.ndarray) -> np.ndarray: ...
    def broadcast(self, array: np.ndarray | None, root: int) -> np.ndarray: ...


class Transport(ABC):
    """How the ranks of one communicator reach each other. An engine is a subclass of this.

    ``members`` are the ranks of the run that are ranks 0, 1, ... here. ``network`` is what is
    imposed on their messages, if anything is. Messages with the same source, kind and tag arrive in
    order. Whatever waits ends with a ``RankError`` when the run has failed.
    """

    rank: int
    members: list[int]
    counters: Counters
    network: Network | None = None

    @property
    def size(self) -> int:
        return len(self.members)

    @abstractmethod
    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        """An uninitialized array where the engine's own collectives like to find it."""

    @abstractmethod
    def post(
        self, destination: int, kind: int, tag: int, data: np.ndarray, meta: bytes = b""
    ) -> None:
        """Send a contiguous array. Returns at once, and ``data`` may be changed afterwards."""

    @abstractmethod
    def receive(self, source: int, kind: int, tag: int) -> Message:
        """Wait for a message."""

    @abstractmethod
    def meet(self, call: str, data: bytes = b"") -> list[bytes]:
        """Wait for all members, who must have made the same ``call``; their ``data``, by rank."""

    @abstractmethod
    def split(self, members: list[int], color: int) -> Transport:
        """The same for some of the members, given by their ranks here; ``color`` tells it apart."""

    @abstractmethod
    def own(self, collective: str, dtype: np.dtype | None) -> Collectives | None:
        """The engine's own collectives, if they can do this one; None if a schedule has to."""


def sum_and_result_dtypes(dtype: np.dtype, op: str) -> tuple[np.dtype, np.dtype]:
    """What an array of ``dtype`` is added up in, and the dtype of the result, as numpy has them."""
    if op == "sum":
        return dtype, dtype
    if dtype.kind in "iu":
        return np.dtype(np.float64), np.dtype(np.float64)
    return (np.dtype(np.float32) if dtype == np.float16 else dtype), dtype
