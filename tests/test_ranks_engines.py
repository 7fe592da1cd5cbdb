"""The same program on processes of this machine, under MPI and under torch.distributed; and on two
hosts.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from dtlib.network import Network, Tier
from dtlib.ranks import RankError, run
from dtlib.ranks.distributed import mpi
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.execute import execute

if sys.platform == "win32":
    pytest.skip("real ranks need Linux or macOS", allow_module_level=True)

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ROOT = Path(__file__).parents[1]
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
# MPI is always tested: requirements.txt has it. torch is not in there, since it alone is larger
# than all the rest.
torch = pytest.param(
    "torch",
    marks=pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is optional, and not installed"
    ),
)
ENGINES = ["mpi", torch]
NAMES = [(collective, name) for collective, algorithms in ALGORITHMS.items() for name in algorithms]
SIZES = (0, 1, 3, 10, 70_001)


def numbers(rank: int, size: int) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=size).astype(np.float32)


def every_schedule(comm):
    """The bytes of all results, and those sent to every peer, by collective, schedule and size."""
    outcomes = {}
    for collective, name in NAMES:
        for size in SIZES:
            before = np.array(comm.sent_bytes)
            result = getattr(comm, collective)(numbers(comm.rank, size), algorithm=name)
            outcomes[collective, name, size] = (
                result.tobytes(),
                result.shape,
                (np.array(comm.sent_bytes) - before).tolist(),
            )
    return outcomes


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [3, 4])
def test_schedules_give_the_same_bits_and_bytes_on_every_engine(engine, ranks):
    here, there = run(every_schedule, ranks=ranks), run(every_schedule, ranks=ranks, engine=engine)
    assert list(there) == list(here)
    assert there.sent_bytes.tolist() == here.sent_bytes.tolist()
    assert (there.sent_bytes == there.received_bytes.T).all()
    assert sorted(event[:9] for event in there.trace) == sorted(event[:9] for event in here.trace)
    for collective, name in NAMES:
        log = execute(
            make(collective, name, ranks), [numbers(rank, SIZES[-1]) for rank in range(ranks)]
        )
        for rank in range(ranks):
            counted = there[rank][collective, name, SIZES[-1]][2]
            assert sum(counted) == sum(event.bytes for event in log.events if event.source == rank)


def own_collectives(comm):
    size = 1003
    floats, whole = (
        numbers(comm.rank, size),
        np.arange(2 * size).reshape(size, 2)[:, 0] * (comm.rank + 1),
    )
    before = whole.copy()
    out = np.zeros(size, np.int64)
    results = {
        "float": comm.all_reduce(floats).tobytes(),
        "int": comm.all_reduce(whole, out=out).tolist(),
        "mean": comm.all_reduce(whole, op="mean").tolist(),
        "half": comm.all_reduce(np.full(2, 6e4, np.float16), op="mean").tolist(),
        "big endian": comm.all_reduce(np.arange(5, dtype=">i4")).tolist(),
        "0-d": comm.all_reduce(1 + 2j).item(),
        "scatter": comm.reduce_scatter(whole).tolist(),
        "gather": comm.all_gather(whole).tolist(),
        "to all": comm.all_to_all(whole).tolist(),
        "text": comm.all_gather(np.array(["ab", "c"])).tolist(),
        "broadcast": comm.broadcast(whole if comm.rank == 1 else None, root=1).tolist(),
        "empty": [comm.all_reduce(np.ones((0, 3))).shape, comm.all_gather(np.ones(0)).shape],
    }
    assert out.tolist() == results["int"] and (whole == before).all()
    comm.barrier()
    return results, sum(comm.sent_bytes)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_librarys_own_collectives_equal_ours(engine):
    here, there = run(own_collectives, ranks=3), run(own_collectives, ranks=3, engine=engine)
    floats = [np.frombuffer(results.pop("float"), np.float32) for results, _ in [*here, *there]]
    assert np.allclose(floats[0], floats[-1], rtol=1e-5, atol=1e-5)
    assert len({array.tobytes() for array in floats[3:]}) == 1
    assert [results for results, _ in there] == [results for results, _ in here]
    # What the library moves is not known; what is counted is the schedule that adds up big-endian
    # numbers for it.
    ring = execute(make("all_reduce", "ring", 3), [np.arange(5, dtype=">i4")] * 3)
    assert sum(sent for _, sent in there) == sum(event.bytes for event in ring.events)


def messages(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.send({"from": comm.rank}, right, tag=2)
    comm.send(np.arange(6).reshape(2, 3) * comm.rank, right, tag=1)
    array = comm.recv(left, tag=1)  # the later one first
    array += 1  # what was received can be written to
    large = comm.sendrecv(
        np.full(2**23, float(comm.rank)), right, left
    )  # 64 MiB: everybody sends first
    comm.send("to myself", comm.rank)
    pair = comm.split(comm.rank // 2, key=-comm.rank)
    inner = pair.split(0)
    print("rank", comm.rank)
    return (
        comm.recv(left, tag=2),
        array.tolist(),
        float(large[-1]),
        comm.recv(comm.rank),
        pair.rank,
        inner.all_reduce(10**comm.rank, algorithm="tree").item(),
        pair.all_reduce(10**comm.rank, algorithm="ring").item(),
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_messages_parts_and_output(engine, capsys):
    here = run(messages, ranks=3)
    capsys.readouterr()
    there = run(messages, ranks=3, engine=engine)
    assert capsys.readouterr().out == "rank 0\nrank 1\nrank 2\n"
    assert list(there) == list(here)
    assert there.sent_bytes.tolist() == here.sent_bytes.tolist()


# Faults


def raises(comm):
    if comm.rank == 1:
        raise KeyError("mine")
    comm.all_reduce(np.ones(10), algorithm="ring")


def killed(comm):
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def leaves(comm):
    if comm.rank == 0:
        os._exit(0)
    comm.recv(0)


def hangs(comm):
    if comm.rank == 1:
        while True:
            time.sleep(0.01)
    comm.recv(1)


def disagrees(comm):
    comm.all_reduce(np.ones(3 + (comm.rank == 2), np.float32))


def forgets(comm):
    if comm.rank == 0:
        comm.send("not wanted", 2)


def left_behind() -> tuple[set[str], list[str]]:
    processes = subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout
    directory = re.escape(tempfile.gettempdir())
    return (
        set(re.findall(rf"{directory}/ranks\w+", processes)),
        [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("ranks")],
    )


FAULTS = [
    (raises, 1, None, r"raised KeyError: 'mine'(?s:.*)in raises"),
    (killed, 2, -9, "was killed by SIGKILL|ended in the middle of the run"),
    (leaves, 0, 0, "(exited|ended) in the middle of the run"),
    (
        hangs,
        1,
        None,
        r"did not finish within 3 s.*: it was busy(?s:.*)in hangs",
    ),
    (disagrees, 2, None, r"shape \(4,\) and dtype float32, but rank 0 .*shape \(3,\)"),
    (forgets, 2, None, "without having received 1 message from rank 0"),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("program", "rank", "exit_code", "message"),
    FAULTS,
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_rank_that_fails_is_named_and_nothing_is_left(engine, program, rank, exit_code, message):
    before = left_behind()
    with pytest.raises(RankError, match=message) as error:
        run(program, ranks=3, engine=engine, deadline_s=3.0)
    # MPICH's launcher may have ended the others, and have asked how, before we could look.
    if engine == "mpi" and "which one was the first" in error.value.cause:
        assert program in (killed, leaves)
    else:
        assert error.value.rank == rank
        codes = (exit_code, None) if engine == "mpi" else (exit_code,)
        assert error.value.exit_code in codes
    assert left_behind() == before


class Bomb:
    def __reduce__(self):
        return eval, ("1/0",)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_that_its_caller_cannot_have_is_the_fault_of_its_rank(engine):
    with pytest.raises(
        RankError,
        match="rank 1 returned what its caller cannot unpickle(.|\n)*ZeroDivisionError",
    ):
        run(lambda comm: Bomb() if comm.rank else None, ranks=2, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_where_the_caller_is_does_not_matter(engine, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    assert list(run(lambda comm: os.getcwd(), ranks=2, engine=engine)) == [str(tmp_path)] * 2
    shutil.rmtree(tmp_path)
    assert list(run(lambda comm: comm.rank, ranks=2, engine=engine)) == [0, 1]


def test_ranks_end_with_their_caller():
    before = left_behind()
    caller = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
        import time
        from dtlib.ranks import run
        run(lambda comm: time.sleep(60), ranks=2, engine="mpi")
    """),
        ],
        cwd=ROOT,
    )
    try:
        until = time.monotonic() + 20
        while not left_behind()[0] - before[0]:
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(0.5)
    finally:
        caller.kill()
        caller.wait()
    until = time.monotonic() + 10
    while left_behind() != before:
        assert time.monotonic() < until, left_behind()
        time.sleep(0.1)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_cannot_be_run_is_refused_before_anything_starts(engine):
    with pytest.raises(TypeError, match="program must be a function"):
        run(3, engine=engine)
    with pytest.raises(ValueError, match="network and memory_bytes are for engine 'local'"):
        run(messages, engine=engine, network=Network((Tier("link", 1e8, 1e-3),)))
    with pytest.raises(ValueError, match="deadline_s must"):
        run(messages, engine=engine, deadline_s=-1)


# Where each implementation is told apart, and how it is started


@pytest.mark.parametrize(
    ("version", "wanted"), [("mpiexec (Open MPI) 5.0.11", True), ("HYDRA build details:", False)]
)
def test_open_mpi_is_told_apart_and_an_mpiexec_that_fails_is_quoted(
    tmp_path, monkeypatch, version, wanted
):
    (tmp_path / "mpiexec").write_text(
        f"#!/bin/sh\ncase $1 in --version) echo '{version}';; *) echo \"no such host: $*\";; esac\n"
    )
    (tmp_path / "mpiexec").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RankError, match="(?s)did not start.*no such host: (.*)") as error:
        run(messages, ranks=2, engine="mpi")
    assert (":OVERSUBSCRIBE" in str(error.value)) == wanted


# Ranks that something else has started, here and on two hosts

SCRIPT = """
import sys
import numpy as np
from dtlib.ranks import RankError, run

def program(comm, size):
    ones = np.full(size, comm.rank + 1, np.float32)
    if size < 0:
        raise ValueError("of no size")
    by_ring = comm.all_reduce(ones, algorithm="ring")
    return comm.rank, comm.all_reduce(ones)[-1].item(), by_ring[-1].item()

def failing(comm):
    if comm.rank == comm.size - 1:
        raise ValueError("the last one")
    comm.barrier()

for size in 10, 100_000:
    result = run(program, engine=sys.argv[1], args=(size,), deadline_s=60)
sys.stdout.write(f"{list(result)} {result.sent_bytes.sum()}\\n")
sys.stdout.flush()
if "fail" in sys.argv:
    run(failing, engine=sys.argv[1], deadline_s=60)
"""
TWO = f"{[(0, 3.0, 3.0), (1, 3.0, 3.0)]} {2 * 400_000}\n"


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def root_environment() -> dict[str, str]:
    return (
        os.environ
        | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        | mpi.OPEN_MPI_AS_ROOT
    )


def start(command: list[str], **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        env=root_environment() | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(*processes: subprocess.Popen) -> list[tuple[str, str, int]]:
    """What each printed, on both streams, and its exit code."""
    until = time.monotonic() + 120
    try:
        return [
            (*process.communicate(timeout=max(0.1, until - time.monotonic())), process.returncode)
            for process in processes
        ]
    finally:
        for process in processes:
            process.terminate()  # and what it has started


def test_a_script_under_mpiexec(script):
    [(output, errors, code)] = finished(
        start([MPIEXEC, "-n", "2", sys.executable, str(script), "mpi", "fail"])
    )
    assert output.count(TWO) == 2
    assert code
    assert "rank 1 raised ValueError: the last one" in errors and "in failing" in errors


@contextlib.contextmanager
def two_hosts():
    """Two addresses, for each a command that runs something on its host, and what the network
    between them is called.

    Each host is a network namespace, if we may make them. Else both are here, with two addresses of
    loopback.
    """
    names = [f"ranks{os.getpid()}{end}" for end in "ab"]

    def ip(*words: str) -> str:
        return subprocess.run(
            ["ip", *words], check=True, capture_output=True, text=True, timeout=10
        ).stdout

    try:
        try:
            for name in names:
                ip("netns", "add", name)
        except (OSError, subprocess.CalledProcessError):
            yield ["127.0.0.1", "127.0.0.2"], [[], []], "lo"
            return
        ip(
            "link",
            "add",
            "cable",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            names[1],
        )
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        until = time.monotonic() + 5
        while not all(
            "UP" in ip("-n", name, "-brief", "link", "show", "cable").split() for name in names
        ):
            assert time.monotonic() < until
            time.sleep(0.05)
        yield ["10.77.0.1", "10.77.0.2"], [["ip", "netns", "exec", name] for name in names], "cable"
    finally:
        for name in names:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def crossed_bytes(inside: list[str], link: str) -> int:
    """What has left the first host so far; a lot, where that cannot be known."""
    if not inside:
        return 10**9
    return int(
        subprocess.run(
            [*inside, "cat", f"/sys/class/net/{link}/statistics/tx_bytes"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has network namespaces, and all of 127.0.0.0/8"
)
def test_two_hosts_under_mpiexec(script, tmp_path):
    with two_hosts() as (addresses, inside, link):
        ssh = (
            tmp_path / "ssh"
        )  # what mpiexec calls to start its helper on the other host: [options] host command
        ssh.write_text(
            "#!/bin/sh\nwhile case $1 in -*) ;; *) false;; esac; do shift; done\nhost=$1; "
            "shift\ncase $host in\n"
            + "".join(
                f'{address}) exec {" ".join(prefix)} sh -c "$*";;\n'
                for address, prefix in zip(addresses, inside, strict=True)
            )
            + "esac\nexit 1\n"
        )
        ssh.chmod(0o755)
        [(output, errors, code)] = finished(
            start(
                [
                    *inside[0],
                    MPIEXEC,
                    "-localhost",
                    addresses[0],
                    "-launcher",
                    "ssh",
                    "-launcher-exec",
                    str(ssh),
                    "-hosts",
                    ",".join(addresses),
                    "-ppn",
                    "1",
                    "-n",
                    "2",
                    sys.executable,
                    str(script),
                    "mpi",
                ],
                # Or MPI finds out that both hosts have one kernel, and moves everything through its
                # memory.
                MPIR_CVAR_CH4_NETMOD="ofi",
                FI_PROVIDER="tcp",
                FI_TCP_IFACE=link,
            )
        )
        assert (output, code) == (TWO * 2, 0), errors
        assert crossed_bytes(inside[0], link) >= 400_000


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has network namespaces, and all of 127.0.0.0/8"
)
@pytest.mark.parametrize("engine", [torch])
def test_two_hosts_under_torch(script, engine):
    with two_hosts() as (addresses, inside, link):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ends = finished(
            *(
                start(
                    [*inside[rank], sys.executable, str(script), engine, "fail"],
                    RANK=str(rank),
                    WORLD_SIZE="2",
                    MASTER_ADDR=addresses[0],
                    MASTER_PORT=str(port),
                    GLOO_SOCKET_IFNAME=link,
                )
                for rank in (0, 1)
            )
        )
        for output, errors, code in ends:
            assert output == TWO and code == 1
            assert "RankError: rank 1 raised ValueError: the last one" in errors
        assert crossed_bytes(inside[0], link) >= 400_000
