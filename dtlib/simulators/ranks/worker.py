"""The process of one rank: it waits for programs, runs each, and reports how it ended."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from dtlib.simulators.ranks import frames
from dtlib.simulators.ranks.comm import Comm
from dtlib.simulators.ranks.errors import RankError
from dtlib.simulators.ranks.meeting import SLOTS_BYTES, Meeting
from dtlib.simulators.ranks.memory import Memory
from dtlib.simulators.ranks.report import ended, failed, flush
from dtlib.simulators.ranks.surroundings import enter
from dtlib.simulators.ranks.throttle import Throttle
from dtlib.simulators.ranks.wires import DONE, FLAG, STATES, Wires

__all__ = ["main", "perform"]

KEEP_BYTES = 256 << 20  # of shared memory, warm for the next run


def main() -> None:
    """Serve programs until the caller hangs up. Started by ``cluster`` with its settings as JSON."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the caller, who ends the run
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    for descriptor in settings["descriptors"]:
        os.set_inheritable(descriptor, False)
    threading.Thread(target=_die_with_caller, args=(settings["lifeline"],), daemon=True).start()
    _be_killed_with_caller(settings["lifeline"])
    control = socket.socket(fileno=settings["control"])
    rank, ranks = settings["rank"], settings["ranks"]
    memory = Memory(settings["memory"], ranks, settings["region_bytes"])
    wires = Wires(
        rank,
        ranks,
        memory,
        settings["inbox"],
        settings["outboxes"],
        settings["tickets"],
        settings["lock"],
        reserved=SLOTS_BYTES,
    )
    while True:
        try:
            order, program = frames.unpack(frames.receive(control)), frames.receive(control)
        except EOFError:
            return
        frames.send(control, _serve(wires, order, program))
        del order, program
        wires.heap.trim(KEEP_BYTES)


def _die_with_caller(lifeline: int) -> None:
    os.read(lifeline, 1)  # nobody ever writes to it: it ends when the caller's process does
    os.killpg(os.getpid(), signal.SIGKILL)


def _be_killed_with_caller(lifeline: int) -> None:
    """Where the system can: have it kill this process, and what that has started, even if no thread
    can run.
    """
    import fcntl

    if not hasattr(fcntl, "F_SETSIG"):
        return
    with contextlib.suppress(OSError):
        own = os.open(
            f"/proc/self/fd/{lifeline}", os.O_RDONLY
        )  # the one it inherited can have only one owner
        fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)


def _serve(wires: Wires, order: dict[str, Any], program: frames.Parts) -> frames.Parts:
    enter(order)
    throttle = order["network"] and Throttle(
        order["network"], wires.ranks, wires.memory, wires.lock
    )
    wires.begin(order["start_s"], throttle)
    report = perform(wires, lambda: frames.unpack(program))
    try:
        return frames.pack(report)
    except Exception as error:
        return frames.pack(failed(wires.rank, "returned something that cannot be pickled", error))


def perform(wires: Wires, load: Callable[[], tuple[Callable[..., Any], tuple]]) -> dict[str, Any]:
    """Run a program on this rank; what is to be reported."""
    rank = wires.rank
    world = Comm(
        wires,
        Meeting(
            wires,
            range(wires.ranks),
            rank,
            [wires.memory.region(r) for r in range(wires.ranks)],
            channel=1,
        ),
    )
    value = None
    try:
        program, arguments = load()
        value = program(world, *arguments)
        _leave(wires, world)
    except RankError as error:
        if wires.memory.map[FLAG]:
            return {"end": "stopped", "value": value}
        return ended(rank, error)
    except BaseException as error:
        return ended(rank, error)
    finally:
        flush()
    return {
        "end": "returned",
        "value": value,
        "sent": wires.sent,
        "received": wires.received,
        "trace": wires.trace.records(),
        "untraced": wires.trace.untraced,
    }


def _leave(wires: Wires, world: Comm) -> None:
    """Find out that some rank still wants something from the others, or has not received all it was
    sent.
    """
    wires.memory.map[STATES + wires.rank] = DONE
    world.meeting.meet("returned from the program")
    left = wires.mailbox.left_over()
    if left:
        first = left[0]
        raise RankError(
            wires.rank,
            f"returned without having received {len(left)} message{'s' * (len(left) > 1)}, the"
            f" first one from rank {first.source} with tag {first.tag} and {first.size} bytes",
        )
