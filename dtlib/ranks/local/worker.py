"""The process of one rank: it waits for programs, runs each, and reports how it ended."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from dtlib.ranks import serialization
from dtlib.ranks.failures import Report, perform
from dtlib.ranks.local.shared_memory import DONE, SharedMemory
from dtlib.ranks.local.transport import Endpoint
from dtlib.ranks.surroundings import enter

__all__ = ["main"]

WATCH_S = 0.2


def main() -> None:
    """Serve programs until the caller hangs up. ``cluster`` starts it, with settings as JSON."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the caller, who ends all
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    for descriptor in settings["descriptors"]:
        os.set_inheritable(descriptor, False)
    threading.Thread(target=_end_with, args=(settings["caller"],), daemon=True).start()
    memory = SharedMemory(settings["ranks"], settings["region_bytes"], settings["memory"])
    endpoint = Endpoint(settings["rank"], memory, settings["inbox"], settings["outboxes"])
    control = Connection(settings["control"])
    while True:
        try:
            orders = serialization.receive(control)
            program = serialization.receive(control)
        except EOFError:
            return
        serialization.send(control, _serve(endpoint, serialization.unpack(orders), program))
        del orders, program
        endpoint.heap.trim()


def _end_with(caller: int) -> None:
    """End this process, and what it has started, when the caller's is gone."""
    while os.getppid() == caller:
        time.sleep(WATCH_S)
    os.killpg(os.getpid(), signal.SIGKILL)


def _serve(endpoint: Endpoint, orders: dict[str, Any], program: list[Any]) -> list[Any]:
    """Run a program; its report, packed."""
    enter(orders["surroundings"], environment=True)
    header, before = endpoint.memory.header, _belongings()
    transport = endpoint.begin(orders["began_s"], orders["network"])

    def load() -> Any:
        serialization.forget_classes()
        return serialization.unpack(program)

    # This ends the process even where no Python code can run.
    faulthandler.dump_traceback_later(orders["limit_s"], exit=True)
    report = perform(transport, load, lambda: bool(header["failed"]))
    faulthandler.cancel_dump_traceback_later()
    header["state"][endpoint.rank] = DONE
    if _belongings() != before:
        gc.collect()
        report.worn = _belongings() != before
    try:
        return serialization.pack(report)
    except Exception as error:
        cause = "returned something that cannot be pickled"
        return serialization.pack(Report.failed(endpoint.rank, cause, error))


def _belongings() -> set[Any]:
    """The threads, open files and streams of this process: if a program has left it others, it is
    worn out.
    """
    files: set[Any] = set()
    with contextlib.suppress(OSError):
        files = set(os.listdir("/dev/fd"))
    return files | set(threading.enumerate()) | {sys.stdout, sys.stderr}
