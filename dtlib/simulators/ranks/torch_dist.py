"""Engine "torch": the ranks are the processes of a torch.distributed group, on one machine or many.

In a notebook or a plain process ``run(program, ranks=4, engine="torch")`` starts them on this
machine for the run. A script that was itself started by ``torchrun`` runs the program on the ranks
that there are, however many ``ranks`` it asks for, and has the result on each of them. That is how
to use more than one machine, without changing the script; say this on both, with the address of the
first one, and 0 and 1 as the rank of the node::

    pip install torch                 # the same on every machine, and the script and dtlib too
    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr 10.0.0.1 --master-port 29500
    script.py

If the machines have several networks, ``GLOO_SOCKET_IFNAME`` and ``NCCL_SOCKET_IFNAME`` name the
one to use.

Messages and schedules always travel through gloo. So do the library's own collectives, unless every
rank has a GPU to itself: then they are NCCL's, on copies of the arrays in the memory of the GPU. A
``reduce_scatter`` of gloo is an all-reduce of which each rank keeps its part. It is done openly
here; to time it teaches the cost of an all-reduce.

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
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from dtlib.network import Network
from dtlib.simulators.ranks.launch import launch, serve
from dtlib.simulators.ranks.member import check, fail, join, perform
from dtlib.simulators.ranks.messages import Lost
from dtlib.simulators.ranks.result import Result

__all__ = ["TorchLink", "main", "run"]

START = "from dtlib.simulators.ranks.torch_dist import main; main()"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
MEET_S = 60.0  # for all ranks to be there
TOLD_S = 2.0  # for a rank that failed to say so, once another has lost it
DTYPES = "bBilqefdFD"


def run(
    program: Callable[..., Any],
    ranks: int,
    args: Iterable[Any],
    network: Network | None,
    deadline_s: float | None,
) -> Result:
    """Run ``program(comm, *args)`` under torch.distributed; see above."""
    check("torch", "torch", program, network, deadline_s)
    if (
        "TORCHELASTIC_RUN_ID" not in os.environ
        and not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
    ):
        commands = [
            (
                [sys.executable, "-P", "-c", START],
                {"RANK": str(rank), "WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": LOOPBACK},
            )
            for rank in range(ranks)
        ]
        return launch(commands, ranks, program, args, deadline_s)
    return _run_here(program, tuple(args), deadline_s)


def main() -> None:
    """Be a rank that ``run`` started."""
    serve(int(os.environ["RANK"]), _connect, os._exit)


def _connect(directory: Path, deadline_s: float | None) -> TorchLink:
    """Meet the others at a store that rank 0 opens, on a port that is free."""
    import torch.distributed as dist

    rank, ranks, place = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), directory / "port"
    limit = timedelta(seconds=MEET_S)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, ranks, True, limit, wait_for_workers=False)
        new = place.with_name("port.new")
        new.write_text(str(store.port))
        new.replace(place)
    else:
        until = time.monotonic() + MEET_S
        while not place.exists():
            if time.monotonic() > until:
                raise TimeoutError(f"rank 0 has opened no store within {MEET_S:g} s")
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(place.read_text()), ranks, False, limit)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=ranks, timeout=_patience(deadline_s)
    )
    return TorchLink(dist.group.WORLD, None, _patience(deadline_s))


def _run_here(program: Callable[..., Any], args: tuple, deadline_s: float | None) -> Result:
    import torch.distributed as dist

    start_s = time.perf_counter()
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=MEET_S))
    store = dist.distributed_c10d._get_default_store()
    link = TorchLink.world(_patience(deadline_s))
    failure = f"dtlib.failure.{link.name}"

    def late(report: dict[str, Any]) -> None:
        print(fail(report), file=sys.stderr, flush=True)
        os._exit(1)

    world, report = perform(link, program, args, deadline_s, late)
    if report["end"] == "returned":
        return join(world, report, start_s)
    if report["end"] == "lost":
        with contextlib.suppress(dist.DistStoreError, dist.DistNetworkError):
            store.wait([failure], timedelta(seconds=TOLD_S))
            report = pickle.loads(store.get(failure))
    else:
        store.set(
            failure,
            pickle.dumps(
                {
                    key: report[key]
                    for key in ("end", "rank", "cause", "exit_code", "frames", "text")
                }
            ),
        )
    link.abort()
    raise fail(report)


def _patience(deadline_s: float | None) -> timedelta:
    """How long to wait for others: longer than the run may take, so that the deadline of the run
    comes first.
    """
    return timedelta(days=365) if deadline_s is None else timedelta(seconds=deadline_s + MEET_S)


class TorchLink:
    """The processes of a gloo ``group``; ``fast`` is the same group in NCCL, if every rank has a
    GPU to itself.
    """

    def __init__(self, group: Any, fast: Any, patience: timedelta) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist, self._group, self._patience = torch, dist, group, patience
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.name = group.group_name
        self._fast = group if fast is None else fast
        self._device = torch.device("cpu" if fast is None else "cuda")
        self._leaving: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @classmethod
    def world(cls, patience: timedelta) -> TorchLink:
        """All ranks; apart from what else the program does with torch.distributed."""
        import torch
        import torch.distributed as dist

        local = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        fast = None
        if dist.is_nccl_available() and torch.cuda.device_count() >= local[1]:
            torch.cuda.set_device(local[0])
            fast = dist.new_group(backend="nccl", timeout=patience)
        return cls(dist.new_group(backend="gloo", timeout=patience), fast, patience)

    def send(self, data: np.ndarray, destination: int, channel: int) -> Any:
        return self._begin(self._dist.isend, data, channel, group_dst=destination)

    def receive(self, data: np.ndarray, source: int, channel: int) -> Any:
        return self._begin(self._dist.irecv, data, channel, group_src=source)

    def wait(self, pending: Any) -> None:
        with self._losses():
            pending.wait()

    def post(self, data: np.ndarray, destination: int, channel: int) -> None:
        self._leaving.put((self.send(data, destination, channel), data))

    def split(self, color: int, members: list[int]) -> TorchLink:
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
            fast = None if self._fast is self._group else part(self._fast, "nccl")
            return TorchLink(part(self._group, "gloo"), fast, self._patience)

    def close(self) -> None:
        self._leaving.put(None)
        self._keeper.join()
        for group in {self._group, self._fast}:
            self._dist.destroy_process_group(group)

    def abort(self) -> None:
        """Leave at once, so that the others notice."""
        self._dist.distributed_c10d._abort_process_group(self._group)

    def adds(self, dtype: np.dtype) -> bool:
        return dtype.isnative and dtype.char in DTYPES

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        total = self._there(array.copy())
        with self._losses():
            self._dist.all_reduce(total, group=self._fast)
        return total.cpu().numpy()

    def reduce_scatter(self, array: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        start, stop = bounds[self.rank : self.rank + 2]
        return self.all_reduce(array)[start:stop].copy()

    def all_gather(self, data: np.ndarray) -> np.ndarray:
        together = self._there(np.empty(data.size * self.size, np.uint8))
        with self._losses():
            self._dist.all_gather(
                list(together.chunk(self.size)), self._there(data), group=self._fast
            )
        return together.cpu().numpy()

    def all_to_all(self, data: np.ndarray, sent: list[int], received: list[int]) -> np.ndarray:
        together = self._there(np.empty(sum(received), np.uint8))
        with self._losses():
            self._dist.all_to_all_single(
                together, self._there(data), received, sent, group=self._fast
            )
        return together.cpu().numpy()

    def broadcast(self, data: np.ndarray, root: int) -> None:
        there = self._there(data)
        with self._losses():
            self._dist.broadcast(there, group=self._fast, group_src=root)
        if self._device.type != "cpu":
            data[...] = there.cpu().numpy()

    def _begin(
        self, transfer: Callable[..., Any], data: np.ndarray, channel: int, **peer: int
    ) -> Any:
        with self._losses():
            return transfer(self._torch.from_numpy(data), group=self._group, tag=channel, **peer)

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
            raise Lost(str(error).splitlines()[0]) from None
