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


def test_functions_of_the_main_module_run_on_real_ranks(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        from dtlib.ranks import run

        class Pair:
            def __init__(self, rank):
                self.rank = rank

        def program(comm):
            return comm.sendrecv(Pair(comm.rank), 1 - comm.rank, 1 - comm.rank)

        pairs = run(program, ranks=2)
        print([pair.rank for pair in pairs], all(type(pair) is Pair for pair in pairs))
    """)
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout, done.stderr) == ("[1, 0] True\n", "")


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
