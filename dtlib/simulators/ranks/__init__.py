"""Real ranks: the same program in several processes, with collectives among them.

``run(program)`` for a single run; ``Cluster`` for processes of your own; ``RankError`` is what a
failed run raises.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Cluster", "RankError", "Result", "run", "shutdown"]

_HOMES = {
    "Cluster": "cluster",
    "RankError": "errors",
    "Result": "result",
    "run": "pool",
    "shutdown": "pool",
}


def __getattr__(
    name: str,
) -> Any:  # on demand: a rank's own process needs none of the caller's side, and starts sooner
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
