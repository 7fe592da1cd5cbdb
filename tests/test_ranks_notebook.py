"""Real ranks from where learners use them: a notebook's kernel. And imports where there are no
processes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dtlib.ranks import Cluster

ROOT = Path(__file__).parents[1]


class Kernel:
    """A notebook's kernel, and what its cells print or raise."""

    def __init__(self, client, manager) -> None:
        self.client, self.manager = client, manager

    def cell(self, source: str, while_it_runs=lambda: None) -> str:
        text = []
        message = self.client.execute(textwrap.dedent(source))
        while_it_runs()
        while True:
            reply = self.client.get_iopub_msg(timeout=60)
            if reply["parent_header"].get("msg_id") != message:
                continue
            content = reply["content"]
            if reply["msg_type"] == "stream":
                text.append(content["text"])
            if reply["msg_type"] == "error":
                text.append("\n".join(content["traceback"]))
            if reply["msg_type"] == "status" and content["execution_state"] == "idle":
                return re.sub(r"\x1b\[[0-9;]*m", "", "".join(text))


@pytest.fixture(scope="module")
def kernel():
    jupyter_client = pytest.importorskip("jupyter_client")
    pytest.importorskip("ipykernel")
    manager, client = jupyter_client.manager.start_new_kernel(cwd=ROOT)
    yield Kernel(client, manager)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_functions_typed_into_cells_run_on_real_ranks(kernel):
    kernel.cell("""
        import os, time
        import numpy as np
        from dtlib.ranks import Cluster, RankError, run
    """)
    assert (
        kernel.cell("""
        def total(comm):
            return sum(comm.all_gather(np.array([helper(comm.rank)])).tolist())

        def helper(rank):
            print("rank", rank)
            return 10 ** rank
    """)
        == ""
    )
    assert (
        kernel.cell("print(list(run(total)))")
        == "rank 0\nrank 1\nrank 2\nrank 3\n[1111, 1111, 1111, 1111]\n"
    )
    kernel.cell("def helper(rank): return 2 * rank")
    assert kernel.cell("print(list(run(total)))") == "[12, 12, 12, 12]\n"

    shown = kernel.cell("""
        def broken(comm):
            comm.barrier()
            if comm.rank == 2:
                unknown_name  # this line
            comm.barrier()
        run(broken)
    """)
    assert "RankError: rank 2 raised NameError" in shown
    assert "    unknown_name  # this line" in shown[shown.index("On rank 2") :]

    def interrupt():
        time.sleep(1)
        kernel.manager.interrupt_kernel()

    start = time.perf_counter()
    shown = kernel.cell("run(lambda comm: time.sleep(60))", interrupt)
    assert "KeyboardInterrupt" in shown
    assert time.perf_counter() - start < 3
    assert kernel.cell("print(list(run(total)))") == "[12, 12, 12, 12]\n"


def printed_by(script: str, tmp_path: Path) -> str:
    """What a script prints, errors too; its functions and classes are those of no module."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("engine", ["local", "mpi"])
def test_a_class_of_the_caller_is_not_changed_by_what_comes_back(tmp_path, engine):
    script = f"""
        from dtlib.ranks import run

        class Step:
            size = 1

            def scaled(self):
                return factor * self.size

        def program(comm):
            Step.size = 5 + comm.rank
            received = comm.sendrecv(Step(), 1 - comm.rank, 1 - comm.rank)
            return Step(), type(received) is Step, Step.size, received.scaled()

        factor = 10
        for expected in (1, 2):
            Step.size = expected
            results = list(run(program, ranks=2, engine={engine!r}))
            print(Step.size, [type(step) is Step for step, *_ in results], [r[1:] for r in results])
        factor = 100
        print([step.scaled() for step, *_ in results])
    """
    told = "[True, True] [(True, 5, 50), (True, 6, 60)]"
    assert printed_by(script, tmp_path) == f"1 {told}\n2 {told}\n[200, 200]\n"


def test_a_class_of_a_rank_stays_one_class(tmp_path):
    """Rank 0 makes a class and sends it to and fro: it comes home as what it is."""
    script = """
        from dtlib.ranks import run

        def program(comm):
            if comm.rank == 0:
                class Local:
                    count = 1
                comm.send(Local(), 1)
                Local.count = 2
                back = comm.recv(1)
                return type(back) is Local, Local.count
            received = comm.recv(0)
            type(received).count = 3
            comm.send(received, 0)
            return type(received).count

        print(list(run(program, ranks=2)))
    """
    assert printed_by(script, tmp_path) == "[(True, 2), 3]\n"


def test_imports_without_processes_and_says_at_use_what_is_missing():
    program = textwrap.dedent("""
        import os, sys
        for missing in ("multiprocessing", "_posixsubprocess", "fcntl", "termios", "resource"):
            sys.modules[missing] = sys.modules["_multiprocessing"] = None
        for missing in ("fork", "memfd_create", "eventfd", "posix_spawn"):
            delattr(os, missing) if hasattr(os, missing) else None
        sys.platform = "emscripten"
        import dtlib
        from dtlib.ranks import Cluster, RankError, run
        try:
            run(lambda comm: None)
        except OSError as error:
            print(error)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "needs Linux or macOS, not emscripten" in done.stdout, done.stderr


def test_memory_without_memfd_is_a_file_without_a_name(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with Cluster(2, memory_bytes=2**24) as cluster:
        assert list(cluster.run(lambda comm: (print("x"), int(comm.all_reduce(comm.rank)))[1])) == [
            1,
            1,
        ]
        assert not [name for name in os.listdir("/tmp") if name.startswith("ranks-memory-")]
