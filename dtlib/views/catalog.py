"""Every explorer and prediction of the course, by name: what the tests and the benchmark go
through.
"""

from __future__ import annotations

from types import ModuleType
from typing import TypeVar

from dtlib.views.explorer import Explorer
from dtlib.views.explorers import all_reduce, barrier, hierarchy, landing, one_machine
from dtlib.views.prediction import Prediction
from dtlib.views.predictions import all_reduce as all_reduce_predictions
from dtlib.views.predictions import barrier as barrier_predictions
from dtlib.views.predictions import hierarchy as hierarchy_predictions
from dtlib.views.predictions import one_machine as one_machine_predictions

__all__ = ["EXPLORERS", "PREDICTIONS"]

View = TypeVar("View", Explorer, Prediction)


def _named(kind: type[View], *modules: ModuleType) -> dict[str, View]:
    views = [
        value for module in modules for value in vars(module).values() if isinstance(value, kind)
    ]
    named = {view.name: view for view in views}
    if len(named) < len(views):
        raise ValueError(f"two views share a name among {sorted(view.name for view in views)}")
    return named


EXPLORERS = _named(Explorer, landing, one_machine, barrier, all_reduce, hierarchy)
PREDICTIONS = _named(
    Prediction,
    one_machine_predictions,
    barrier_predictions,
    all_reduce_predictions,
    hierarchy_predictions,
)
