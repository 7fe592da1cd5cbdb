"""How the TOML files are read: tables, and in them sources and facts that lack nothing, or a
``FactError`` that names the file, the fact and the field.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from dtlib.facts.fact import FIELDS, REQUIRED, Fact, FactError, Source

__all__ = ["check_pairs", "read_fact", "read_name", "read_source", "tables"]

# What doubles a rate has to be written on the fact itself, where the next reader sees it.
OWN_FIELD = {"B/s": "direction", "FLOP/s": "convention"}


def tables(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a TOML file; a FactError names a file that is missing, broken or empty."""
    try:
        with path.open("rb") as file:
            read = tomllib.load(file)
    except OSError as error:
        raise FactError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # broken TOML, with its line, or bytes that are no UTF-8
        raise FactError(f"{path}: {error}") from None
    if not read:
        raise FactError(f"{path}: the file is empty: it should hold tables such as [h100-sxm]")
    for key, table in read.items():
        if not isinstance(table, dict):
            raise FactError(f"{path}: {key} must be a table, got {table!r}")
    return read


def read_name(path: Path, key: str, table: dict[str, Any]) -> str:
    """The printed name of a table; its key is the same in lower case."""
    if "name" not in table:
        raise FactError(f"{path.name}: {key}: field 'name' is missing")
    if str(table["name"]).lower() != key:
        raise FactError(
            f"{path.name}: {key}: name must be the table's key in its printed case, got "
            f"{table['name']!r}"
        )
    return table["name"]


def read_source(key: str, table: dict[str, Any]) -> Source:
    """One table of ``sources.toml``, every field of it filled in."""
    wanted = [each.name for each in fields(Source) if each.name != "key"]
    for name in wanted:
        if not table.get(name):
            raise FactError(f"sources.toml: {key}: field {name!r} is missing")
    if extra := set(table) - set(wanted):
        raise FactError(f"sources.toml: {key}: unknown field {min(extra)!r}")
    return Source(key=key, **table)


def read_fact(path: Path, key: str, entry: Any, defaults: dict[str, Any]) -> Fact:
    """One fact, with the defaults of its group filled in."""
    own = entry if isinstance(entry, dict) else {"value": entry}
    full = {**defaults, **own}
    needs = OWN_FIELD.get(full.get("unit"))
    if needs and needs not in own:
        raise FactError(
            f"{path.name}: {key}: field {needs!r} is missing: a rate in {full['unit']} states its "
            "own"
        )
    for name in REQUIRED:
        if name not in full:
            raise FactError(f"{path.name}: {key}: field {name!r} is missing")
    if unknown := set(full) - set(FIELDS):
        raise FactError(f"{path.name}: {key}: unknown field {min(unknown)!r}")
    try:
        return Fact(key=key, **full)
    except FactError as error:
        raise FactError(f"{path.name}: {error}") from None


def check_pairs(facts: Mapping[str, Fact]) -> None:
    """A printed two-way or sparse figure is twice its partner; one figure under both labels is a
    mistake.
    """
    for key, printed in facts.items():
        partner = facts.get(key.removesuffix("_printed"), printed)
        doubled = printed.direction == "sum of both" or printed.convention == "sparse"
        if doubled and partner is not printed and abs(printed.value / partner.value - 2) > 0.01:
            raise FactError(f"{printed} must be twice {partner}")
