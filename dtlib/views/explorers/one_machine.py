"""Explorers of the chapter *One machine*: whether the training state fits, and which of its parts
sharding divides.
"""

from __future__ import annotations

import altair as alt

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


def _each_B(parameters: float, devices: int, sharding: str, gradients: str) -> float:
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
    each_B = _each_B(parameters, devices, sharding, gradients)
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
                {
                    "devices": n,
                    "line": STATE_LINE,
                    "state_GB": _each_B(parameters, n, sharding, gradients) / GB,
                }
                for n in DEVICES
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
        says=f"The training state of {SAID.get(model, model)} is {si(total_B)}; {placed} "
        f"{FITS if inside else TOO_LARGE} in {si(memory_B)}: {_enough(smallest)}.",
    )


def _does_it_fit_chart() -> alt.LayerChart:
    devices = alt.X(
        "devices:Q",
        title="Number of devices",
        scale=alt.Scale(type="log", base=2, domain=[DEVICES[0], DEVICES[-1]], nice=False),
        axis=alt.Axis(values=[1, 8, 81, 1024, 16384], format=",d", grid=False),
    )
    scale = alt.Scale(type="log", domain=[0.005, 20_000], nice=False)
    axis = alt.Axis(values=[0.01, 0.1, 1, 10, 100, 1000, 10_000], format=",~g")
    lines = {
        "color": alt.Color("line:N", title=None, scale=alt.Scale(domain=[STATE_LINE, MEMORY_LINE])),
        "strokeDash": alt.StrokeDash(
            "line:N",
            title=None,
            scale=alt.Scale(domain=[STATE_LINE, MEMORY_LINE], range=[[1, 0], [6, 3]]),
        ),
    }

    def gigabytes(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="GB on each device", scale=scale, axis=axis)

    state = (
        alt.Chart(alt.NamedData("state"))
        .mark_line()
        .encode(x=devices, y=gigabytes("state_GB"), **lines)
    )
    memory = (
        alt.Chart(alt.NamedData("memory"))
        .mark_line()
        .encode(x=devices, y=gigabytes("memory_GB"), **lines)
    )
    here = (
        alt.Chart(alt.NamedData("here"))
        .mark_point(size=170, color=INK, opacity=1)
        .encode(
            x=devices,
            y=gigabytes("chosen_GB"),
            shape=alt.Shape(
                "verdict:N",
                title=None,
                scale=alt.Scale(domain=[FITS, TOO_LARGE], range=["circle", "cross"]),
                legend=alt.Legend(
                    orient="bottom-left", columns=1, symbolFillColor=INK, symbolStrokeColor=INK
                ),
            ),
        )
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


def _whole_parts(stage: int, gradients: str) -> tuple[str, ...]:
    """The parts of which two ranks hold as much as one rank alone: the stage does not divide them."""
    alone, shared = (
        sharded_state(1, ranks, stage=stage, gradient_dtype=gradients).parts() for ranks in (1, 2)
    )
    return tuple(part for part in alone if shared[part] == alone[part])


def _sum(state: StateBytes, parts: tuple[str, ...]) -> float:
    return sum(state.parts()[part] for part in parts)


def _segments(stage: int, gradients: str) -> list[Row]:
    rows = []
    for n in RANKS:
        state = sharded_state(1, n, stage=stage, gradient_dtype=gradients).parts()
        for order, (part, size) in enumerate(state.items()):
            rows.append(
                {
                    "ranks": n,
                    "part": PARTS[part],
                    "order": order,
                    "bytes": size,
                    "letter": PARTS[part][0] if size >= THINNEST_LABEL_B else "",
                }
            )
    return rows


def _state_by_parts(stage: int, ranks: int, model: str, gradients: str) -> Shown:
    parameters, kept = STATE_MODELS[model], _whole_parts(stage, gradients)
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
        says=f"At ZeRO stage {stage} "
        f"{'one rank alone' if ranks == 1 else f'each of {count_text(ranks)} ranks'} holds "
        f"{si(state.total)} of the {si(whole.total)} of state; {limit}.",
    )


def _state_by_parts_chart() -> alt.LayerChart:
    ranks = alt.X(
        "ranks:O", title="Data-parallel ranks K", axis=alt.Axis(values=list(RANKS[::2]), format="d")
    )
    scale = alt.Scale(domain=[0, 20], nice=False)
    axis = alt.Axis(values=[0, 2, 4, 8, 12, 16], format="d")
    stacked = alt.Y(
        "bytes:Q", title="Bytes per parameter on a rank", stack="zero", scale=scale, axis=axis
    )
    segments = alt.Chart(alt.NamedData("segments")).encode(x=ranks, order=alt.Order("order:Q"))
    bars = segments.mark_bar(stroke=INK, strokeWidth=0.6).encode(
        y=stacked,
        color=alt.Color(
            "part:N", title=None, sort=None, scale=alt.Scale(domain=list(PARTS.values()))
        ),
    )
    letters = segments.mark_text(fontSize=11, fontWeight="bold", baseline="middle").encode(
        y=alt.Y("bytes:Q", stack="zero", bandPosition=0.5, scale=scale, axis=axis),
        text="letter:N",
        detail="part:N",
    )
    chosen = alt.Chart(alt.NamedData("chosen")).encode(
        x=ranks, y=alt.Y("total:Q", scale=scale, axis=axis)
    )
    outline = chosen.mark_bar(filled=False, stroke=INK, strokeWidth=3)
    label = chosen.mark_text(dy=-9, fontWeight="bold", fontSize=13).encode(text="label:N")
    floor = (
        alt.Chart(alt.NamedData("floor"))
        .mark_rule(strokeDash=[6, 3], strokeWidth=1.5, color=INK)
        .encode(y=alt.Y("floor:Q", scale=scale, axis=axis))
    )
    return bars + letters + floor + outline + label


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
