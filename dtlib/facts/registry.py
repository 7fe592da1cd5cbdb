"""The registry: every hardware, model and run figure of the course, read from the TOML files beside
this module.

A table is a group of facts (``[h100-sxm]``); its ``defaults`` fill in what a fact does not say
itself, and a bare value is a fact with nothing but defaults. After loading every fact carries every
field, or is refused by name.

    >>> fact("h100-sxm.memory").value
    80000000000.0
    >>> accelerator("H100-SXM").scaleup_Bps, fact("h100-sxm.scaleup_printed").value
    (450000000000.0, 900000000000.0)
    >>> fact("h100-sxm.scaleup_printed").each_way_Bps  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    dtlib.facts.fact.ConventionError: h100-sxm.scaleup_printed = 9e+11 B/s (sum of both, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dtlib.arguments import choice
from dtlib.facts.fact import Fact, FactError, Source
from dtlib.facts.files import check_pairs, read_fact, read_name, read_source, tables

__all__ = [
    "Accelerator",
    "Registry",
    "accelerator",
    "accelerators",
    "all_facts",
    "all_sources",
    "constant",
    "fact",
    "model",
    "models",
    "source",
    "training_run",
    "training_runs",
]

KINDS = ("constants", "hardware", "models", "runs")


class Group(Mapping[str, Fact]):
    """The facts of one table by name: a mapping that can be read and sent to a rank, not changed.

    >>> group = model("GPT-2")
    >>> group["layers"].value, "experts" in group
    (12, False)
    """

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self._facts = dict(facts)

    def __getitem__(self, name: str) -> Fact:
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __repr__(self) -> str:
        return f"Group({self._facts!r})"


@dataclass(frozen=True)
class Accelerator:
    """One accelerator; bandwidths are each way, FLOP rates dense.

    ``_B`` is bytes, ``_Bps`` bytes a second, ``_FLOPs`` FLOP a second. ``scaleup`` is the link
    inside the fast domain of ``scaleup_domain`` accelerators, ``nic`` this accelerator's share of
    the network. ``matmul_bf16_FLOPs`` is the best rate measured on a matrix multiplication, None
    where nobody published one. ``facts`` holds the facts behind these figures, and those printed
    in another convention.
    """

    name: str
    memory_B: float
    hbm_Bps: float
    peak_bf16_FLOPs: float
    matmul_bf16_FLOPs: float | None
    scaleup_Bps: float
    scaleup_domain: int
    nic_Bps: float
    facts: Group = field(repr=False, compare=False)


class Registry:
    """The facts and sources in a folder of TOML files.

    A FactError says what is wrong with the first that is missing, broken, empty or incomplete.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        wanted = [f"{name}.toml" for name in ("sources", *KINDS)]
        if missing := [name for name in wanted if not (folder / name).is_file()]:
            raise FactError(
                f"folder must hold {', '.join(wanted)}, got {str(folder)!r}, "
                + (f"without {', '.join(missing)}" if folder.is_dir() else "which is no folder")
            )
        self.sources = {
            key: read_source(key, table) for key, table in tables(folder / "sources.toml").items()
        }
        self.facts: dict[str, Fact] = {}
        self.groups: dict[str, dict[str, Group]] = {}
        for kind in KINDS:
            path = folder / f"{kind}.toml"
            self.groups[kind] = {
                read_name(path, key, table): self._group(path, key, table)
                for key, table in tables(path).items()
            }
        check_pairs(self.facts)

    def _group(self, path: Path, group: str, table: dict[str, Any]) -> Group:
        defaults = table.get("defaults", {})
        if not isinstance(defaults, dict):
            raise FactError(f"{path.name}: {group}: defaults must be a table, got {defaults!r}")
        entries = {key: value for key, value in table.items() if key not in ("name", "defaults")}
        facts = {
            key: read_fact(path, f"{group}.{key}", value, defaults)
            for key, value in entries.items()
        }
        for one in facts.values():
            if one.source not in self.sources:
                raise FactError(
                    f"{path.name}: {one.key}: source {one.source!r} is not in sources.toml"
                )
            if one.key in self.facts:
                raise FactError(f"{path.name}: {one.key}: already given in another file")
            self.facts[one.key] = one
        return Group(facts)

    def fact(self, key: str) -> Fact:
        """The fact ``group.name``."""
        if isinstance(key, str) and key in self.facts:
            return self.facts[key]
        group = str(key).rpartition(".")[0]
        siblings = [known for known in self.facts if known.startswith(f"{group}.")]
        return choice(
            "fact",
            key,
            siblings or dict.fromkeys(known.rpartition(".")[0] + ".*" for known in self.facts),
        )

    def group(self, kind: str, what: str, name: str) -> Group:
        """The facts of one table, by its printed name; ``what`` is the word for it in an error."""
        return self.groups[kind][choice(what, name, self.groups[kind])]

    def accelerator(self, name: str) -> Accelerator:
        """The typed view of one accelerator; a two-way or sparse figure in its place is refused."""
        facts = self.group("hardware", "accelerator", name)
        matmul = facts.get("matmul_bf16")
        return Accelerator(
            name=name,
            memory_B=facts["memory"].number("B"),
            hbm_Bps=facts["hbm"].number("B/s"),
            peak_bf16_FLOPs=facts["peak_bf16"].dense_FLOPs,
            matmul_bf16_FLOPs=matmul.dense_FLOPs if matmul else None,
            scaleup_Bps=facts["scaleup"].each_way_Bps,
            scaleup_domain=int(facts["scaleup_domain"].value),
            nic_Bps=facts["nic"].each_way_Bps,
            facts=facts,
        )


@cache
def _registry() -> Registry:
    return Registry(Path(__file__).parent)


def fact(key: str) -> Fact:
    """The fact with this key, such as ``"h100-sxm.memory"``; a ValueError lists the known ones."""
    return _registry().fact(key)


def all_facts() -> Iterator[Fact]:
    """Every fact, in the order of the files."""
    return iter(_registry().facts.values())


def source(key: str) -> Source:
    """The source with this key."""
    return _registry().sources[choice("source", key, _registry().sources)]


def all_sources() -> Iterator[Source]:
    """Every source, for the bibliography."""
    return iter(_registry().sources.values())


def accelerator(name: str) -> Accelerator:
    """The accelerator with this name; a ValueError lists the known ones."""
    return _registry().accelerator(name)


def accelerators() -> tuple[str, ...]:
    """The names of the known accelerators."""
    return tuple(_registry().groups["hardware"])


def model(name: str) -> Group:
    """The facts of one model: the fields of its architecture and its published parameter counts.

    >>> model("Llama-2-70B")["parameters"].value
    68976648192
    """
    return _registry().group("models", "model", name)


def models() -> tuple[str, ...]:
    """The names of the known models."""
    return tuple(_registry().groups["models"])


def training_run(name: str) -> Group:
    """The facts of one published training run.

    >>> training_run("Llama-3-405B")["gpus"].value
    16384
    """
    return _registry().group("runs", "training_run", name)


def training_runs() -> tuple[str, ...]:
    """The names of the known runs."""
    return tuple(_registry().groups["runs"])


def constant(name: str) -> float:
    """Bytes per parameter of one part of the training state.

    >>> constant("moments_adam")
    8.0
    """
    return fact(f"state.{name}").number("B/parameter")
