"""What the tests share."""

from __future__ import annotations

import csv
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
if sys.platform == "win32":  # real ranks need Linux, macOS or WSL, and say so
    collect_ignore_glob = ["test_ranks_*.py", "test_lab.py"]


@pytest.fixture(scope="session")
def ledger() -> dict[str, dict[str, str]]:
    """The figures of the subject's source, by their number in the ledger."""
    with (DATA / "ledger.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell that starts the tests in the background has told them to ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
