"""Measured sweeps: how long a collective took at every message size, from ``sweeps.toml``.

>>> measured = sweep("nccl-8xh100")
>>> measured.ranks, len(measured.time_s), measured.at(8)
(8, 32, 1.367e-05)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dtlib.arguments import choice
from dtlib.facts.fact import FactError
from dtlib.facts.files import tables
from dtlib.facts.registry import source

__all__ = ["Sweep", "read", "sweep", "sweeps"]


@dataclass(frozen=True, eq=False)
class Sweep:
    """One benchmark of ``collective`` on ``ranks`` ranks; row i took ``time_s[i]`` for
    ``payload_bytes[i]``. The arrays can be read and not written: a sweep is shared by everyone.
    """

    key: str
    collective: str
    ranks: int
    system: str
    kind: str
    source: str
    checked: date
    note: str
    payload_bytes: np.ndarray
    time_s: np.ndarray

    def at(self, payload_bytes: int) -> float:
        """The seconds measured at exactly this size."""
        size = choice("payload_bytes", payload_bytes, self.payload_bytes.tolist())
        return float(self.time_s[self.payload_bytes.tolist().index(size)])


def read(path: Path) -> dict[str, Sweep]:
    """The sweeps in a TOML file; raises a FactError for the first that is incomplete."""
    return {key: _checked(path.name, key, table) for key, table in tables(path).items()}


def _checked(file: str, key: str, table: dict[str, Any]) -> Sweep:
    wanted = {field.name for field in fields(Sweep)} - {"key"}
    if wanted != set(table):
        name = min(wanted ^ set(table))
        raise FactError(
            f"{file}: {key}: {'unknown' if name in table else 'missing'} field {name!r}"
        )
    if table["kind"] != "measured":
        raise FactError(f"{file}: {key}: kind must be 'measured', got {table['kind']!r}")
    if type(table["checked"]) is not date:
        raise FactError(
            f"{file}: {key}: checked must be a date such as 2026-11-29, got {table['checked']!r}"
        )
    source(table["source"])
    size = _column(file, key, table, "payload_bytes", np.int64)
    time = _column(file, key, table, "time_s", np.float64)
    if size.shape != time.shape or not len(size):
        raise FactError(
            f"{file}: {key}: payload_bytes has {len(size)} entries and time_s {len(time)}: one "
            "time a size"
        )
    if (np.diff(size) <= 0).any() or size[0] <= 0 or (time <= 0).any():
        raise FactError(f"{file}: {key}: sizes must grow from above 0, and times be above 0")
    return Sweep(key, **{**table, "payload_bytes": size, "time_s": time})


def _column(file: str, key: str, table: dict[str, Any], name: str, dtype: type) -> np.ndarray:
    """A column as an array that nobody can write to."""
    try:
        column = np.array(table[name], dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        raise FactError(f"{file}: {key}: {name} must be a list of numbers") from None
    column.flags.writeable = False
    return column


@cache
def _sweeps() -> dict[str, Sweep]:
    return read(Path(__file__).with_name("sweeps.toml"))


def sweep(key: str) -> Sweep:
    """The sweep with this key; a ValueError lists the known ones."""
    return _sweeps()[choice("sweep", key, _sweeps())]


def sweeps() -> tuple[str, ...]:
    """The keys of the known sweeps."""
    return tuple(_sweeps())
