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

from dtlib.simulators.ranks import Cluster, RankError, run, shutdown

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
        "returned without having received 1 message.* rank 1 with tag 0 and 80 bytes",
    ),
    (unpicklable, 2, None, "returned something that cannot be pickled"),
]


@pytest.mark.parametrize(
    ("program", "rank", "exit_code", "message"),
    FAULTS,
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_ends_the_run_within_a_second(program, rank, exit_code, message):
    with Cluster(4) as cluster:
        cluster.run(lambda comm: None)
        start = time.perf_counter()
        with pytest.raises(RankError, match=message) as caught:
            cluster.run(program)
        assert time.perf_counter() - start < 3
        assert (caught.value.rank, caught.value.exit_code) == (rank, exit_code)
        assert "dtlib" not in caught.value.traceback
        assert list(cluster.run(lambda comm: int(comm.all_reduce(np.array(comm.rank))))) == [6] * 4


@pytest.mark.parametrize("busy", ["python", "sleep", "numpy"])
def test_a_rank_that_hangs_is_named_with_the_line_it_hangs_in(busy):
    def hangs(comm):
        if comm.rank == 1:
            while busy == "python":
                pass
            if busy == "sleep":
                time.sleep(100)
            np.linalg.svd(np.ones((4000, 4000)))
        comm.barrier()

    with Cluster(2) as cluster:
        cluster.run(lambda comm: None)
        start = time.perf_counter()
        with pytest.raises(
            RankError, match=r"rank 1 did not finish within 0.5 s .*rank 0 waited(.|\n)*in hangs"
        ) as caught:
            cluster.run(hangs, deadline_s=0.5)
        assert time.perf_counter() - start < 4
        assert caught.value.rank == 1


def test_a_rank_that_is_stopped_is_late():
    with Cluster(2) as cluster:
        cluster.run(lambda comm: None)
        with pytest.raises(RankError, match="rank 1 did not finish within 0.5 s"):
            cluster.run(
                lambda comm: os.kill(os.getpid(), signal.SIGSTOP) if comm.rank else comm.barrier(),
                deadline_s=0.5,
            )


def test_a_rank_that_stops_while_it_reports_is_late():
    def program(comm):
        if comm.rank == 1:
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGSTOP]).start()
            return Slow()

    with Cluster(2) as cluster, pytest.raises(RankError, match="did not finish within 1 s"):
        cluster.run(program, deadline_s=1)


class Slow:
    """Its caller is busy with it for longer than the deadline."""

    def __reduce__(self):
        time.sleep(0.5)
        return Slow, ()


def test_all_others_hear_of_a_dead_rank_within_50_ms_and_which_one_it_was():
    def program(comm):
        dies_s = float(comm.broadcast(np.array(time.perf_counter() + 0.2), root=2))
        if comm.rank == 2:
            time.sleep(max(0, dies_s - time.perf_counter()))
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            comm.barrier()
        except RankError as error:
            return time.perf_counter() - dies_s, error.rank, error.exit_code

    def attempt():
        with Cluster(4) as cluster, pytest.raises(RankError) as caught:
            cluster.run(program)
        heard = [result for result in caught.value.results if result]
        assert len(heard) == 3
        assert caught.value.exit_code == -9
        assert all(entry[1:] == (2, -9) for entry in heard)
        return max(entry[0] for entry in heard)

    assert min(attempt() for _ in range(10)) < 0.05


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


def test_a_worker_killed_between_runs_is_replaced_at_the_next():
    pids = run(lambda comm: os.getpid(), ranks=2)
    os.kill(pids[1], signal.SIGKILL)
    time.sleep(0.05)
    assert pids[0] not in list(run(lambda comm: os.getpid(), ranks=2))


def test_an_interrupt_ends_the_run_and_the_next_one_works(interruptible):
    def sleeps(comm):
        time.sleep(30)

    with Cluster(2) as cluster:
        for delay_s in (0.05, 0.3):
            timer = threading.Timer(delay_s, signal.raise_signal, [signal.SIGINT])
            start = time.perf_counter()
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                cluster.run(sleeps)
            timer.join()
            assert time.perf_counter() - start < 4
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]


def test_a_run_from_within_a_run_is_refused_and_the_outer_one_goes_on():
    heard = []

    def handler(*_):
        try:
            cluster.run(lambda comm: comm.rank)
        except RuntimeError as error:
            heard.append(str(error))

    before = signal.signal(signal.SIGUSR2, handler)
    try:
        with Cluster(2) as cluster:
            timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGUSR2])
            timer.start()
            assert list(cluster.run(lambda comm: time.sleep(0.6) or comm.rank)) == [0, 1]
            timer.join()
            assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert heard == [
        "this Cluster is in the middle of a run: one that a signal handler starts needs its own"
    ]


# An interrupt that falls into an object's finalizer is printed by Python and lost, whatever the
# code around it does.
IN_FINALIZERS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@contextlib.contextmanager
def interrupted_after(delay_s: float):
    """An alarm that interrupts whatever the main thread does by then."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, delay_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@IN_FINALIZERS
def test_a_close_that_is_interrupted_can_be_repeated():
    interrupted = 0
    for attempt in range(20):
        cluster = Cluster(2)
        cluster.run(lambda comm: comm.rank)
        try:
            with interrupted_after(0.0003 + 0.0002 * attempt):
                cluster.close()
                time.sleep(0.02)
        except KeyboardInterrupt:
            interrupted += 1
        cluster.close()
    assert interrupted > 10


@IN_FINALIZERS
def test_a_start_that_is_interrupted_leaves_nothing(interruptible):
    for attempt in range(30):
        timer = threading.Timer(0.0005 + 0.0007 * attempt, signal.raise_signal, [signal.SIGINT])
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            try:
                Cluster(4).close()
                time.sleep(0.1)
            finally:
                timer.join()


@pytest.mark.parametrize("by", ["another thread", "a handler"])
def test_a_cluster_closed_in_the_middle_of_a_run_says_so(by):
    cluster = Cluster(3)
    close = cluster.close
    before = signal.signal(signal.SIGUSR2, lambda *_: close())
    timer = threading.Timer(
        0.2, close if by == "another thread" else lambda: os.kill(os.getpid(), signal.SIGUSR2)
    )
    try:
        timer.start()
        with pytest.raises(RuntimeError, match="this Cluster was closed in the middle of a run"):
            cluster.run(lambda comm: time.sleep(20))
        timer.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
    with pytest.raises(RuntimeError, match="this Cluster is closed"):
        cluster.run(lambda comm: comm.rank)


def test_runs_of_other_sizes_within_a_run_do_not_end_it():
    results = []
    before = signal.signal(
        signal.SIGUSR2,
        lambda *_: results.extend(list(run(lambda comm: comm.size, n)) for n in (1, 2, 3, 5)),
    )
    try:
        timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGUSR2])
        timer.start()
        assert list(run(lambda comm: time.sleep(1.5) or comm.rank, 4)) == [0, 1, 2, 3]
        timer.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert results == [[n] * n for n in (1, 2, 3, 5)]


def test_a_fork_in_the_middle_of_a_run_can_close_its_copy():
    with Cluster(2) as cluster:
        running = threading.Thread(target=cluster.run, args=(lambda comm: time.sleep(0.8),))
        running.start()
        time.sleep(0.3)
        child = os.fork()
        if not child:
            cluster.close()
            os._exit(0)
        until = time.monotonic() + 5
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        assert ended[1] == 0
        running.join()
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]


def test_a_close_while_new_processes_start_ends_the_run():
    cluster = Cluster(2)
    with pytest.raises(RankError):
        cluster.run(lambda comm: 1 / 0)
    timer = threading.Timer(0.02, cluster.close)
    timer.start()
    start = time.perf_counter()
    with pytest.raises(RuntimeError, match="closed"):
        cluster.run(lambda comm: time.sleep(20))
    timer.join()
    assert time.perf_counter() - start < 10


def test_a_shutdown_ends_the_run_of_another_thread():
    errors = []

    def runs():
        try:
            run(lambda comm: time.sleep(20), 2)
        except RuntimeError as error:
            errors.append(str(error))

    running = threading.Thread(target=runs)
    running.start()
    time.sleep(0.6)
    assert list(run(lambda comm: comm.size, 3)) == [3] * 3  # another size does not wait
    shutdown()
    running.join(5)
    assert errors == ["this Cluster was closed in the middle of a run"]


def test_a_sum_and_a_mean_disagree_on_any_algorithm():
    for algorithm in ("fastest", "ring"):
        with pytest.raises(RankError, match=r"rank 1 called all_reduce\(sum"):
            run(
                lambda comm, algorithm: comm.all_reduce(
                    np.ones(8), "mean" if comm.rank != 1 else "sum", algorithm
                ),
                4,
                args=[algorithm],
            )


def test_nothing_of_an_earlier_run_matches():
    def first(comm):
        twin = comm.split(0)
        comm.all_reduce(np.array([1.0]))
        twin.all_reduce(np.array([100.0]))

    def second(comm):
        twin = comm.split(0)
        one, two = (comm, twin) if comm.rank == 0 else (twin, comm)
        one.all_reduce(np.array([1.0]))
        two.all_reduce(np.array([7.0]))

    with Cluster(3) as cluster:
        cluster.run(first)
        with pytest.raises(RankError, match="another communicator"):
            cluster.run(second)


def test_calls_on_different_communicators_do_not_match():
    def program(comm):
        twin, array = comm.split(0), np.full(1, comm.rank + 1.0)
        for _ in range(2):
            twin.all_reduce(array)
            comm.all_reduce(array)
        first, second = (comm, twin) if comm.rank == 0 else (twin, comm)
        return first.all_reduce(array), second.all_reduce(array)

    with pytest.raises(RankError, match="called something on another communicator"):
        run(program, 2)


def test_a_communicator_ends_with_its_run():
    def keeps(comm):
        import builtins

        builtins.kept = comm.split(comm.rank % 2)

    def uses(comm, how):
        import builtins

        array = comm.empty(50_000)
        array[...] = 5
        with contextlib.suppress(RuntimeError):
            getattr(builtins.kept, how)(
                *{"all_reduce": (np.ones(10),), "send": (1, 0), "recv": (0,), "barrier": ()}[how]
            )
            return "went on"
        return set(array.tolist())

    with Cluster(4) as cluster:
        cluster.run(keeps)
        for how in ("all_reduce", "send", "recv"):
            assert list(cluster.run(uses, (how,))) == [{5.0}] * 4


def test_ranks_do_not_outlive_a_caller_that_is_killed():
    program = textwrap.dedent("""
        import os, time
        from dtlib.simulators.ranks import run
        print(*run(lambda comm: os.getpid(), ranks=2), flush=True)
        run(lambda comm: time.sleep(100) if comm.rank else comm.barrier(), ranks=2)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as caller:
        pids = [int(pid) for pid in caller.stdout.readline().split()]
        time.sleep(0.2)
        caller.kill()
    until = time.perf_counter() + 5
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.perf_counter() < until
        time.sleep(0.01)


def gone(pids: list[int]) -> bool:
    """Whether these processes end within 5 s (one that nobody has waited for yet counts as ended)."""

    def lives(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    until = time.perf_counter() + 5
    while any(map(lives, pids)) and time.perf_counter() < until:
        time.sleep(0.01)
    return not any(map(lives, pids))


def pids_of_a_killed_caller(program: str) -> list[int]:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as caller:
        pids = [int(pid) for pid in caller.stdout.readline().split()]
        time.sleep(0.4)
        caller.kill()
    return pids


@pytest.mark.skipif(sys.platform != "linux", reason="needs signals on behalf of pipes")
def test_ranks_that_no_thread_can_stop_do_not_outlive_a_caller_that_is_killed():
    pids = pids_of_a_killed_caller("""
        import os, re, subprocess
        from dtlib.simulators.ranks import run
        def child(comm):
            return subprocess.Popen(["sleep", "77"]).pid
        print(*run(lambda comm: os.getpid(), ranks=2), *run(child, ranks=2), flush=True)
        run(lambda comm: re.match(r"(a+)+$", "a" * 60 + "b"), ranks=2)
    """)
    assert len(pids) == 4
    assert gone(pids)


def test_ranks_do_not_outlive_their_caller_though_a_process_forked_from_it_does():
    pids = pids_of_a_killed_caller("""
        import os, sys, time
        from dtlib.simulators.ranks import run
        pids = run(lambda comm: os.getpid(), ranks=2)
        if not (child := os.fork()):
            os.close(1)
            time.sleep(100)
        print(*pids, child, flush=True)
        time.sleep(100)
    """)
    forked = pids.pop()
    try:
        assert gone(pids)
        os.kill(forked, 0)
    finally:
        os.kill(forked, signal.SIGKILL)


def test_what_ranks_have_started_ends_with_them():
    pids = list(run(lambda comm: subprocess.Popen(["sleep", "77"]).pid, ranks=2))
    shutdown()
    assert gone(pids)


def test_a_dead_rank_is_noticed_though_a_process_it_has_started_holds_its_connection():
    def program(comm):
        if comm.rank == 1:
            if not os.fork():
                time.sleep(60)
            os._exit(5)
        comm.barrier()

    start = time.perf_counter()
    with Cluster(2) as cluster, pytest.raises(RankError, match="rank 1 exited .* code 5") as caught:
        cluster.run(program)
    assert caught.value.exit_code == 5
    assert time.perf_counter() - start < 5


def test_a_directory_that_is_gone_is_no_fault(tmp_path, monkeypatch):
    (tmp_path / "doomed").mkdir()
    with Cluster(2) as cluster:
        monkeypatch.chdir(tmp_path / "doomed")
        cluster.run(lambda comm: None)
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


def test_a_forked_process_has_clusters_of_its_own_though_a_thread_was_in_the_middle_of_a_run():
    program = textwrap.dedent("""
        import os, threading, time
        from dtlib.simulators.ranks import run
        run(lambda comm: None, ranks=2)
        thread = threading.Thread(target=run, args=(lambda comm: time.sleep(1), 2))
        thread.start()
        time.sleep(0.3)
        child = os.fork()
        if not child:
            print(list(run(lambda comm: comm.rank, ranks=2)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        thread.join()
        print(list(run(lambda comm: comm.rank, ranks=2)))
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "[0, 1]\n[0, 1]\n"


class Bomb:
    def __reduce__(self):
        return eval, ("1/0",)


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


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            lambda comm: Bomb() if comm.rank else None,
            "rank 1 returned something that cannot be unpickled(.|\n)*ZeroDivisionError",
        ),
        (raises_unprintable, "rank 1 raised Unprintable"),
        (raises_at_length, "rank 1 raised ValueError: \N{SNOWMAN}"),
    ],
    ids=["unpickled", "unprintable", "long"],
)
def test_a_rank_whose_report_is_a_fault_itself_is_named(program, message):
    with Cluster(2) as cluster:
        with pytest.raises(RankError, match=message) as caught:
            cluster.run(program)
        assert len(str(caught.value)) < 10_000
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1]


def test_a_program_may_close_what_it_prints_to():
    def program(comm):
        if comm.rank:
            sys.stdout.close()
        else:
            sys.stdout = None
        return comm.rank

    with Cluster(2) as cluster:
        assert list(cluster.run(program)) == [0, 1]


def test_what_is_printed_need_not_be_in_the_callers_encoding():
    program = "from dtlib.simulators.ranks import run; run(lambda comm: print('\\xfc'), ranks=2)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout == "\\xfc\n" * 2


def test_a_deadline_may_be_as_late_as_one_likes():
    assert list(run(lambda comm: comm.rank, ranks=2, deadline_s=1e10)) == [0, 1]


def test_ranks_whose_other_threads_keep_them_from_waking_are_not_stuck():
    def program(comm):
        if comm.rank == 0:
            import ctypes  # it holds the interpreter's lock, unlike time.sleep

            thread = threading.Thread(target=lambda: (time.sleep(0.2), ctypes.PyDLL(None).sleep(2)))
            thread.start()
            comm.send(comm.recv(1) + 1, 1)
            thread.join()
            return None
        time.sleep(0.4)
        comm.send(1, 0)
        return comm.recv(0)

    assert list(run(program, ranks=2)) == [None, 2]


def test_two_threads_may_use_one_cluster():
    outcomes = []

    def work(cluster, number):
        outcomes.extend(
            list(cluster.run(lambda comm: number * 10 + comm.rank))
            == [number * 10, number * 10 + 1]
            for _ in range(20)
        )

    with Cluster(2) as cluster:
        threads = [threading.Thread(target=work, args=(cluster, number)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == [True] * 60


def test_a_caller_may_have_threads_and_end_without_a_word():
    program = textwrap.dedent("""
        import threading, time
        threading.Thread(target=time.sleep, args=(0.5,)).start()
        from dtlib.simulators.ranks import run
        print(list(run(lambda comm: int(comm.all_reduce(1)), ranks=3)))
    """)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[3, 3, 3]\n", "", 0)


def test_runs_from_several_threads_take_turns():
    outcomes = []

    def work(number):
        outcomes.append(
            list(run(lambda comm: number * 10 + comm.rank, ranks=2))
            == [number * 10, number * 10 + 1]
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 5


@pytest.mark.slow
def test_two_hundred_random_faults_in_a_row_leak_nothing():
    dice = random.Random(0)
    with Cluster(4) as cluster:
        cluster.run(lambda comm: None)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(200):
            program, rank, exit_code, _ = dice.choice(FAULTS)
            with pytest.raises(RankError) as caught:
                cluster.run(program)
            assert (caught.value.rank, caught.value.exit_code) == (rank, exit_code), program
        assert list(cluster.run(lambda comm: comm.rank)) == [0, 1, 2, 3]
        assert len(os.listdir("/proc/self/fd")) == before
