"""Where a program runs: as the caller does, with its search path, directory and environment."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import dtlib

__all__ = ["ONE_THREAD", "enter", "here", "python_path"]

# One rank is one core's worth of work. These must be set before numpy is imported.
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    "1",
)


def here() -> dict[str, Any]:
    """What ``enter`` needs to know about this process."""
    try:
        directory = os.getcwd()
    except OSError:  # somebody has removed it
        directory = None
    return {"path": search_path(), "directory": directory, "environment": dict(os.environ)}


def search_path() -> list[str]:
    """The entries of ``sys.path`` that another process can use."""
    return [entry for entry in sys.path if isinstance(entry, str)]


def python_path() -> str:
    """Where a new Python finds this library first, and then what this process would find."""
    library = os.path.dirname(os.path.dirname(dtlib.__file__))
    return os.pathsep.join([library, *filter(None, search_path())])


def enter(surroundings: dict[str, Any], *, environment: bool) -> None:
    """Be where the caller is, with its ``environment`` if that may have changed since the start.

    A directory that is gone does not matter until a program needs it.
    """
    sys.path[:] = surroundings["path"]
    wanted = surroundings["environment"] | ONE_THREAD
    if environment and dict(os.environ) != wanted:
        os.environ.clear()
        os.environ.update(wanted)
    with contextlib.suppress(OSError):
        if surroundings["directory"] is not None:
            os.chdir(surroundings["directory"])
