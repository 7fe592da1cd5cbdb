"""Whatever happens to a rank: the run ends everywhere, the error says what happened, nothing is
left, and the next run works.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from dtlib.ranks import Cluster, RankError, run, shutdown

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ROOT = Path(__file__).parents[1]
LARGE = 2**20


def left_behind() -> tuple[list[str], list[str], list[str]]:
    """What a run could leave: children, open files, and named memory (psm_ is what multiprocessing
    calls it).
    """
    gc.collect()
    children = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "args="],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    files = [
        os.readlink(f"/proc/self/fd/{number}")
        for number in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{number}")
    ]
    named = [
        name
        for folder in ("/dev/shm", "/tmp")
        for name in os.listdir(folder)
        if name.startswith(("ranks-memory-", "psm_", "sem."))
    ]
    return [child for child in children if not child.startswith("ps ")], sorted(files), named


@pytest.fixture(autouse=True)
def nothing_left():
    shutdown()
    before = left_behind()
    yield
    shutdown()
    assert left_behind() == before


def killed(comm):
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def killed_while_others_compute(comm):
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def killed_in_a_large_all_reduce(comm):
    array = np.ones(LARGE)
    while True:
        comm.all_reduce(array)
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def exits(comm):
    if comm.rank == 1:
        sys.exit(3)
    comm.barrier()


def exits_hard(comm):
    if comm.rank == 1:
        os._exit(7)
    comm.all_reduce(np.ones(LARGE), algorithm="ring")


def exits_as_if_all_were_well(comm):
    if comm.rank == 1:
        os._exit(0)
    comm.all_gather(np.ones(LARGE))


def raises(comm):
    comm.barrier()
    if comm.rank == 3:
        return {}["a key"]
    return comm.recv(3)


def crashes(comm):
    if comm.rank == 1:
        import ctypes

        ctypes.string_at(0)
    comm.barrier()


def waits_in_a_circle(comm):
    return comm.recv((comm.rank + 1) % comm.size)


def skips_a_barrier(comm):
    if comm.rank != 1:
        comm.barrier()


def other_shape(comm):
    comm.all_reduce(np.ones(3 + (comm.rank == 2)))


def other_dtype(comm):
    comm.all_reduce(np.ones(LARGE, "f4" if comm.rank == 1 else "f8"), algorithm="ring")


def other_collective(comm):
    if comm.rank == 3:
        comm.all_gather(np.ones(3))
    comm.barrier()


def other_algorithm(comm):
    comm.all_reduce(np.ones(3), algorithm="ring" if comm.rank == 3 else "naive")


def message_nobody_wants(comm):
    if comm.rank == 1:
        comm.send(np.ones(10), 0)


def unpicklable(comm):
    return threading.Lock() if comm.rank == 2 else None


FAULTS = [
    (killed, 2, -9, "was killed by SIGKILL"),
    (killed_while_others_compute, 2, -9, "was killed by SIGKILL"),
    (killed_in_a_large_all_reduce, 2, -9, "was killed by SIGKILL"),
    (exits, 1, 3, r"called sys.exit\(3\)"),
    (exits_hard, 1, 7, r"exited in the middle of the run \(exit code 7\)"),
    (exits_as_if_all_were_well, 1, 0, "exited in the middle"),
    (
        raises,
        3,
        None,
        r"raised KeyError: 'a key'(.|\n)*line \d+, in raises\n.*return {}\[.a key.\]",
    ),
    (crashes, 1, -11, r"was killed by SIGSEGV(.|\n)*in crashes"),
    (
        waits_in_a_circle,
        0,
        None,
        r"waits for ever(.|\n)*rank 3 waited for rank 0(.|\n)*in waits_in_a_circle",
    ),
    (skips_a_barrier, 1, None, r"returned from the program, but rank 0 called barrier\(\)"),
    (
        other_shape,
        2,
        None,
        r"called all_reduce\(sum\) with shape \(4,\) and dtype float64, but rank 0 .* \(3,\)",
    ),
    (other_dtype, 1, None, "dtype float32, but rank 0 .* dtype float64"),
    (
        other_collective,
        3,
        None,
        r"called all_gather\(\) with shape \(3,\).*, but rank 0 called barrier\(\)",
    ),
    (other_algorithm, 3, None, "'ring'.*, but rank 0 .*'naive'"),
    (
        message_nobody_wants,
        0,
        None,
        "returned without having received 1 message from rank 1",
    ),
    (unpicklable, 2, None, "returned something that cannot be pickled"),
]


@pytest.mark.parametrize(
    ("program", "rank", "exit_code", "message"),
    FAULTS,
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_named_and_the_next_run_works(program, rank, exit_code, message):
    with Cluster(4) as cluster:
        with pytest.raises(RankError, match=message) as caught:
            cluster.run(program)
        assert (caught.value.rank, caught.value.exit_code) == (rank, exit_code)
        assert "dtlib" not in caught.value.traceback
        assert list(cluster.run(lambda comm: int(comm.all_reduce(comm.rank)))) == [6] * 4


@pytest.mark.parametrize("how", ["python", "sleep", "stopped"])
def test_a_rank_that_hangs_is_named_with_the_line_it_hangs_in(how):
    def hangs(comm):
        if comm.rank == 1:
            if how == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            while how == "python":
                pass
            time.sleep(100)
        comm.barrier()

    where = "" if how == "stopped" else r"(.|\n)*in hangs"
    message = r"rank 1 did not finish within 2 s .*rank 0 waited.*rank 1 was busy" + where
    with Cluster(2) as cluster:
        cluster.run(lambda comm: None)
        with pytest.raises(RankError, match=message) as caught:
            cluster.run(hangs, deadline_s=2)
    assert caught.value.rank == 1


class Slow:
    """Its caller's process is stopped while it is packed."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGSTOP)
        return Slow, ()


def test_a_rank_that_stops_while_it_reports_is_late():
    with Cluster(2) as cluster, pytest.raises(RankError, match="did not finish within 1 s"):
        cluster.run(lambda comm: Slow() if comm.rank == 1 else None, deadline_s=1)


def test_all_others_hear_which_rank_has_died_and_what_they_return_is_kept():
    def program(comm):
        try:
            killed(comm)
        except RankError as error:
            return error.rank, error.exit_code

    with Cluster(4) as cluster, pytest.raises(RankError) as caught:
        cluster.run(program)
    assert caught.value.results == [(2, -9), (2, -9), None, (2, -9)]


def test_a_rank_that_catches_the_error_and_goes_on_is_stopped_too():
    def stubborn(comm):
        if comm.rank == 0:
            raise ValueError("first")
        while True:
            with contextlib.suppress(RankError):
                comm.barrier()

    with Cluster(3) as cluster, pytest.raises(RankError, match="rank 0 raised ValueError: first"):
        cluster.run(stubborn)


def test_what_was_printed_before_the_fault_is_shown(capsys):
    def program(comm):
        print("here", comm.rank)
        comm.barrier()
        killed(comm)

    with Cluster(4) as cluster, pytest.raises(RankError):
        cluster.run(program)
    assert capsys.readouterr().out == "here 0\nhere 1\nhere 2\nhere 3\n"


def test_a_rank_killed_by_the_caller_is_not_said_to_lack_memory():
    with Cluster(2) as cluster:
        threading.Timer(0.3, cluster.kill, [1]).start()
        with pytest.raises(RankError, match="rank 1 was killed by SIGKILL") as caught:
            cluster.run(lambda comm: time.sleep(20))
        assert "memory" not in str(caught.value)
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]


def test_a_worker_killed_between_runs_is_replaced_at_the_next():
    pids = run(lambda comm: os.getpid(), ranks=2)
    os.kill(pids[1], signal.SIGKILL)
    assert gone([pids[1]])
    assert pids[0] not in list(run(lambda comm: os.getpid(), ranks=2))


def test_an_interrupt_ends_the_run_and_the_next_one_works(interruptible):
    with Cluster(2) as cluster:
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            cluster.run(lambda comm: time.sleep(30))
        timer.join()
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]


def test_a_cluster_closed_in_the_middle_of_a_run_says_so():
    cluster = Cluster(3)
    timer = threading.Timer(0.3, cluster.close)
    timer.start()
    with pytest.raises(RuntimeError, match="this Cluster was closed in the middle of a run"):
        cluster.run(lambda comm: time.sleep(20))
    timer.join()
    with pytest.raises(RuntimeError, match="this Cluster is closed"):
        cluster.run(lambda comm: comm.rank)


def test_a_communicator_ends_with_its_run():
    def keeps(comm):
        import builtins

        builtins.kept = comm.split(comm.rank % 2)

    def uses(comm, how, *args):
        import builtins

        array = comm.empty(50_000)
        array[...] = 5
        with contextlib.suppress(RuntimeError):
            getattr(builtins.kept, how)(*args)
            return "went on"
        return set(array.tolist())

    with Cluster(4) as cluster:
        cluster.run(keeps)
        for call in (("all_reduce", np.ones(10)), ("send", 1, 0), ("recv", 0), ("barrier",)):
            assert list(cluster.run(uses, call)) == [{5.0}] * 4, call


def test_calls_on_different_communicators_never_match():
    def program(comm):
        twin, array = comm.split(0), np.full(1, comm.rank + 1.0)
        first, second = (comm, twin) if comm.rank == 0 else (twin, comm)
        return first.all_reduce(array), second.all_reduce(array)

    with pytest.raises(RankError, match="waits for ever"):
        run(program, 2)


# A kept process is as good as a new one


def test_ranks_see_the_callers_environment_as_it_is_now(monkeypatch):
    with Cluster(2) as cluster:
        for value in ("one", "two"):
            monkeypatch.setenv("DTLIB_TEST", value)
            assert list(cluster.run(lambda comm: os.environ["DTLIB_TEST"])) == [value] * 2
        monkeypatch.delenv("DTLIB_TEST")
        assert list(cluster.run(lambda comm: "DTLIB_TEST" in os.environ)) == [False] * 2


@pytest.mark.parametrize("what", ["thread", "file", "stream"])
def test_what_a_program_leaves_behind_is_gone_at_the_next_run(what):
    def leaves(comm):
        import builtins

        if what == "thread":
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        elif what == "file":
            builtins.left = os.fdopen(os.dup(1))
        else:
            sys.stdout = None
        return os.getpid()

    def finds(comm):
        print("seen")
        return threading.active_count(), len(os.listdir("/dev/fd")), os.getpid()

    with Cluster(2) as cluster:
        clean = list(cluster.run(finds))
        pids = list(cluster.run(leaves))
        assert pids == [pid for *_, pid in clean]  # kept until then
        after = cluster.run(finds)
        assert [entry[:2] for entry in after] == [entry[:2] for entry in clean]
        assert after.output == ["seen\n"] * 2


def test_a_directory_that_is_gone_is_no_fault(tmp_path, monkeypatch):
    (tmp_path / "doomed").mkdir()
    with Cluster(2) as cluster:
        monkeypatch.chdir(tmp_path / "doomed")
        (tmp_path / "doomed").rmdir()
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]
        with Cluster(2) as another:
            assert list(another.run(lambda comm: comm.rank)) == [0, 1]
        monkeypatch.chdir(tmp_path)
        assert list(cluster.run(lambda comm: os.getcwd())) == [str(tmp_path)] * 2


def test_ranks_import_nothing_from_the_directory_of_their_caller(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    with Cluster(2) as cluster:
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]


# What comes back does not harm the caller


class Bomb:
    def __init__(self, code: str) -> None:
        self.code = code

    def __reduce__(self):
        return exec, (self.code,)


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no")


def raises_unprintable(comm):
    if comm.rank == 1:
        raise Unprintable
    comm.barrier()


def raises_at_length(comm):
    if comm.rank == 1:
        raise ValueError("\N{SNOWMAN}" * 10**6)
    comm.barrier()


CANNOT = "rank 1 returned what its caller cannot unpickle(.|\n)*"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda comm: Bomb("1 / 0") if comm.rank else None, CANNOT + "ZeroDivisionError"),
        (lambda comm: Bomb("raise SystemExit(0)") if comm.rank else None, CANNOT + "SystemExit"),
        (raises_unprintable, "rank 1 raised Unprintable"),
        (raises_at_length, "rank 1 raised ValueError: \N{SNOWMAN}"),
    ],
    ids=["unpickled", "exits", "unprintable", "long"],
)
def test_a_rank_whose_report_is_a_fault_itself_is_named(program, message):
    with Cluster(2) as cluster:
        with pytest.raises(RankError, match=message) as caught:
            cluster.run(program)
        assert len(str(caught.value)) < 10_000
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]


def in_a_process(program: str, limits: str = "", **environment: str) -> str:
    """What a program prints in a process of its own, and its errors, under a shell's ``limits``."""
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'{limits} exec "$0" -W error -c "$1"',
            sys.executable,
            textwrap.dedent(program),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    return done.stdout + done.stderr


def test_what_is_printed_need_not_be_in_the_callers_encoding():
    program = "from dtlib.ranks import run; run(lambda comm: print('\\xfc'), ranks=2)"
    assert in_a_process(program, PYTHONIOENCODING="ascii") == "\\xfc\n" * 2


def test_small_limits_are_enough_or_named():
    program = "from dtlib.ranks import run; print(run(lambda comm: comm.rank, ranks={}))"
    assert in_a_process(program.format(2), "ulimit -v 8000000;") == "[0, 1]\n"
    assert in_a_process(program.format(4), "ulimit -n 64;") == "[0, 1, 2, 3]\n"
    assert "16 ranks need 106 open files" in in_a_process(program.format(16), "ulimit -n 64;")
    too_much = "from dtlib.ranks import Cluster; Cluster(2, memory_bytes=2**45)"
    assert "pass a smaller memory_bytes" in in_a_process(too_much, "ulimit -v 8000000;")


def test_strict_numpy_and_warnings_change_nothing():
    program = """
        import numpy as np
        np.seterr(all="raise")
        from dtlib.ranks import run
        large = np.full(2, 6e4, np.float16)
        print(run(lambda comm: comm.all_reduce(large, "mean").tolist(), ranks=2))
    """
    assert in_a_process(program) == "[[60000.0, 60000.0], [60000.0, 60000.0]]\n"


# Callers that come and go


def gone(pids: list[int]) -> bool:
    """Whether these processes end in time (one that nobody has waited for yet has ended)."""

    def lives(pid):
        try:
            ended = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
            return not ended or len(os.listdir(f"/proc/{pid}/task")) > 1
        except (FileNotFoundError, ProcessLookupError):
            return False

    until = time.perf_counter() + 20
    while any(map(lives, pids)) and time.perf_counter() < until:
        time.sleep(0.01)
    return not any(map(lives, pids))


def test_ranks_do_not_outlive_a_caller_that_is_killed():
    program = textwrap.dedent("""
        import os, subprocess, time
        from dtlib.ranks import run
        child = lambda comm: subprocess.Popen(["sleep", "77"]).pid
        print(*run(lambda comm: os.getpid(), ranks=2), *run(child, ranks=2), flush=True)
        run(lambda comm: time.sleep(100) if comm.rank else comm.barrier(), ranks=2)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as caller:
        pids = [int(pid) for pid in caller.stdout.readline().split()]
        time.sleep(0.2)
        caller.kill()
    assert len(pids) == 4 and gone(pids)


def test_a_dead_rank_is_noticed_though_a_process_it_has_started_holds_its_connection():
    def program(comm):
        if comm.rank == 1:
            if not os.fork():
                time.sleep(60)
            os._exit(5)
        comm.barrier()

    with Cluster(2) as cluster, pytest.raises(RankError, match="rank 1 exited .* code 5") as caught:
        cluster.run(program)
    assert caught.value.exit_code == 5


def test_a_forked_process_has_clusters_of_its_own():
    program = """
        import os, sys
        from dtlib.ranks import run
        run(lambda comm: None, ranks=2)
        if not (child := os.fork()):
            print(list(run(lambda comm: comm.rank + 10, ranks=2)), flush=True)
            sys.exit()
        os.waitpid(child, 0)
        print(list(run(lambda comm: comm.rank, ranks=2)))
    """
    assert in_a_process(program) == "[10, 11]\n[0, 1]\n"


def test_a_fork_that_closes_its_copy_harms_nobody():
    with Cluster(2) as cluster:
        pids = list(cluster.run(lambda comm: os.getpid()))
        if not (child := os.fork()):
            cluster.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert list(cluster.run(lambda comm: os.getpid())) == pids


def test_a_failed_run_within_a_run_is_the_fault_of_the_rank_that_started_it():
    def program(comm):
        if comm.rank == 0:
            run(lambda inner: 1 / (1 - inner.rank), ranks=2)
        comm.barrier()

    with pytest.raises(RankError, match="rank 0 raised RankError: rank 1 raised ZeroDivision"):
        run(program, ranks=3)


def test_runs_from_several_threads_take_turns():
    outcomes = []

    def work(number):
        for _ in range(5):
            ranks = list(run(lambda comm: number * 10 + comm.rank, ranks=2))
            outcomes.append(ranks == [number * 10, number * 10 + 1])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 20


def test_a_deadline_may_be_as_late_as_one_likes():
    assert list(run(lambda comm: comm.rank, ranks=2, deadline_s=1e10)) == [0, 1]
    assert list(run(lambda comm: comm.rank, ranks=2, deadline_s=None)) == [0, 1]


def random_faults(number: int) -> None:
    """Many faults in a row on one cluster: each is named, and no open file is left."""
    dice = random.Random(0)
    with Cluster(4) as cluster:
        cluster.run(lambda comm: None)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(number):
            program, rank, exit_code, _ = dice.choice(FAULTS)
            with pytest.raises(RankError) as caught:
                cluster.run(program)
            assert (caught.value.rank, caught.value.exit_code) == (rank, exit_code), program
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1, 2, 3]
        assert len(os.listdir("/proc/self/fd")) == before


def test_random_faults_in_a_row_leak_nothing():
    random_faults(20)


@pytest.mark.soak
def test_two_hundred_random_faults_in_a_row_leak_nothing():
    random_faults(200)
