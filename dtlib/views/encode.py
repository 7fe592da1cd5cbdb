"""A view as plain data: what Python hands to the front end.

Numbers are rounded to seven significant digits, more than any chart can show; both hosts use this
encoding, so that a page and a notebook print the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import vl_convert

from dtlib.views.explorer import Explorer, Row, Shown
from dtlib.views.prediction import Prediction
from dtlib.views.theme import VEGA_CONFIG

__all__ = ["baked", "explorer_spec", "prediction_spec", "shown_state", "static_svg", "vega_spec"]

STATIC_WIDTH = 680


def _plain(value: Any) -> Any:
    """A table's cell as JSON has it; a number that JSON lacks is an error and never reaches a
    reader.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        if not np.isfinite(value):
            raise ValueError(f"a table holds {value}: an explorer shows finite numbers only")
        rounded = float(f"{float(value):.6e}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"a table holds {value!r} ({type(value).__name__}): use numbers and text")


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """A table by columns, which is smaller than by rows and compresses better."""
    names = list(rows[0]) if rows else []
    for row in rows:
        if list(row) != names:
            raise ValueError(f"rows of one table have the columns {names} and {list(row)}")
    return {name: [_plain(row[name]) for row in rows] for name in names}


def shown_state(explorer: Explorer, at: Sequence[int]) -> dict[str, Any]:
    """One state, as the front end draws it."""
    at = explorer.within(at)
    shown = explorer.at(at)
    return {"at": list(at), "counts": list(explorer.counts(at)), **_content(explorer, shown)}


def _content(explorer: Explorer, shown: Shown) -> dict[str, Any]:
    return {
        "tables": {name: _columns(rows) for name, rows in shown.tables.items()},
        "readouts": [shown.readouts[name] for name in explorer.readouts],
        "alt_text": shown.alt_text,
    }


def baked(explorer: Explorer) -> dict[str, Any]:
    """Every state: ``index`` nests one list a control down to ``[table numbers, readout texts,
    alternative text]``.

    Equal tables are stored once, in ``pool``; a state names them by position.
    """
    pool: dict[str, int] = {}
    names: list[str] = []
    index: list[Any] = []
    for at in explorer.states():
        content = _content(explorer, explorer.at(at))
        names = list(content["tables"])
        numbers = [
            pool.setdefault(json.dumps(table, separators=(",", ":")), len(pool))
            for table in content["tables"].values()
        ]
        node = index
        for position in at[:-1]:
            while len(node) <= position:
                node.append([])
            node = node[position]
        node.append([numbers, content["readouts"], content["alt_text"]])
    return {"names": names, "pool": [json.loads(table) for table in pool], "index": index}


def vega_spec(chart: Any, height: int) -> dict[str, Any]:
    """The chart compiled to Vega, so that a page need not carry the Vega-Lite compiler."""
    spec = chart.properties(width=STATIC_WIDTH, height=height).to_dict(
        validate=True, context={"pre_transform": False}
    )
    spec.pop("datasets", None)
    spec["autosize"] = {"type": "fit", "contains": "padding"}
    spec["config"] = VEGA_CONFIG
    vega = vl_convert.vegalite_to_vega(spec)
    vega.setdefault("signals", []).append(
        {"name": "narrow", "value": False}
    )  # the front end sets it on a narrow page, where legends take one column
    return vega


@cache
def _vega(explorer: Explorer) -> str:
    return json.dumps(vega_spec(explorer.chart, explorer.height))


def explorer_spec(explorer: Explorer) -> dict[str, Any]:
    """What does not change with the state: title, controls, readouts, columns, chart."""
    return {
        "name": explorer.name,
        "title": explorer.title,
        "start": list(explorer.start),
        "controls": [
            {
                "name": c.name,
                "label": c.label,
                "texts": list(c.texts),
                "kind": c.kind,
                "play": c.play,
            }
            for c in explorer.controls
        ],
        "readouts": [{"name": name, "label": label} for name, label in explorer.readouts.items()],
        "columns": {name: asdict(column) for name, column in explorer.columns.items()},
        "vega": json.loads(_vega(explorer)),
    }


def prediction_spec(prediction: Prediction) -> dict[str, Any]:
    """A prediction as plain data."""
    return asdict(prediction)


def static_svg(explorer: Explorer) -> str:
    """The picture of the starting state: first on the page, and all there is in print and without
    JavaScript.
    """
    vega = json.loads(_vega(explorer))
    tables: Mapping[str, Any] = shown_state(explorer, explorer.start)["tables"]
    for data in vega["data"]:
        if data.get("name") in tables:
            columns = tables[data["name"]]
            data["values"] = [
                dict(zip(columns, cells, strict=True))
                for cells in zip(*columns.values(), strict=True)
            ]
    return vl_convert.vega_to_svg(vega)
