"""The explorers of *A step is a barrier*."""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import numpy as np

from dtlib.formulas.barrier import (
    expected_maximum_s,
    idle_ranks_after_failure,
    slowdown_of_longer_time,
    slowdown_of_lower_rate,
    step_time_s,
    throughput_kept,
    waiting_s,
    waiting_share,
)
from dtlib.formulas.jitter import JITTERS, Distribution, jitter
from dtlib.units import count_text, duration
from dtlib.views.charts import Looks, log_axis, rule, table
from dtlib.views.explorer import Column, Control, Explorer, Shown
from dtlib.views.theme import COLORS, INK

__all__ = ["expected_maximum", "one_slow_rank"]

USUAL_S = 10.0
RANKS_DRAWN = 8
SLOW_RANK = 3
LONGER, LOWER = "takes longer", "runs slower"


def _three_digits(value: float) -> str:
    return count_text(value) if value >= 100 else f"{value:.3g}"


def _one_slow_rank(ranks: int, percent: int, meaning: str) -> Shown:
    slowdown = (
        slowdown_of_longer_time(percent / 100)
        if meaning == LONGER
        else slowdown_of_lower_rate(1 - percent / 100)
    )
    times_s = np.full(ranks, USUAL_S)
    times_s[SLOW_RANK] *= slowdown
    step_s, idle_s = step_time_s(times_s), waiting_s(times_s)
    bars = [
        {
            "rank": f"{rank} (slow)" if rank == SLOW_RANK else str(rank),
            "state": state,
            "from_s": start,
            "to_s": end,
        }
        for rank, time_s in enumerate(times_s[:RANKS_DRAWN])
        for state, start, end in (("computes", 0.0, time_s), ("waits", time_s, step_s))
    ]
    step, wait = duration(step_s, 5), duration(idle_s.max(), 4)
    slow = (
        f"takes {percent}% longer than the usual {duration(USUAL_S)}"
        if meaning == LONGER
        else f"runs at {1 - percent / 100:.2f} of the usual speed"
    )
    return Shown(
        {"ranks": bars, "step": [{"ends_s": step_s, "label": f"barrier: {step}"}]},
        {
            "step": step,
            "slowdown": f"{slowdown:.4f}×",
            "throughput": f"{1 / slowdown:.2%}",
            "waiting": f"{_three_digits(idle_s.sum())} GPU\N{NON-BREAKING HYPHEN}s",
            "share": f"{waiting_share(times_s):.2%}",
            "dead": f"{count_text(idle_ranks_after_failure(ranks))} GPUs",
        },
        f"Rank {SLOW_RANK} {slow}: the other {count_text(ranks - 1)} ranks wait {wait} "
        f"each, and the step takes {step}.",
    )


def _one_slow_rank_chart() -> alt.LayerChart:
    time = alt.X(
        "from_s:Q",
        title="Time in the step (s)",
        scale=alt.Scale(domain=[0, 15]),
        axis=alt.Axis(tickCount=4),
    )
    states = Looks(("computes", "waits"))
    filled = Looks(states.names, colors=(COLORS[0], "transparent"))
    bars = (
        table("ranks")
        .mark_bar(strokeWidth=1.5)
        .encode(
            x=time,
            x2="to_s:Q",
            y=alt.Y("rank:N", title=f"Rank (the first {RANKS_DRAWN})", sort=None),
            fill=filled.color("state", alt.Fill),
            stroke=states.color("state", alt.Stroke),
        )
    )
    step = table("step").encode(x=alt.X("ends_s:Q"))
    label = step.mark_text(align="right", dx=-6, dy=-8, color=INK).encode(
        y=alt.value(0), text="label:N"
    )
    return alt.layer(bars, rule(step), label)


one_slow_rank = Explorer(
    name="one-slow-rank",
    title="One slow rank",
    controls=(
        Control(
            "ranks",
            "Ranks",
            (8, 64, 512, 4096, 16_384, 131_072),
            ("8", "64", "512", "4,096", "16,384", "131,072"),
            start=16_384,
        ),
        Control(
            "percent",
            "One of them is slow by",
            (1, 2, 5, 10, 20, 30),
            ("1%", "2%", "5%", "10%", "20%", "30%"),
            start=10,
        ),
        Control(
            "meaning",
            "which means that it",
            (LONGER, LOWER),
            ("takes longer by this much", "runs slower by this much"),
            kind="choice",
        ),
    ),
    model=_one_slow_rank,
    chart=_one_slow_rank_chart(),
    readouts={
        "step": "Step time",
        "slowdown": "Over the usual 10 s",
        "throughput": "Throughput kept",
        "waiting": "Waiting, all GPUs, per step",
        "share": "Share of GPU time waiting",
        "dead": "Idle if it dies instead",
    },
    columns={
        "rank": Column("Rank"),
        "state": Column("State"),
        "from_s": Column("From (s)", ".4~f"),
        "to_s": Column("To (s)", ".4~f"),
        "ends_s": Column("The step ends (s)", ".4~f"),
    },
    height=270,
)


RANKS = tuple(2**power for power in range(3, 18))
NAMES = {
    "normal": "Normal",
    "lognormal": "Lognormal",
    "exponential": "Exponential tail",
    "uniform": "Uniform",
}
ONE_IN = 10_000


@cache
def _curve(kind: str, percent: int) -> tuple[Distribution, np.ndarray]:
    """A rank's step time with mean 1, and the expected step over that mean at each of RANKS."""
    times = jitter(kind, 1.0, percent / 100)
    return times, expected_maximum_s(times, np.array(RANKS))


def _expected_maximum(kind: str, percent: int, ranks: int) -> Shown:
    times, ratios = _curve(kind, percent)
    curves = [
        {"ranks": n, "shape": NAMES[each], "ratio": ratio}
        for each in JITTERS
        for n, ratio in zip(RANKS, _curve(each, percent)[1], strict=True)
    ]
    ratio, lost = ratios[RANKS.index(ranks)], 1 - throughput_kept(times, ranks)
    rare = times.quantile_s(1 - 1 / ONE_IN)
    return Shown(
        {
            "curves": curves,
            "chosen": [
                {"n": n, "of": NAMES[kind], "chosen": r} for n, r in zip(RANKS, ratios, strict=True)
            ],
            "here": [{"at": ranks, "step": ratio, "label": f"{ratio:.3f}×"}],
        },
        {
            "step": f"{ratio:.4f}×",
            "lost": f"{lost:.2%}",
            "gpus": f"{count_text(lost * ranks)} of {count_text(ranks)}",
            "rare": f"{rare:.4f}×",
        },
        f"Step times with a spread of {percent}% ({NAMES[kind].lower()}) on {count_text(ranks)} "
        "ranks: the slowest is expected "
        f"at {ratio:.3f} times the mean, so waiting takes {lost:.1%} of the throughput.",
    )


def _expected_maximum_chart() -> alt.LayerChart:
    kinds = Looks(tuple(NAMES.values()))

    def ranks(field: str) -> alt.X:
        values = (8, 64, 512, 4096, 32_768)
        return log_axis(alt.X, field, "Ranks (log scale)", RANKS, values, format=",")

    def ratio(field: str) -> alt.Y:
        return alt.Y(
            f"{field}:Q",
            title="Expected step time / mean",
            scale=alt.Scale(domain=[1, 2.2]),
            axis=alt.Axis(tickCount=6),
        )

    def looks(field: str) -> dict[str, Any]:
        return {"color": kinds.color(field), "strokeDash": kinds.dash(field)}

    lines = table("curves").mark_line(strokeWidth=1.5)
    lines = lines.encode(x=ranks("ranks"), y=ratio("ratio"), **looks("shape"))
    chosen = table("chosen").mark_line(strokeWidth=4)
    chosen = chosen.encode(x=ranks("n"), y=ratio("chosen"), **looks("of"))
    here = table("here").encode(x=ranks("at"), y=ratio("step"))
    point = here.mark_point(size=130, color=INK, opacity=1)
    label = here.mark_text(
        align="right", baseline="bottom", dx=-8, dy=-8, fontSize=14, fontWeight="bold", color=INK
    ).encode(text="label:N")
    return alt.layer(lines, chosen, point, label)


expected_maximum = Explorer(
    name="expected-maximum",
    title="The slowest of many",
    controls=(
        Control("kind", "One rank's step time is", JITTERS, tuple(NAMES.values()), kind="choice"),
        Control(
            "percent",
            "Spread: standard deviation over mean",
            (1, 2, 5, 10),
            ("1%", "2%", "5%", "10%"),
            start=2,
        ),
        Control("ranks", "Ranks", RANKS, tuple(map(count_text, RANKS)), start=16_384, play=True),
    ),
    model=_expected_maximum,
    chart=_expected_maximum_chart(),
    readouts={
        "step": "Expected step / mean",
        "lost": "Throughput lost",
        "gpus": "As if idle, in GPUs",
        "rare": f"1 in {count_text(ONE_IN)} takes longer than",
    },
    columns={
        "ranks": Column("Ranks", ","),
        "shape": Column("Step time"),
        "ratio": Column("Expected step / mean", ".4f"),
        "at": Column("Ranks chosen", ","),
        "step": Column("Expected step / mean", ".4f"),
    },
    height=300,
)
