"""The communicator of ranks that share memory."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dtlib.arguments import whole_number
from dtlib.simulators.ranks import direct
from dtlib.simulators.ranks.communicator import Communicator, as_message
from dtlib.simulators.ranks.mailbox import INLINE_BYTES
from dtlib.simulators.ranks.meeting import SLOTS_BYTES, Meeting, described
from dtlib.simulators.ranks.wires import Wires

if TYPE_CHECKING:
    from dtlib.simulators.ranks import steps
    from dtlib.simulators.schedule import Schedule

__all__ = ["Comm"]

META_BYTES = INLINE_BYTES // 4


class Comm(Communicator):
    """The ranks of a ``meeting``, which share memory.

    The fastest all-reduce sends as much as a ring does, 2 (n - 1) / n of the array per rank; with
    arrays of up to 128 KiB everybody sends everybody everything, n - 1 arrays per rank. It is
    fastest on arrays of ``empty``, in the memory that all ranks share. On a described network there
    is no such memory, and the fastest is the schedule that takes least time by the clock. There a
    broadcast, whose size only its root knows, is a tree, and ranks in other numbers or another
    order than the whole run rings.
    """

    own = direct

    def __init__(self, wires: Wires, meeting: Meeting) -> None:
        self.wires, self.meeting = wires, meeting
        self.rank, self.size = meeting.rank, len(meeting.members)
        self._splits = self._messages = 0

    @property
    def sent_bytes(self) -> list[int]:
        return [self.wires.sent[member] for member in self.meeting.members]

    @property
    def received_bytes(self) -> list[int]:
        return [self.wires.received[member] for member in self.meeting.members]

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
        return self.wires.heap.empty(shape, dtype)

    # One rank to another

    def send(self, value: Any, destination: int, tag: int = 0) -> None:
        self.meeting.check()
        destination = self._peer("destination", destination)
        array, meta = as_message(value, META_BYTES)
        channel, tag = self.meeting.channel - 1, whole_number("tag", tag, at_least=0)
        if array.nbytes <= INLINE_BYTES:
            self.wires.send(
                destination, array.nbytes, channel, tag, meta=meta, body=array.tobytes()
            )
            return
        heap, memory = self.wires.heap, self.wires.memory
        flag = heap.take(array.nbytes + heap.HEAD)
        memory.map[flag] = 0
        memory.view(flag + heap.HEAD, array.shape, array.dtype)[...] = array
        heap.lend(flag)
        self.wires.send(destination, array.nbytes, channel, tag, meta=meta, offset=flag)

    def recv(self, source: int, tag: int = 0) -> Any:
        self.meeting.check()
        source = self._peer("source", source)
        message = self.wires.receive(
            source, self.meeting.channel - 1, whole_number("tag", tag, at_least=0)
        )
        dtype, shape = pickle.loads(message.meta) if message.meta else (np.uint8, message.size)
        if message.offset < 0:
            array = np.ndarray(shape, dtype, bytearray(message.body))
        else:
            array = self.wires.borrowed(message.offset, shape, dtype)
        self.wires.trace.note(
            self.wires.call,
            self._messages,
            (source,),
            (message.tag,),
            False,
            (message.size,),
            message.sent_s,
            time.perf_counter(),
        )
        self._messages += 1
        return array if message.meta else pickle.loads(array)

    # All ranks together

    def barrier(self) -> None:
        self.meeting.meet("called barrier()")

    def split(self, color: int, key: int = 0) -> Comm:
        color, key = (
            whole_number("color", color, at_least=-(2**62)),
            whole_number("key", key, at_least=-(2**62)),
        )
        slots = self.wires.heap.take(
            SLOTS_BYTES
        )  # kept: a member may look at them until the run ends
        self.wires.kept.append(slots)
        self.wires.splits += 1
        mine = np.array([color, key, slots, self.wires.splits])
        self.meeting.meet("called split()", mine)
        table = np.array([self.meeting.payload(member, 4, np.int64) for member in range(self.size)])
        group = sorted(
            np.flatnonzero(table[:, 0] == color).tolist(),
            key=lambda member: (table[member, 1], member),
        )
        members = [self.meeting.members[member] for member in group]
        # The first member's count of its splits makes a number that nobody else has given out.
        channel = int(table[group[0], 3]) * self.wires.ranks * 2 + 2 * members[0] + 1
        return Comm(
            self.wires,
            Meeting(self.wires, members, group.index(self.rank), table[group, 2].tolist(), channel),
        )

    # What the implementations of collectives need

    def count_sent(self, sizes: Sequence[int]) -> None:
        """Count so many bytes sent to each member; what one sends to oneself does not count."""
        sent = self.wires.sent
        for peer, size in zip(self.meeting.members, sizes, strict=True):
            sent[peer] += size
        sent[self.wires.rank] -= sizes[self.rank]

    def count_received(
        self,
        step: int,
        sizes: Sequence[int],
        chunks: Sequence[int],
        reduce: bool,
        start_s: float,
        source: int | None = None,
    ) -> None:
        """Count, as one step, so many bytes and these chunks received from each member, or from
        ``source`` alone.
        """
        wires = self.wires
        sources = self.meeting.members if source is None else [self.meeting.members[source]]
        for peer, size in zip(sources, sizes, strict=True):
            if peer != wires.rank:
                wires.received[peer] += size
        wires.trace.note(
            wires.call, step, sources, chunks, reduce, sizes, start_s, time.perf_counter()
        )

    def meet_root(
        self, call: str, array: np.ndarray | None, root: int, place: int = 0
    ) -> tuple[Any, np.dtype]:
        known = None if array is None else pickle.dumps((array.shape, array.dtype.str)).ljust(2048)
        self.meeting.meet(call, known, (place, 0))
        shape, dtype = pickle.loads(self.meeting.payload_bytes(root, 2048))
        if array is not None and (array.shape, array.dtype.str) != (shape, dtype):
            raise ValueError(
                f"broadcast: this rank has an array{described(array.shape, array.dtype)}, but the "
                "root's"
                f" is{described(shape, np.dtype(dtype))}; only the root has to give one"
            )
        return shape, np.dtype(dtype)

    def has_own(self, collective: str, dtype: np.dtype | None) -> bool:
        return self.wires.throttle is None

    def default(self, collective: str, payload_bytes: int | None, root: int) -> Schedule:
        throttle = self.wires.throttle
        if (
            throttle is None
            or payload_bytes is None
            or self.meeting.members != list(range(self.wires.ranks))
        ):
            return super().default(collective, payload_bytes, root)
        from dtlib.simulators.fastest import fastest

        return fastest(collective, self.size, payload_bytes, throttle.network)

    def carry_out(
        self,
        call: str,
        parts: list[steps.Part],
        state: np.ndarray,
        chunks: list[np.ndarray],
        bounds: list[int],
    ) -> None:
        self.meeting.meet(call, places=(self.wires.memory.offset_of(state), 0))
        places = [self.meeting.place(member)[0] for member in range(self.size)]
        from dtlib.simulators.ranks import steps

        steps.Runner(self, chunks, bounds, places).run(parts)

    def _peer(self, name: str, rank: int) -> int:
        return self.meeting.members[whole_number(name, rank, at_least=0, at_most=self.size - 1)]
