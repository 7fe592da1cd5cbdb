"""Where a program runs: with the caller's search path, in the caller's working directory."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

__all__ = ["enter", "search_path", "surroundings"]


def surroundings() -> dict[str, Any]:
    """What ``enter`` needs to know about this process."""
    try:
        directory = os.getcwd()
    except OSError:  # somebody has removed it
        directory = None
    return {"path": search_path(), "directory": directory}


def search_path() -> list[str]:
    return [entry for entry in sys.path if isinstance(entry, str)]


def enter(order: dict[str, Any]) -> None:
    """Be where the caller is. A directory that is gone for a rank does not matter until its program
    needs it.
    """
    sys.path[:] = order["path"]
    with contextlib.suppress(OSError):
        if order["directory"] is not None:
            os.chdir(order["directory"])
