"""Whether the tests of the formulas notice a wrong formula: `make mutants`.

cosmic-ray changes one thing at a time (an operator, a number, a condition, a decorator) and runs
the module's own tests. Each module is mutated in a copy of the repository, two copies at a time.
What survives is printed as a difference; below 90% caught the round fails.

    python tools/mutants.py                  # all formulas
    python tools/mutants.py memory barrier   # these
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST_CAUGHT = 0.9
SLOWEST_S = 60.0  # of the tests of one mutant, which may loop without end

# The tests that know what each module of dtlib/formulas computes, apart from its doctests.
TESTS = {
    "architecture": ["test_architecture", "test_strict_numbers"],
    "barrier": ["test_barrier", "test_strict_numbers"],
    "blocks": ["test_architecture"],
    "collectives": ["test_collective_costs"],
    "hierarchy": ["test_hierarchy"],
    "jitter": ["test_jitter", "test_barrier", "test_strict_numbers"],
    "memory": ["test_memory", "test_strict_numbers"],
    "partition": ["test_partition"],
    "regimes": ["test_traffic"],
    "step_time": ["test_step_time", "test_strict_numbers"],
    "traffic": ["test_hierarchy", "test_traffic"],
    "utilization": ["test_architecture", "test_strict_numbers"],
}
CONFIGURATION = """[cosmic-ray]
module-path = "{module}"
timeout = {timeout}
excluded-modules = []
test-command = "{command}"

[cosmic-ray.distributor]
name = "local"

[cosmic-ray.filters.operators-filter]
exclude-operators = [
  "core/ReplaceBinaryOperator_BitOr_.*", # in an annotation, which nobody evaluates
  # Slips that nobody makes; powers of whole numbers would also never end.
  "core/ReplaceBinaryOperator_.*_(BitOr|BitAnd|BitXor|LShift|RShift|Pow)",
]
"""


def mutate(name: str) -> tuple[str, int, list[str]]:
    """The module, how many mutants it had, and the differences that no test noticed."""
    module = f"dtlib/formulas/{name}.py"
    tests = [module, *(f"tests/{test}.py" for test in TESTS[name])]
    command = (
        f"{sys.executable} -m pytest -x -q -p no:cacheprovider --assert=plain {' '.join(tests)}"
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.mkdir()
        for part in ("dtlib", "tests"):
            shutil.copytree(ROOT / part, copy / part)
        shutil.copy(ROOT / "pyproject.toml", copy)
        configuration = copy / "mutants.toml"
        configuration.write_text(
            CONFIGURATION.format(module=module, timeout=SLOWEST_S, command=command)
        )

        def call(*arguments: str | Path) -> str:
            surroundings = os.environ | {
                "PYTHONPATH": str(copy),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # starting pytest is most of the time
            }
            done = subprocess.run(
                arguments, cwd=copy, env=surroundings, capture_output=True, text=True
            )
            if done.returncode:
                raise SystemExit(
                    f"{name}: {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
                )
            return done.stdout

        # Byte code that knows its source by its hash: by its time, a mutant of the same second and
        # size would be taken for the module itself.
        invalidation = ("--invalidation-mode", "checked-hash")
        call(sys.executable, "-m", "compileall", "-q", *invalidation, "dtlib", "tests")
        session, tools = "session.sqlite", Path(sys.executable).parent
        call(tools / "cosmic-ray", "baseline", configuration.name)
        call(tools / "cosmic-ray", "init", configuration.name, session)
        call(tools / "cr-filter-operators", session, configuration.name)
        call(tools / "cosmic-ray", "exec", configuration.name, session)
        dumped = call(tools / "cosmic-ray", "dump", session).splitlines()
    results = [json.loads(line)[1] for line in dumped]
    ran = [result for result in results if result and result["worker_outcome"] == "normal"]
    return name, len(ran), [one["diff"] for one in ran if one["test_outcome"] == "survived"]


def main(names: list[str]) -> int:
    if unknown := set(names) - set(TESTS):
        raise SystemExit(f"no such module: {min(unknown)}; there are {', '.join(TESTS)}")
    number, survivors = 0, 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        for name, mutants, survived in pool.map(mutate, names or TESTS):
            print(f"{name}: {mutants - len(survived)} of {mutants} mutants caught", flush=True)
            for difference in survived:
                print(difference, flush=True)
            number, survivors = number + mutants, survivors + len(survived)
    caught = 1 - survivors / number
    print(f"{number - survivors} of {number} mutants caught ({caught:.1%})")
    return 0 if caught >= LEAST_CAUGHT else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
