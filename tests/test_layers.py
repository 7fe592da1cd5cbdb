"""The library's layers: imports point down only and in no circle, and below the views numpy is
enough.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("facts", "network", "formulas", "simulators", "ranks", "views", "teaching")
# The modules that are in no folder of their own and below all layers: arguments, units, ...
BASE = -1

THIRD_PARTY = {"ranks": {"numpy", "cloudpickle"}}  # of the layers below the views; others: numpy
ENGINES = {"mpi4py", "torch"}  # in the ranks' modules of these engines alone

# Imports inside a function that would close a circle at the top of the file, with the reason.
LATE = {
    ("dtlib.views.host", "dtlib.views.page"): "a view asks the host, which draws views",
    ("dtlib.views.host", "dtlib.views.widget"): "only a view that is shown loads the widgets",
}
# Modules that import others by a name in a string, where no rule sees it.
BY_NAME = {
    "dtlib.teaching.checks": "finds the exercises of all chapters",
    "dtlib.ranks.runs": "loads the engine that was asked for",
}


@dataclass(frozen=True)
class Import:
    """One import statement's target, and when it is carried out."""

    target: str
    late: bool
    for_types: bool


def imports(source: str, modules: Mapping[str, str]) -> Iterator[Import]:
    """What a module imports; ``from package import module`` is an import of the module."""

    def walk(node: ast.AST, late: bool, for_types: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for_types = True
        late = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, late, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import: {ast.unparse(node)}"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield Import(inner if inner in modules else str(node.module), late, for_types)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, late, for_types)

    return walk(ast.parse(source), False, False)


def layer(module: str) -> int:
    name = module.split(".")[1] if "." in module else ""
    return LAYERS.index(name) if name in LAYERS else BASE


def layer_complaints(modules: Mapping[str, str]) -> Iterator[str]:
    """Imports that point up, circles, and packages that a layer does without."""
    graph: dict[str, set[str]] = {}
    for module, source in modules.items():
        graph[module] = set()
        at = layer(module)
        allowed = THIRD_PARTY.get(LAYERS[at] if at != BASE else "", {"numpy"})
        allowed = allowed | (ENGINES if LAYERS[at] == "ranks" else set()) | {"dtlib"}
        for one in imports(source, modules):
            package = one.target.partition(".")[0]
            if package == "dtlib":
                if layer(one.target) > at:
                    yield f"{module} imports {one.target}, a layer above it"
                listed = one.late and (module, one.target) in LATE
                if not (listed or one.for_types):
                    graph[module].add(one.target)
            elif at < LAYERS.index("views") and package not in sys.stdlib_module_names | allowed:
                yield f"{module} imports {package}: below the views {sorted(allowed)} is enough"
            elif (
                package in ENGINES and package.removesuffix("4py") not in module.rpartition(".")[2]
            ):
                yield f"{module} imports {package}, which only the engine of that name may"
        if "import_module(" in source and module not in BY_NAME:
            yield f"{module} imports by a name in a string: BY_NAME lists those that may"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"a circle of imports: {' <- '.join(error.args[1])}"


def library() -> dict[str, str]:
    """The source of every module of dtlib, by its name."""
    found = {}
    for path in (ROOT / "dtlib").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


def test_imports_point_down_in_no_circle():
    modules = library()
    assert len(modules) > 50
    assert list(layer_complaints(modules)) == []


def test_every_folder_is_a_layer():
    folders = {path.parent.name for path in (ROOT / "dtlib").glob("*/__init__.py")}
    assert folders - set(LAYERS) == set()


def test_exceptions_are_still_needed():
    modules = library()
    for module, target in LATE:
        found = [one for one in imports(modules[module], modules) if one.target == target]
        assert found and all(one.late for one in found)
    for module in BY_NAME:
        assert "import_module(" in modules.get(module, "import_module(")


DOWN = {
    "dtlib": "",
    "dtlib.arguments": "import numpy",
    "dtlib.facts": "",
    "dtlib.facts.registry": "import tomllib\nfrom dtlib.arguments import choice",
    "dtlib.formulas.memory": "import numpy as np\nfrom dtlib.facts import registry",
    "dtlib.ranks.engine": "import cloudpickle\nfrom dtlib.formulas.memory import held",
    "dtlib.ranks.torch": "import torch.distributed",
    "dtlib.views.plots": "import matplotlib\nimport dtlib.ranks.engine",
}


def test_imports_that_point_down_are_fine():
    assert list(layer_complaints(DOWN)) == []


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        ("dtlib.facts.registry", "import dtlib.formulas.memory", "a layer above it"),
        ("dtlib.facts.registry", "from dtlib.views import plots", "dtlib.views.plots, a layer"),
        ("dtlib.arguments", "from dtlib.facts.registry import fact", "a layer above it"),
        ("dtlib.formulas.memory", "def f():\n    import dtlib.ranks.engine", "a layer above it"),
        ("dtlib.formulas.memory", "def f():\n    import scipy", "imports scipy"),
        ("dtlib.formulas.memory", "import cloudpickle", "imports cloudpickle"),
        ("dtlib.ranks.engine", "import matplotlib", "imports matplotlib"),
        ("dtlib.ranks.engine", "import torch", "only the engine of that name may"),
        ("dtlib.ranks.engine", "import_module('dtlib.views')", "by a name in a string"),
        ("dtlib.ranks.torch", "import dtlib.ranks.torch", "a circle"),
    ],
)
def test_an_import_that_is_not_allowed_is_noticed(module, line, complaint):
    broken = DOWN | {module: f"{DOWN[module]}\n{line}"}
    assert any(complaint in found for found in layer_complaints(broken))


def test_a_circle_is_noticed_even_if_a_function_closes_it():
    modules = {"dtlib.formulas.a": "import dtlib.formulas.b", "dtlib.formulas.b": ""}
    closing = "def f():\n    from dtlib.formulas import a"
    assert list(layer_complaints(modules)) == []
    (found,) = layer_complaints(modules | {"dtlib.formulas.b": closing})
    assert "dtlib.formulas.a <- dtlib.formulas.b <- dtlib.formulas.a" in found
    for_types = "if TYPE_CHECKING:\n    from dtlib.formulas import a"
    assert list(layer_complaints(modules | {"dtlib.formulas.b": for_types})) == []


def test_importing_the_library_imports_nothing_heavy():
    code = "import sys; before = set(sys.modules); import dtlib; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert {name.partition(".")[0] for name in done.stdout.split()} == {"dtlib"}
