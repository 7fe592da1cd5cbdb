"""What the tests share."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def ledger() -> dict[str, dict[str, str]]:
    """The figures of the subject's source, by their number in the ledger."""
    with (DATA / "ledger.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}
