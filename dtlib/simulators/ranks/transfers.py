"""Carries out one rank's part of a schedule by messages.

All transfers of a step from one rank to another are one message. They read what the ranks held when
the step began: what is received is written when it is all here, and a chunk that is both sent and
written is sent from a copy.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import numpy as np

from dtlib.simulators.ranks.steps import Part

if TYPE_CHECKING:
    from dtlib.simulators.ranks.messages import MessageComm

__all__ = ["carry_out"]

CHANNEL = 3


def carry_out(comm: MessageComm, parts: list[Part], chunks: list[np.ndarray]) -> None:
    """Do what ``parts`` say to ``chunks``, step by step."""
    for step, part in enumerate(parts):
        since_s = time.perf_counter()
        boxes = {source: _box(part, source, chunks) for source in part.expects}
        arriving = [
            (comm.link.receive(box.view(np.uint8), source, CHANNEL), source)
            for source, box in boxes.items()
            if box.nbytes
        ]
        leaving = [
            (comm.link.send(data.view(np.uint8), destination, CHANNEL), destination)
            for destination, data in _outgoing(comm, part, chunks)
            if data.nbytes
        ]
        for pending, source in arriving:
            comm.wait(pending, source)
        pieces = {
            (source, chunk): piece
            for source, wanted in part.expects.items()
            for chunk, piece in zip(wanted, _cut(boxes[source], wanted, chunks), strict=True)
        }
        for source, chunk, reduce in part.writes:
            target, piece = chunks[chunk], pieces[source, chunk]
            if reduce:
                np.add(target, piece, out=target)
            elif piece is not target:
                target[...] = piece
            comm.account.note(step, comm.members[source], chunk, reduce, target.nbytes, since_s)
        for pending, destination in leaving:
            comm.wait(pending, destination)


def _box(part: Part, source: int, chunks: list[np.ndarray]) -> np.ndarray:
    """Where to receive what ``source`` sends: in its place, if it is one chunk that nobody needs as
    it was.
    """
    wanted = part.expects[source]
    if (
        len(wanted) == 1
        and (source, wanted[0], False) in part.writes
        and wanted[0] not in part.unsafe
    ):
        return chunks[wanted[0]]
    return np.empty(sum(chunks[chunk].size for chunk in wanted), chunks[0].dtype)


def _outgoing(
    comm: MessageComm, part: Part, chunks: list[np.ndarray]
) -> list[tuple[int, np.ndarray]]:
    messages = []
    for destination, wanted in part.sends.items():
        data = chunks[wanted[0]]
        if len(wanted) > 1 or wanted[0] in part.unsafe:
            data = np.concatenate([chunks[chunk] for chunk in wanted])
        comm.account.sent[comm.members[destination]] += data.nbytes
        messages.append((destination, data))
    return messages


def _cut(flat: np.ndarray, wanted: list[int], chunks: list[np.ndarray]) -> list[np.ndarray]:
    if len(wanted) == 1:
        return [flat]
    return np.split(flat, list(itertools.accumulate(chunks[chunk].size for chunk in wanted))[:-1])
