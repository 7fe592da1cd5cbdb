"""Where the ranks of a communicator meet: each posts what it calls and where its data lies, all
wait, all compare.

A rank posts in a slot of its own, alternately in one of two: it can only come back to a slot after
everybody has arrived at the meeting in between, and so is done reading it. Small payloads travel in
the slot itself.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dtlib.simulators.ranks.errors import disagreement
from dtlib.simulators.ranks.wires import Wires

__all__ = ["SLOTS_BYTES", "SMALL_BYTES", "Meeting", "described"]

PLACES, STAMP = (
    struct.Struct("<2q"),
    struct.Struct("<3q"),
)  # a stamp: the run, the channel, the number of the meeting
NOTE = PLACES.size + STAMP.size
NOTE_BYTES = 480
PAYLOAD = NOTE + NOTE_BYTES
SMALL_BYTES = 128 << 10
SLOT_BYTES = SMALL_BYTES + (4 << 10)
SLOTS_BYTES = 2 * SLOT_BYTES


@lru_cache
def described(shape: tuple[int, ...], dtype: np.dtype) -> str:
    return f" with shape {shape} and dtype {dtype}"


class Meeting:
    """The meeting point of ``members`` (ranks of the cluster), whose slots lie at ``slots``; this
    one is ``rank``.
    """

    def __init__(
        self, wires: Wires, members: Sequence[int], rank: int, slots: Sequence[int], channel: int
    ) -> None:
        self.wires, self.members, self.rank, self.channel = wires, list(members), rank, channel
        self._slots = [list(slots), [slot + SLOT_BYTES for slot in slots]]
        self._meetings, self._run = 0, wires.run

    def meet(
        self, call: str, payload: np.ndarray | bytes | None = None, places: tuple[int, int] = (0, 0)
    ) -> None:
        """Post and wait; an error on every rank if they did not call the same."""
        self.check()
        self.wires.call += 1
        self._meetings += 1
        slots, memory = self._posted, self.wires.memory
        mine = slots[self.rank]
        note = self._stamp + call.encode()[: NOTE_BYTES - 1] + b"\0"
        PLACES.pack_into(memory.map, mine, *places)
        start, stop = PLACES.size, PLACES.size + len(note)
        memory.map[mine + start : mine + stop] = note
        if isinstance(payload, bytes):
            memory.map[mine + PAYLOAD : mine + PAYLOAD + len(payload)] = payload
        elif payload is not None:
            memory.view(mine + PAYLOAD, payload.shape, payload.dtype)[...] = payload
        self.wait()
        for slot in slots:
            if memory.map[slot + start : slot + stop] != note:
                self._disagree()

    def check(self) -> None:
        """An error if the run has failed, or if this is kept from another run, whose memory belongs
        to others now.
        """
        self.wires.check()
        if self._run != self.wires.run:
            raise RuntimeError("this communicator belongs to a run that is over")

    @property
    def _stamp(self) -> bytes:
        return STAMP.pack(self._run, self.channel, self._meetings)

    @property
    def _posted(self) -> list[int]:
        """The slots of the present meeting."""
        return self._slots[self._meetings & 1]

    def wait(self) -> None:
        """A barrier of the members. On a described network it takes no time there, and all are up
        to date again.
        """
        self._wait()
        if self.wires.throttle is not None:
            self.wires.throttle.behind_s = 0.0

    def _wait(self) -> None:
        if len(self.members) == self.wires.ranks:
            self.wires.mailbox.barrier()
            return
        size, mailbox = len(self.members), self.wires.mailbox
        distance = 1
        while distance < size:  # dissemination: after round k a rank has heard of 2^k others
            mailbox.put(self.members[(self.rank + distance) % size], self.channel, -distance)
            mailbox.get(self.members[self.rank - distance], self.channel, -distance)
            distance *= 2

    def place(self, member: int) -> tuple[int, int]:
        """The places that a member posted."""
        return PLACES.unpack_from(self.wires.memory.map, self._posted[member])

    def payload(self, member: int, shape: Any, dtype: Any) -> np.ndarray:
        """The payload that a member posted. To be read before the next meeting ends."""
        return self.wires.memory.view(self._posted[member] + PAYLOAD, shape, dtype)

    def payload_bytes(self, member: int, size: int) -> bytes:
        start = self._posted[member] + PAYLOAD
        return self.wires.memory.map[start : start + size]

    def _disagree(self) -> None:
        memory, stamp = self.wires.memory.map, self._stamp
        notes = [
            memory[slot + NOTE : slot + NOTE + NOTE_BYTES].split(b"\0")[0].decode(errors="replace")
            if memory[slot + PLACES.size : slot + NOTE] == stamp
            else "called something on another communicator"
            for slot in self._posted
        ]
        raise disagreement(notes, self.members)
