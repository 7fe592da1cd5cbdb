"""Explorers of the chapter *One machine*: whether the training state fits, and which of its parts
sharding divides.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import numpy as np

from dtlib.facts import registry
from dtlib.formulas.memory import (
    GRADIENT_DTYPES,
    STAGES,
    StateBytes,
    devices_needed,
    fits,
    sharded_state,
    training_state,
)
from dtlib.units import GB, binary, count_text, si
from dtlib.views.charts import Looks, log_axis, rule, table
from dtlib.views.explorer import Column, Control, Explorer, Row, Shown
from dtlib.views.theme import INK

__all__ = ["does_it_fit", "state_by_parts"]


def _exact(name: str) -> int:
    return int(registry.model(name)["parameters"].value)


PARAMETERS: dict[str, float] = {
    "Llama 3.1 8B": _exact("Llama-3.1-8B"),
    "Mixtral 8x7B": _exact("Mixtral-8x7B"),
    "Llama 3.1 70B": _exact("Llama-3.1-70B"),
    "405 billion parameters": registry.model("Llama-3.1-405B")["parameters_rounded"].value,
    "Llama 3.1 405B, exact": _exact("Llama-3.1-405B"),
    "DeepSeek-V3": _exact("DeepSeek-V3"),
}
SAID = {
    "405 billion parameters": "a model of 405 billion parameters",
    "Llama 3.1 405B, exact": "Llama 3.1 405B, counted exactly,",
}
ACCELERATORS = {"H100": "H100-SXM", "H200": "H200-SXM", "B200": "B200-SXM", "MI300X": "MI300X"}
MEMORY_B = {name: registry.accelerator(key).memory_B for name, key in ACCELERATORS.items()}
DEVICES = (1, 2, 4, 8, 16, 32, 64, 80, 81, 82, 128, 256, 1024, 4096, 16384)
WHOLE, SPLIT = "whole", "split"
GRADIENTS = Control("gradients", "Gradients", GRADIENT_DTYPES, ("BF16", "FP32"), kind="choice")

STATE_LINE, MEMORY_LINE = "state on each", "memory of each"
FITS, TOO_LARGE = "fits", "does not fit"


def _each_B(parameters: float, devices: Any, sharding: str, gradients: str) -> Any:
    """Bytes of state on each device: a whole copy, or everything divided (ZeRO stage 3)."""
    return sharded_state(
        parameters, devices, stage=3 if sharding == SPLIT else 0, gradient_dtype=gradients
    ).total


def _enough(smallest: int | None) -> str:
    if smallest is None:
        return "no number of them is enough"
    return (
        "one is enough"
        if smallest == 1
        else f"{count_text(smallest)} is the smallest number that is enough"
    )


def _does_it_fit(
    model: str, accelerator: str, devices: int, sharding: str, gradients: str
) -> Shown:
    parameters, memory_B = PARAMETERS[model], MEMORY_B[accelerator]
    total_B = training_state(parameters, gradient_dtype=gradients).total
    line_B = _each_B(parameters, np.array(DEVICES), sharding, gradients)
    each_B = float(line_B[DEVICES.index(devices)])
    inside = fits(each_B, memory_B, 1)
    alone = fits(total_B, memory_B, 1)
    smallest = devices_needed(total_B, memory_B) if sharding == SPLIT else 1 if alone else None
    verdict = (
        f"yes, {si(memory_B - each_B)} to spare"
        if inside
        else f"no, {si(each_B - memory_B)} too much"
    )
    if devices == 1:
        placed = f"on one {accelerator} it"
    else:
        over = "split over" if sharding == SPLIT else "copied whole to each of"
        placed = (
            f"{over} {count_text(devices)} {accelerator}, that puts {si(each_B)} on each, which"
        )
    return Shown(
        tables={
            "state": [
                {"devices": n, "line": STATE_LINE, "state_GB": state_GB}
                for n, state_GB in zip(DEVICES, line_B / GB, strict=True)
            ],
            "memory": [
                {"devices": n, "line": MEMORY_LINE, "memory_GB": memory_B / GB}
                for n in (DEVICES[0], DEVICES[-1])
            ],
            "here": [
                {
                    "devices": devices,
                    "chosen_GB": each_B / GB,
                    "verdict": FITS if inside else TOO_LARGE,
                }
            ],
        },
        readouts={
            "total": si(total_B),
            "each": si(each_B),
            "memory": f"{si(memory_B)} = {binary(memory_B)}",
            "fits": verdict,
            "smallest": count_text(smallest) if smallest else "no number",
        },
        alt_text=f"The training state of {SAID.get(model, model)} is {si(total_B)}; {placed} "
        f"{FITS if inside else TOO_LARGE} in {si(memory_B)}: {_enough(smallest)}.",
    )


def _does_it_fit_chart() -> alt.LayerChart:
    devices = log_axis(
        alt.X,
        "devices",
        "Number of devices",
        DEVICES,
        (1, 8, 81, 1024, 16384),
        format=",d",
        grid=False,
    )
    lines = Looks((STATE_LINE, MEMORY_LINE))
    looks = {"color": lines.color("line"), "strokeDash": lines.dash("line")}

    def gigabytes(field: str) -> alt.Y:
        values = (0.01, 0.1, 1, 10, 100, 1000, 10_000)
        return log_axis(alt.Y, field, "GB on each device", (0.005, 20_000), values, format=",~g")

    state = table("state").mark_line().encode(x=devices, y=gigabytes("state_GB"), **looks)
    memory = table("memory").mark_line().encode(x=devices, y=gigabytes("memory_GB"), **looks)
    legend = alt.Legend(orient="bottom-left", columns=1, symbolFillColor=INK, symbolStrokeColor=INK)
    verdicts = Looks((FITS, TOO_LARGE), shapes=("circle", "cross"))
    here = (
        table("here")
        .mark_point(size=170, color=INK, opacity=1)
        .encode(x=devices, y=gigabytes("chosen_GB"), shape=verdicts.shape("verdict", legend=legend))
    )
    return (state + memory + here).resolve_scale(shape="independent")


does_it_fit = Explorer(
    name="does-it-fit",
    title="Does the training state fit?",
    model=_does_it_fit,
    chart=_does_it_fit_chart(),
    height=320,
    controls=(
        Control("model", "Model", tuple(PARAMETERS), start="405 billion parameters", kind="choice"),
        Control(
            "accelerator",
            "Accelerator",
            tuple(MEMORY_B),
            tuple(f"{name}, {si(memory_B)}" for name, memory_B in MEMORY_B.items()),
            kind="choice",
        ),
        Control("devices", "Number of devices", DEVICES, tuple(map(count_text, DEVICES)), start=80),
        Control(
            "sharding",
            "On each device",
            (WHOLE, SPLIT),
            ("a whole copy", "an equal share"),
            start=SPLIT,
            kind="choice",
        ),
        GRADIENTS,
    ),
    readouts={
        "total": "Whole state",
        "each": "On each device",
        "memory": "Memory of one device",
        "fits": "Does it fit?",
        "smallest": "Fewest devices that hold it",
    },
    columns={
        "devices": Column("Devices", ",d"),
        "state_GB": Column("State on each (GB)", ",.4~r"),
        "memory_GB": Column("Memory of one (GB)", ",~r"),
        "chosen_GB": Column("Chosen: on each (GB)", ",.4~r"),
        "verdict": Column("Chosen: verdict"),
    },
)


PARTS = {
    "weights": "W weights",
    "gradients": "G gradients",
    "master": "M master weights",
    "moments": "A Adam moments",
}
RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ZERO_EXAMPLE = registry.fact("zero-example.parameters").value
STATE_MODELS: dict[str, float] = {"7.5 billion (ZeRO paper)": ZERO_EXAMPLE} | {
    name: PARAMETERS[name]
    for name in ("Llama 3.1 8B", "Llama 3.1 70B", "405 billion parameters", "DeepSeek-V3")
}
NO_BREAK = "\N{NO-BREAK SPACE}"  # keeps a number and its unit on one line
THINNEST_LABEL_B = 1.2  # bytes per parameter: a thinner segment has no room for its letter


def _kept(stage: int, gradients: str) -> tuple[str, ...]:
    """The parts of which two ranks hold as much as one alone: the stage does not divide them."""
    state = sharded_state(1, np.array([1, 2]), stage=stage, gradient_dtype=gradients)
    return tuple(part for part, (alone, shared) in state.parts().items() if shared == alone)


def _sum(state: StateBytes, parts: tuple[str, ...]) -> float:
    return sum(state.parts()[part] for part in parts)


@cache
def _segments(stage: int, gradients: str) -> list[Row]:
    """The parts at each of RANKS, stacked: the same for every model and number of ranks."""
    state = sharded_state(1, np.array(RANKS), stage=stage, gradient_dtype=gradients)
    return [
        {
            "ranks": n,
            "part": PARTS[part],
            "order": order,
            "bytes": sizes[place],
            "letter": PARTS[part][0] if sizes[place] >= THINNEST_LABEL_B else "",
        }
        for place, n in enumerate(RANKS)
        for order, (part, sizes) in enumerate(state.parts().items())
    ]


def _state_by_parts(stage: int, ranks: int, model: str, gradients: str) -> Shown:
    parameters, kept = STATE_MODELS[model], _kept(stage, gradients)
    whole = training_state(parameters, gradient_dtype=gradients)
    state = sharded_state(parameters, ranks, stage=stage, gradient_dtype=gradients)
    per_parameter = sharded_state(1, ranks, stage=stage, gradient_dtype=gradients).total
    floor_B = _sum(whole, kept)
    names = " and ".join(PARTS[part][2:] for part in kept)
    if len(kept) == len(PARTS):
        limit = "every part of it is a whole copy, so more ranks change nothing"
    elif kept:
        limit = f"{si(floor_B)} of it, the {names}, is a whole copy that more ranks do not divide"
    else:
        limit = "every part of it is divided, so more ranks leave less and less"
    return Shown(
        tables={
            "segments": _segments(stage, gradients),
            "chosen": [{"ranks": ranks, "total": per_parameter, "label": si(state.total)}],
            "floor": [{"floor": _sum(training_state(1, gradient_dtype=gradients), kept)}],
        },
        readouts={
            "each": si(state.total),
            "floor": si(floor_B),
            "less": f"{whole.total / state.total:,.4g}× as much",
            "parts": ", ".join(
                f"{PARTS[part][0]} {si(size)}".replace(" ", NO_BREAK)
                for part, size in state.parts().items()
            ),
        },
        alt_text=f"At ZeRO stage {stage} "
        f"{'one rank alone' if ranks == 1 else f'each of {count_text(ranks)} ranks'} holds "
        f"{si(state.total)} of the {si(whole.total)} of state; {limit}.",
    )


def _state_by_parts_chart() -> alt.LayerChart:
    ranks = alt.X(
        "ranks:O", title="Data-parallel ranks K", axis=alt.Axis(values=list(RANKS[::2]), format="d")
    )

    def bytes_of(field: str, **options: Any) -> alt.Y:
        return alt.Y(
            f"{field}:Q",
            title="Bytes per parameter on a rank",
            scale=alt.Scale(domain=[0, 20], nice=False),
            axis=alt.Axis(values=[0, 2, 4, 8, 12, 16], format="d"),
            **options,
        )

    segments = table("segments").encode(x=ranks, order=alt.Order("order:Q"))
    bars = segments.mark_bar(stroke=INK, strokeWidth=0.6).encode(
        y=bytes_of("bytes", stack="zero"), color=Looks(tuple(PARTS.values())).color("part")
    )
    letters = segments.mark_text(fontSize=11, fontWeight="bold", baseline="middle").encode(
        y=bytes_of("bytes", stack="zero", bandPosition=0.5), text="letter:N", detail="part:N"
    )
    chosen = table("chosen").encode(x=ranks, y=bytes_of("total"))
    outline = chosen.mark_bar(filled=False, stroke=INK, strokeWidth=3)
    label = chosen.mark_text(dy=-9, fontWeight="bold", fontSize=13).encode(text="label:N")
    return bars + letters + rule(table("floor"), y=bytes_of("floor")) + outline + label


state_by_parts = Explorer(
    name="state-by-parts",
    title="Which parts does sharding divide?",
    model=_state_by_parts,
    chart=_state_by_parts_chart(),
    height=320,
    controls=(
        Control("stage", "ZeRO stage", STAGES, start=1, kind="choice"),
        Control(
            "ranks",
            "Data-parallel ranks K",
            RANKS,
            tuple(map(count_text, RANKS)),
            start=64,
            play=True,
        ),
        Control("model", "Parameters", tuple(STATE_MODELS), kind="choice"),
        GRADIENTS,
    ),
    readouts={
        "each": "On each rank",
        "floor": "Never divided (dashed line)",
        "less": "One rank alone holds",
        "parts": "By part, on each rank",
    },
    columns={
        "ranks": Column("Ranks", ",d"),
        "part": Column("Part"),
        "bytes": Column("Bytes per parameter", ".4~r"),
        "total": Column("Chosen: bytes per parameter", ".4~r"),
        "label": Column("Chosen: on each rank"),
        "floor": Column("Never divided: bytes per parameter", ".4~r"),
    },
)
