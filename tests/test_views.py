"""Explorers and predictions apart from any browser: states, baking, both hosts, colors."""

from __future__ import annotations

import gzip
import json
import re
from html.parser import HTMLParser

import altair as alt
import numpy as np
import pytest

from dtlib.units import MiB
from dtlib.views import charts, encode, front_end, host, page, theme
from dtlib.views.catalog import EXPLORERS, PREDICTIONS
from dtlib.views.explorer import Column, Control, Explorer, Shown
from dtlib.views.picture import Picture, axes
from dtlib.views.prediction import Prediction
from dtlib.views.widget import ExplorerWidget, PredictionWidget, widget


def powers(base: int, exponent: int) -> Shown:
    rows = [{"e": e, "power": base**e} for e in range(exponent + 1)]
    return Shown(
        {"powers": rows},
        {"last": str(base**exponent)},
        f"{base} to the {exponent} is {base**exponent}.",
    )


def make(**changes) -> Explorer:
    """An explorer whose second control has as many values as the first one's value allows."""
    parts = {
        "name": "powers",
        "title": "Powers",
        "model": powers,
        "readouts": {"last": "The last"},
        "controls": (
            Control("base", "Base", (2, 3), kind="choice"),
            Control(
                "exponent",
                "Exponent",
                tuple(range(5)),
                start=2,
                limit=lambda base: 5 if base == 2 else 3,
            ),
        ),
        "columns": {"e": Column("Exponent"), "power": Column("Power", ",d")},
        "chart": alt.Chart(alt.NamedData("powers"))
        .mark_line(point=True)
        .encode(x="e:Q", y="power:Q"),
    } | changes
    return Explorer(**parts)


def states_of(baked: dict) -> dict[tuple[int, ...], dict]:
    """What the front end would look up, read from the baked data as it does."""
    found = {}

    def walk(node, at):
        if len(node) == 3 and isinstance(node[2], str):
            numbers, readouts, alt_text = node
            tables = {
                name: baked["pool"][number]
                for name, number in zip(baked["names"], numbers, strict=True)
            }
            found[at] = {"tables": tables, "readouts": readouts, "alt_text": alt_text}
            return
        for position, child in enumerate(node):
            walk(child, (*at, position))

    walk(baked["index"], ())
    return found


def test_a_control_can_be_limited_by_those_before_it():
    explorer = make()
    assert explorer.counts((1, 0)) == (2, 3)
    assert explorer.within((1, 4)) == (1, 2) and explorer.within((-3, 99)) == (0, 4)
    assert set(explorer.states()) == {(0, e) for e in range(5)} | {(1, e) for e in range(3)}
    assert explorer(base=3, exponent=4).start == (1, 2)


@pytest.mark.parametrize(
    "values, error",
    [
        ({"base": 4}, "base must be one of 2, 3, got 4"),
        ({"base": "2"}, "base must be one of"),
        ({"base": True}, "base must be one of"),
        ({"exponent": 2.5}, "exponent must be one of"),
        ({"exponent": float("nan")}, "exponent must be one of"),
    ],
)
def test_values_that_no_control_has_are_named(values, error):
    with pytest.raises(ValueError, match=error):
        make().shown(**values)


def test_an_unknown_control_is_named():
    with pytest.raises(TypeError, match="powers has no control 'bases'"):
        make().shown(bases=2)


def test_a_model_that_leaves_something_out_is_refused():
    with pytest.raises(ValueError, match="declared are"):
        make(readouts={"last": "The last", "first": "The first"}).shown()
    with pytest.raises(ValueError, match="no table has the column 'cube'"):
        make(columns={"cube": Column("Cube")}).shown()


@pytest.mark.parametrize(
    "bad, error",
    [(float("nan"), ValueError), (np.inf, ValueError), (1j, TypeError), ([1], TypeError)],
)
def test_nothing_but_finite_numbers_and_text_reaches_a_reader(bad, error):
    explorer = make(
        model=lambda base, exponent: Shown({"powers": [{"e": 1, "power": bad}]}, {"last": ""}, "")
    )
    with pytest.raises(error, match="a table holds"):
        encode.baked(explorer)


def test_every_baked_state_is_the_computed_one_and_equal_tables_are_stored_once():
    explorer = make(model=lambda base, exponent: powers(2, exponent))
    states = states_of(encode.baked(explorer))
    assert set(states) == set(explorer.states())
    for at, state in states.items():
        computed = encode.shown_state(explorer, at)
        assert state == {key: computed[key] for key in ("tables", "readouts", "alt_text")}
    assert len(encode.baked(explorer)["pool"]) == 5, "eight states hold five different tables"


def test_numpy_numbers_are_encoded_as_plain_ones():
    rows = [{"e": np.int64(1), "power": np.float32(0.1)}]
    explorer = make(model=lambda base, exponent: Shown({"powers": rows}, {"last": ""}, ""))
    assert encode.shown_state(explorer, (0, 0))["tables"] == {"powers": {"e": [1], "power": [0.1]}}


class _Data(HTMLParser):
    """Collects what is inside the JSON script, as a browser would."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.text = False, ""

    def handle_starttag(self, tag, attrs):
        self.inside = ("type", "application/json") in attrs

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        self.text += data if self.inside else ""


def test_the_page_carries_every_state_whatever_the_text_holds():
    explorer = make(
        title="</script><b>&",
        model=lambda base, exponent: Shown(
            {"powers": [{"e": 1, "power": 2}]}, {"last": "</script>"}, "<\"&'>"
        ),
    )
    parser = _Data()
    parser.feed(page.html(explorer))
    data = json.loads(parser.text)
    assert data["spec"]["title"] == "</script><b>&" and data["baked"]["index"][0][0][1] == [
        "</script>"
    ]


def test_the_host_is_chosen_by_the_environment(monkeypatch):
    monkeypatch.setenv("DTLIB_HOST", "page")
    assert set(host.mimebundle(make())) == {"text/html", "text/plain"}
    monkeypatch.setenv("DTLIB_HOST", "notebook")
    data = host.mimebundle(make())
    assert "application/vnd.jupyter.widget-view+json" in (
        data[0] if isinstance(data, tuple) else data
    )
    monkeypatch.setenv("DTLIB_HOST", "paper")
    with pytest.raises(
        ValueError, match="DTLIB_HOST must be one of 'notebook', 'page', got 'paper'"
    ):
        host.mimebundle(make())


def test_both_hosts_show_the_same():
    explorer = make()
    live, states = widget(explorer), states_of(encode.baked(explorer))
    assert isinstance(live, ExplorerWidget)
    for at in explorer.states():
        live.asked = list(at)
        assert live.shown["at"] == list(at) and live.shown["counts"] == list(explorer.counts(at))
        assert {key: live.shown[key] for key in ("tables", "readouts", "alt_text")} == states[at]


def test_an_exception_in_a_model_is_shown_in_the_widget_and_the_next_state_works():
    def fails(base, exponent):
        if exponent == 4:
            raise ValueError("exponent must be below 4, got 4")
        return powers(base, exponent)

    live = widget(make(model=fails))
    live.asked = [0, 4]
    assert live.shown == {"error": "ValueError: exponent must be below 4, got 4"}
    live.asked = [0, 1]
    assert live.shown["readouts"] == ["2"]


def test_a_prediction_refuses_an_answer_that_is_no_number():
    for bad in (float("nan"), "81", None, True):
        with pytest.raises((TypeError, ValueError), match="answer must be"):
            Prediction("gpus", "How many?", "GPUs", bad, "Because.")
    assert isinstance(
        widget(Prediction("gpus", "How many?", "GPUs", 81, "Because.")), PredictionWidget
    )


def test_the_chart_code_has_vega_inside_and_imports_nothing():
    code = front_end.page_file("explorers.js")
    assert not re.search(r"""\b(from|import)\s*\(?["']https?:""", code)
    assert "mountBaked" in code and len(code) > 400_000
    for name in front_end.PAGE_FILES:
        assert "//cdn" not in front_end.page_file(name)


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("paper", ["#ffffff", "#121212"])
@pytest.mark.parametrize("color", theme.COLORS)
def test_colors_stand_out_in_light_and_dark(color, paper):
    light, dark = sorted((luminance(color), luminance(paper)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3


def test_a_picture_needs_words_and_takes_the_ink_of_the_page():
    plot = axes()
    plot.plot([1, 2], [1, 4])
    plot.set_xlabel("n")
    html = Picture(plot.figure, "Four at 2 & one at 1.")._repr_html_()
    assert (
        'aria-label="Four at 2 &amp; one at 1."' in html
        and "currentColor" in html
        and "#010203" not in html
    )
    with pytest.raises(ValueError, match="alt_text must describe the picture"):
        Picture(plot.figure, " ")


@pytest.mark.parametrize("name", EXPLORERS)
def test_every_state_of_every_explorer_is_finite_and_no_control_is_dead(name):
    """What a page carries is small, and moving any control by one changes a number or a table."""
    explorer = EXPLORERS[name]
    baked = encode.baked(explorer)
    states = states_of(baked)
    assert set(states) == set(explorer.states()) and len(states) <= 1500
    page_text = json.dumps(baked, separators=(",", ":"))
    assert len(gzip.compress(page_text.encode())) < 150_000
    for at, state in states.items():
        texts = [*state["readouts"], state["alt_text"]]
        assert all(texts) and state["alt_text"].endswith("."), at
        assert not re.search(r"\b(nan|inf|None)\b|e\+", " ".join(texts), re.I), at
        for position, control in enumerate(explorer.controls):
            moved = states.get((*at[:position], at[position] + 1, *at[position + 1 :]))
            assert moved != state, f"{control.name} changes nothing at {explorer.values(at)}"


@pytest.mark.parametrize("name", PREDICTIONS)
def test_hints_of_predictions_are_about_wrong_numbers(name):
    prediction = PREDICTIONS[name]
    wrong = [value for value, _ in prediction.hints]
    assert len(set(wrong)) == len(wrong)
    for value in wrong:
        assert abs(value - prediction.answer) > prediction.tolerance * abs(prediction.answer), value


# What charts share


def test_a_named_thing_keeps_its_looks_where_others_are_left_out():
    looks = charts.Looks(("ring", "tree", "naive"))
    for channel in ("color", "dash", "shape"):
        every = getattr(looks, channel)("of").to_dict()["scale"]
        some = getattr(looks.only("naive", "ring"), channel)("of").to_dict()["scale"]
        assert some["domain"] == ["naive", "ring"] and len(every["range"]) == 3
        assert some["range"] == [every["range"][2], every["range"][0]]
    assert looks.color("of", alt.Fill).to_dict()["field"] == "of"


def test_curves_are_lines_with_marks_on_logarithmic_axes_and_a_rule():
    """Drawn by Vega: labels of bytes and seconds, both algorithms in the legend, sparse marks."""
    sizes, times = [2**power for power in range(10, 33)], [1e-6, 1e-3, 1.0]
    rows = [
        {"payload": size, "algorithm": name, "time_s": size / rate + 2e-6, "mark": size == 2**20}
        for name, rate in (("ring", 50e9), ("tree", 5e9))
        for size in sizes
    ]
    chart = charts.curves(
        charts.Looks(("ring", "tree")),
        "algorithm",
        charts.payload_axis("payload", sizes),
        charts.time_axis(alt.Y, "time_s", times),
        charts.rule(charts.table("here"), x="at:Q"),
    )
    explorer = make(
        controls=(Control("a", "A", (1, 2)),),
        model=lambda a: Shown({"curves": rows, "here": [{"at": MiB}]}, {"last": "1"}, "Two."),
        columns={"payload": Column("Payload")},
        chart=chart,
    )
    drawn = encode.static_svg(explorer)
    texts = re.findall(r">([^<>]+)</text>", drawn)
    assert {"Payload S", "Time", "32 KiB", "1 MiB", "1 GiB", "1 µs", "1 ms", "1 s"} <= set(texts)
    assert {"ring", "tree"} <= set(texts)
    assert drawn.count('stroke-dasharray="4,3"') == 1 and drawn.count('dasharray="6,3"') == 1
