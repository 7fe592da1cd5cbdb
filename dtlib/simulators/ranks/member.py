"""A rank among ranks that pass messages: it joins the others, runs the program, and says how that
ended.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from dtlib.arguments import real_number
from dtlib.simulators.ranks.errors import RankError
from dtlib.simulators.ranks.frames import dumps
from dtlib.simulators.ranks.messages import Account, Link, Lost, MessageComm
from dtlib.simulators.ranks.report import ended, failed, flush, frames_of, shown
from dtlib.simulators.ranks.result import Result

__all__ = ["GRACE_S", "check", "fail", "join", "perform"]

EXTRAS = {"mpi": ("mpi4py", "mpich"), "torch": ("torch",)}
GRACE_S = 0.4  # for other ranks to say how they are, before the first one ends them all


def check(engine: str, module: str, program: Any, network: Any, deadline_s: Any) -> None:
    """Find out what is wrong with a run before it begins."""
    if not callable(program):
        raise TypeError(f"program must be a function program(comm, ...), got {program!r}")
    if network is not None:
        raise ValueError(
            f"network can be imposed on engine 'local' only: that of {engine!r} is the one there "
            "is, "
            f"got {network!r}"
        )
    if deadline_s is not None:
        real_number("deadline_s", deadline_s, unit="s", zero=False, array=False)
    if find_spec(module) is None:
        raise ImportError(
            f"engine {engine!r} needs {module}: pip install {' '.join(EXTRAS[engine])}"
        )


def perform(
    link: Link,
    program: Callable[..., Any],
    arguments: tuple,
    deadline_s: float | None,
    late: Callable[[dict[str, Any]], None],
) -> tuple[MessageComm, dict[str, Any]]:
    """Run a program on this rank; its communicator, and how it ended.

    After ``deadline_s``, ``late`` is called in another thread, with the report to make.
    """
    account = Account(link.rank, link.size)
    world = MessageComm(link, account, list(range(link.size)))
    world.exchange(b"")  # the run begins when all are here
    account.trace.began_s = time.perf_counter()
    timer = None
    if deadline_s is not None:
        main = threading.get_ident()
        timer = threading.Timer(
            min(deadline_s, threading.TIMEOUT_MAX), lambda: late(_late(account, deadline_s, main))
        )
        timer.daemon = True
        timer.start()
    value = None
    try:
        value = program(world, *arguments)
        _leave(world)
    except Lost as error:
        waiting = account.waiting
        who = "another rank" if waiting in (None, link.rank) else f"rank {waiting}"
        report = failed(link.rank, f"lost its connection to {who} ({error})", error) | {
            "end": "lost"
        }
    except BaseException as error:
        report = ended(link.rank, error)
    else:
        report = {
            "end": "returned",
            "sent": account.sent,
            "received": account.received,
            "trace": account.trace.records(),
            "untraced": account.trace.untraced,
        }
    finally:
        if timer is not None:
            timer.cancel()
        flush()
    return world, report | {"value": value}


def join(world: MessageComm, report: dict[str, Any], start_s: float) -> Result:
    """The result of a run that has ended well on every rank, on every rank."""
    reports = [pickle.loads(entry) for entry in world.exchange(dumps(report))]
    world.close()
    return Result(reports, [""] * world.size, time.perf_counter() - start_s)


def fail(report: dict[str, Any]) -> RankError:
    """The error that a report is about."""
    doing = f": it {report['doing']}" if report["end"] == "late" else ""
    return RankError(report["rank"], report["cause"] + doing, report["exit_code"], shown(report))


def _leave(world: MessageComm) -> None:
    """Find out that some rank still wants something from the others, or has not received all it was
    sent.
    """
    account = world.account
    sent = world.meet("returned from the program", pickle.dumps(account.messages_sent))
    received = world.exchange(pickle.dumps(account.messages_received))
    for rank, counts in enumerate(map(pickle.loads, received)):
        for source, to in enumerate(map(pickle.loads, sent)):
            left = to[rank] - counts[source]
            if left:
                raise RankError(
                    rank,
                    f"returned without having received {left} message{'s' * (left > 1)} "
                    f"from rank {source}",
                )


def _late(account: Account, deadline_s: float, thread: int) -> dict[str, Any]:
    waiting = account.waiting
    doing = (
        "was busy"
        if waiting is None
        else "waited for all"
        if waiting == account.rank
        else f"waited for rank {waiting}"
    )
    stack = [
        frame
        for frame in traceback.extract_stack(sys._current_frames()[thread])
        if frame.filename != "<string>"
    ]
    return {
        "end": "late",
        "rank": account.rank,
        "cause": f"did not finish within {deadline_s:g} s (deadline_s)",
        "doing": doing,
        "exit_code": None,
        "frames": frames_of(stack),
        "text": "",
        "value": None,
    }
