"""The explorer of the landing page: the worked example, priced by how many GPUs share one copy of
the model.
"""

from __future__ import annotations

import altair as alt

from dtlib.facts.registry import model, training_run
from dtlib.formulas.collectives import bytes_sent, cost
from dtlib.formulas.memory import training_state
from dtlib.formulas.step_time import compute_time_s, wire_share
from dtlib.network import Network
from dtlib.units import count_text, si
from dtlib.views.charts import Looks, table
from dtlib.views.explorer import Column, Control, Explorer, Shown
from dtlib.views.theme import INK

__all__ = ["the_wire"]

LLAMA = training_run("Llama-3-405B")
GPUS = LLAMA["gpus"].value
PARAMETERS = model("Llama-3.1-405B")["parameters_rounded"].value
COMPUTE_S = compute_time_s(PARAMETERS, LLAMA["batch_tokens"].value, GPUS, LLAMA["achieved"].value)


def _payload_B(shared: int, gradient_dtype: str) -> float:
    """Bytes of the gradients of the parameters that one GPU holds."""
    return training_state(PARAMETERS, gradient_dtype=gradient_dtype).gradients / shared


def _wire_s(shared: int, bandwidth_Bps: float, gradient_dtype: str) -> float:
    """Seconds of a ring all-reduce of one GPU's gradients.

    Latency is left out: the ring's 2(K - 1) hops would add 0.16 s at 5 µs each for 16,384 copies.
    """
    payload = _payload_B(shared, gradient_dtype)
    network = Network.flat(bandwidth_Bps, latency_s=0.0)
    return cost("all_reduce", "ring", payload, GPUS // shared, network).transfer_s


def _seconds(time_s: float) -> str:
    """One unit for every state, so that two of them can be compared at a glance."""
    return f"{time_s:.3g} s"


def _the_wire(shared: int, bandwidth_Bps: float) -> Shown:
    payload = _payload_B(shared, "bf16")
    sent = bytes_sent("all_reduce", "ring", payload, GPUS // shared)
    wire_s = _wire_s(shared, bandwidth_Bps, "bf16")
    share = wire_share(COMPUTE_S, wire_s)
    each = "a whole copy of the model" if shared == 1 else f"1/{shared} of a copy"
    return Shown(
        {
            "bars": [
                {"part": part, "seconds": seconds, "label": _seconds(seconds)}
                for part, seconds in (("Compute", COMPUTE_S), ("Network", wire_s))
            ]
        },
        {
            "waiting": f"{share:.1%}",
            "wire": _seconds(wire_s),
            "fp32": _seconds(_wire_s(shared, bandwidth_Bps, "fp32")),
            "payload": si(payload),
            "sent": si(sent),
            "copies": count_text(GPUS // shared),
        },
        f"Each GPU holds {each} and sends {si(sent)} a step at {si(bandwidth_Bps, 'B/s')}: "
        f"{_seconds(wire_s)} on the network "
        f"after {_seconds(COMPUTE_S)} of computing, {share:.1%} of the step.",
    )


def _chart() -> alt.LayerChart:
    bars = table("bars").encode(
        x=alt.X(
            "seconds:Q",
            title="Seconds in one step",
            scale=alt.Scale(domain=[0, 90]),
            axis=alt.Axis(tickCount=5),
        ),
        y=alt.Y(
            "part:N",
            title=None,
            sort=None,
            axis=alt.Axis(labelFontSize=14, ticks=False, domain=False),
        ),
    )
    color = Looks(("Compute", "Network")).color("part", legend=None)
    label = bars.mark_text(align="left", dx=6, fontSize=16, fontWeight="bold", color=INK).encode(
        text="label:N"
    )
    return alt.layer(bars.mark_bar(size=38).encode(color=color), label)


the_wire = Explorer(
    name="the-wire",
    title="One training step of a 405B model on 16,384 GPUs",
    controls=(
        Control("shared", "GPUs that share one copy of the model", (1, 2, 4, 8, 16, 32, 64, 128)),
        Control(
            "bandwidth_Bps",
            "Bandwidth of each GPU, each way",
            (25e9, 50e9, 100e9, 450e9),
            ("25 GB/s", "50 GB/s", "100 GB/s", "450 GB/s (NVLink)"),
            start=50e9,
            kind="choice",
        ),
    ),
    model=_the_wire,
    chart=_chart(),
    readouts={
        "waiting": "Step spent on the network",
        "wire": "Network time",
        "fp32": "Same, all in FP32",
        "payload": "Gradients on a GPU",
        "sent": "A GPU sends",
        "copies": "Copies of the model",
    },
    columns={"part": Column("Part of the step"), "seconds": Column("Time (s)", ".4~g")},
    height=170,
)
