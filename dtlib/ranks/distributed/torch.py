"""Engine "torch": the ranks are the processes of a torch.distributed group, on one machine or many.

In a notebook or a plain process ``run(program, ranks=4, engine="torch")`` starts them on this
machine for the run. A script that was itself started by ``torchrun`` runs the program on the ranks
that there are, however many ``ranks`` it asks for, and has the result on each of them. That is how
to use more than one machine, without changing the script; say this on both, with the address of the
first one, and 0 and 1 as the rank of the node::

    pip install torch            # the same on every machine, and the script and dtlib too
    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr 10.0.0.1 \\
        --master-port 29500 script.py

If the machines have several networks, ``GLOO_SOCKET_IFNAME`` and ``NCCL_SOCKET_IFNAME`` name the
one to use.

Messages and schedules always travel through gloo. So do the library's own collectives, unless every
rank has a GPU to itself: then they are NCCL's, on copies of the arrays in the memory of the GPU.
gloo's own ``reduce_scatter`` is an all-reduce of which each rank keeps its part. That is done
openly here; to time it teaches the cost of an all-reduce.

A rank that fails tells the others by the store they met at. All raise ``RankError``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from dtlib.ranks.distributed.launcher import demand, join, launch, perform_in_time, serve
from dtlib.ranks.distributed.transport import ALL, LibraryTransport
from dtlib.ranks.failures import Lost, Report
from dtlib.ranks.result import Counters, Result

__all__ = ["TorchTransport", "main", "run"]

START = "from dtlib.ranks.distributed.torch import main; main()"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
MEET_S = 60.0  # for all ranks to be there
TOLD_S = 2.0  # for a rank that failed to say so, once another has lost it
DTYPES = "bBilqefdFD"


def run(
    program: Callable[..., Any], args: tuple[Any, ...], ranks: int, deadline_s: float | None
) -> Result:
    """Run ``program(comm, *args)`` under torch.distributed; see above."""
    demand("torch", "torch", "torch")
    if "TORCHELASTIC_RUN_ID" in os.environ or {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return _run_where_we_are(program, args, deadline_s)
    python = [sys.executable, "-P", "-c", START]
    common = {"WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": LOOPBACK}
    commands = [(python, common | {"RANK": str(rank)}) for rank in range(ranks)]
    return launch(commands, ranks, program, args, deadline_s)


def main() -> None:
    """Be a rank that ``run`` started."""
    serve(int(os.environ["RANK"]), _connect, os._exit)


def _connect(directory: Path, deadline_s: float | None) -> TorchTransport:
    """Meet the others at a store that rank 0 opens, on a port that is free."""
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place, limit = directory / "port", timedelta(seconds=MEET_S)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, ranks, True, limit, wait_for_workers=False)
        new = place.with_name("new.port")
        new.write_text(str(store.port))
        new.replace(place)
    else:
        until_s = time.monotonic() + MEET_S
        while not place.exists():
            if time.monotonic() > until_s:
                raise TimeoutError(f"rank 0 has opened no store within {MEET_S:g} s")
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(place.read_text()), ranks, False, limit)
    patience = _patience(deadline_s)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=patience)
    return TorchTransport.world(dist.group.WORLD, None, patience)


def _run_where_we_are(
    program: Callable[..., Any], args: tuple[Any, ...], deadline_s: float | None
) -> Result:
    import torch
    import torch.distributed as dist

    start_s, patience = time.perf_counter(), _patience(deadline_s)
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=MEET_S))
    local = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    fast = None
    if dist.is_nccl_available() and torch.cuda.device_count() >= local[1]:
        torch.cuda.set_device(local[0])
        fast = dist.new_group(backend="nccl", timeout=patience)
    group = dist.new_group(backend="gloo", timeout=patience)
    store = dist.distributed_c10d._get_default_store()
    world, failure = TorchTransport.world(group, fast, patience), f"dtlib.{group.group_name}"

    def late(report: Report) -> None:
        print(report.error(), file=sys.stderr, flush=True)
        os._exit(1)

    report = perform_in_time(world, lambda: (program, args), deadline_s, late)
    if report.end == "returned":
        return join(world, report, start_s)
    if report.end == "stopped":  # by the loss of another rank, which may say why
        with contextlib.suppress(dist.DistStoreError, dist.DistNetworkError):
            store.wait([failure], timedelta(seconds=TOLD_S))
            report = pickle.loads(store.get(failure))
    else:
        report.value = None
        store.set(failure, pickle.dumps(report))
    world.abort()
    raise report.error()


def _patience(deadline_s: float | None) -> timedelta:
    """How long to wait for others: longer than the run may take, whose deadline comes first."""
    longest = timedelta(days=365)
    return longest if deadline_s is None else min(longest, timedelta(seconds=deadline_s + MEET_S))


class TorchTransport(LibraryTransport):
    """The processes of a gloo ``group``; ``fast`` is the same group in NCCL, if all have GPUs."""

    def __init__(self, group: Any, fast: Any, patience: timedelta, *state: Any) -> None:
        import torch
        import torch.distributed as dist

        super().__init__(dist.get_rank(group), *state)
        self._torch, self._dist = torch, dist
        self._group, self._fast, self._patience = group, fast, patience
        self._device = torch.device("cpu" if fast is None else "cuda")
        self._leaving: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @classmethod
    def world(cls, group: Any, fast: Any, patience: timedelta) -> TorchTransport:
        """All ranks of a group."""
        import torch.distributed as dist

        counters = Counters(dist.get_rank(group), dist.get_world_size(group), time.perf_counter())
        ranks = range(dist.get_world_size(group))
        return cls(group, fast, patience, ranks, counters, {"waits_for": ALL})

    def _send(self, data: np.ndarray, destination: int, channel: int) -> None:
        with self._losses():
            tensor = self._torch.from_numpy(data)
            work = self._dist.isend(tensor, group=self._group, group_dst=destination, tag=channel)
        self._leaving.put((work, data))

    def _receive(self, data: np.ndarray, source: int, channel: int) -> None:
        with self._losses():
            tensor = self._torch.from_numpy(data)
            self._dist.recv(tensor, group=self._group, group_src=source, tag=channel)

    def _part(self, members: list[int], color: int) -> TorchTransport:
        ranks = [self.members[member] for member in members]

        def part(group: Any, backend: str) -> Any:
            everybody = self._dist.get_process_group_ranks(group)
            return self._dist.new_group(
                [everybody[member] for member in members],
                timeout=self._patience,
                backend=backend,
                use_local_synchronization=True,
                sort_ranks=False,
            )

        with self._losses():
            fast = None if self._fast is None else part(self._fast, "nccl")
            group = part(self._group, "gloo")
        return TorchTransport(group, fast, self._patience, ranks, self.counters, self.doing)

    def close(self) -> None:
        super().close()
        self._leaving.put(None)
        self._keeper.join()
        for group in filter(None, (self._group, self._fast)):
            self._dist.destroy_process_group(group)

    def abort(self) -> None:
        """Leave at once, so that the others notice."""
        self._dist.distributed_c10d._abort_process_group(self._group)

    def adds(self, dtype: np.dtype) -> bool:
        return dtype.isnative and dtype.char in DTYPES

    def library_all_reduce(self, array: np.ndarray) -> np.ndarray:
        total = self._there(array.copy())
        with self._losses():
            self._dist.all_reduce(total, group=self._fast or self._group)
        return total.cpu().numpy()

    def library_reduce_scatter(self, array: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        start, stop = bounds[self.rank : self.rank + 2]
        sizes = np.diff(bounds)
        if self._fast is None or (sizes != sizes[0]).any():  # NCCL's wants equal parts
            return self.library_all_reduce(array)[start:stop].copy()
        there = self._there(array)
        total = self._torch.empty(int(sizes[0]), dtype=there.dtype, device=self._device)
        with self._losses():
            self._dist.reduce_scatter_tensor(total, there, group=self._fast)
        return total.cpu().numpy()

    def library_all_gather(self, data: np.ndarray) -> np.ndarray:
        together = self._there(np.empty(data.size * self.size, np.uint8))
        parts = list(together.chunk(self.size))
        with self._losses():
            self._dist.all_gather(parts, self._there(data), group=self._fast or self._group)
        return together.cpu().numpy()

    def library_all_to_all(
        self, data: np.ndarray, sent: list[int], received: list[int]
    ) -> np.ndarray:
        together = self._there(np.empty(sum(received), np.uint8))
        group = self._fast or self._group
        with self._losses():
            self._dist.all_to_all_single(together, self._there(data), received, sent, group=group)
        return together.cpu().numpy()

    def library_broadcast(self, data: np.ndarray, root: int) -> None:
        there = self._there(data)
        with self._losses():
            self._dist.broadcast(there, group=self._fast or self._group, group_src=root)
        if self._device.type != "cpu":
            data[...] = there.cpu().numpy()

    def _there(self, array: np.ndarray) -> Any:
        return self._torch.from_numpy(array).to(self._device)

    def _keep(self) -> None:
        """Keep what is being sent until it has been: gloo tells only those who wait."""
        while (entry := self._leaving.get()) is not None:
            with contextlib.suppress(RuntimeError):  # whoever waits for that rank will hear of it
                entry[0].wait()

    @contextlib.contextmanager
    def _losses(self) -> Any:
        try:
            yield
        except RuntimeError as error:
            raise Lost(self.members[self.rank], str(error).splitlines()[0]) from None
