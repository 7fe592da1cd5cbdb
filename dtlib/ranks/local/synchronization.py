"""Where the ranks of a communicator meet: each posts what it calls, all wait, all compare.

A rank posts in a slot of its own in shared memory, alternately in one of two: it can only come back
to a slot after everybody has arrived at the meeting in between, and so is done reading it. Small
payloads travel in the slot itself.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from dtlib.ranks.failures import disagreement
from dtlib.ranks.local.mailbox import Envelope, Mailbox
from dtlib.ranks.local.shared_memory import ALL, SharedMemory

__all__ = ["SLOTS_BYTES", "SMALL_BYTES", "Rendezvous"]

HEAD = struct.Struct("<2qI")  # two offsets, and the length of the call that follows
CALL_BYTES = 1024 - HEAD.size
SMALL_BYTES = 64 << 10
SLOT_BYTES = HEAD.size + CALL_BYTES + SMALL_BYTES
SLOTS_BYTES = -(-2 * SLOT_BYTES // 4096) * 4096
BARRIER = 2  # a kind of message, beside those of programs and schedules
EMPTY = Envelope(-1, 0, 0.0, 0.0, b"", b"")


class Rendezvous:
    """The meeting point of ``members`` (ranks of the run), whose slots lie at ``slots``.

    This one is number ``rank`` among them, and ``channel`` tells their messages from others'.
    """

    def __init__(
        self,
        memory: SharedMemory,
        mailbox: Mailbox,
        members: Sequence[int],
        rank: int,
        slots: Sequence[int],
        channel: int,
    ) -> None:
        self.members, self.rank, self.channel = list(members), rank, channel
        self._memory, self._mailbox = memory, mailbox
        self._slots = [list(slots), [slot + SLOT_BYTES for slot in slots]]
        self._meetings = 0

    def meet(
        self, call: str, payload: np.ndarray | None = None, offsets: tuple[int, int] = (0, 0)
    ) -> None:
        """Post and wait; an error on every rank if they did not call the same."""
        self._meetings += 1
        mine, call_bytes = self._slots[self._meetings % 2][self.rank], call.encode()[:CALL_BYTES]
        head = HEAD.pack(*offsets, len(call_bytes)) + call_bytes
        self._memory.write(mine, head)
        if payload is not None:
            at = mine + HEAD.size + CALL_BYTES
            self._memory.view(at, payload.shape, payload.dtype)[...] = payload
        self.wait()
        calls = [self._call(member) for member in range(len(self.members))]
        if any(other != call_bytes for other in calls):
            texts = [other.decode(errors="replace") for other in calls]
            raise disagreement(texts, self.members)

    def offsets(self, member: int) -> tuple[int, int]:
        """The two offsets that a member posted. To be read before the next meeting ends."""
        slot = self._slots[self._meetings % 2][member]
        return HEAD.unpack(self._memory.read(slot, HEAD.size))[:2]

    def payload(self, member: int, shape: Any, dtype: Any) -> np.ndarray:
        """The payload that a member posted. To be read before the next meeting ends."""
        slot = self._slots[self._meetings % 2][member]
        return self._memory.view(slot + HEAD.size + CALL_BYTES, shape, dtype)

    def wait(self) -> None:
        """A barrier: all report to the first member, which then releases them."""
        first, *others = self.members
        mailbox, channel = self._mailbox, self.channel
        if self.rank:
            mailbox.put(first, channel, BARRIER, 0, EMPTY)
            mailbox.get(first, channel, BARRIER, 0, waiting_for=ALL)
            return
        for other in others:
            mailbox.get(other, channel, BARRIER, 0, waiting_for=ALL)
        for other in others:
            mailbox.put(other, channel, BARRIER, 0, EMPTY)

    def _call(self, member: int) -> bytes:
        slot = self._slots[self._meetings % 2][member]
        length = HEAD.unpack(self._memory.read(slot, HEAD.size))[2]
        return self._memory.read(slot + HEAD.size, length)
