"""The explorers and predictions of *All-reduce*; the ring is the same wherever it appears."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest

from dtlib.facts.fact import FactError
from dtlib.facts.registry import fact
from dtlib.facts.sweeps import read, sweep
from dtlib.formulas import collectives as closed
from dtlib.formulas.regimes import balance_bytes
from dtlib.network import Network
from dtlib.simulators import checker, clock
from dtlib.simulators.collectives import make
from dtlib.simulators.execute import execute
from dtlib.simulators.schedule import Schedule
from dtlib.units import GB, GiB
from dtlib.views import encode, plots
from dtlib.views.explorers import all_reduce as views
from dtlib.views.predictions import all_reduce as predictions
from tests.explorers import silent_moves

FLAT = Network.flat(bandwidth_Bps=50e9, latency_s=5e-6)
EXPLORERS = [views.ring, views.bytes_per_rank, views.time_against_size, views.time_against_ranks]


def curve(shown, algorithm, x, y):
    """The points of one algorithm's curve, by x."""
    return {row[x]: row[y] for row in shown.tables["curves"] if row["algorithm"] == algorithm}


# --- The ring -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ledger_L06_and_L07_formula_schedule_clock_and_explorer_agree(ranks):
    """One ring: as closed form, as a schedule counted, timed and run, and as what the reader is
    shown.
    """
    share = Fraction(2 * (ranks - 1), ranks)
    payload = 840 * GB  # divisible by every number of ranks
    assert closed.bytes_sent("all_reduce", "ring", payload, ranks) == share * payload
    assert closed.messages("all_reduce", "ring", ranks) == 2 * (ranks - 1)

    schedule = make("all_reduce", "ring", ranks)
    assert len(schedule.steps) == 2 * (ranks - 1)
    assert (
        set(checker.count_bytes_sent(schedule, payload))
        == set(checker.count_bytes_received(schedule, payload))
        == {share * payload}
    )
    assert clock.time_s(schedule, FLAT, payload) == pytest.approx(
        2 * (ranks - 1) * 5e-6 + float(share) * payload / 50e9, rel=1e-12
    )

    events = execute(schedule, [np.ones(ranks)] * ranks).events
    assert sum(event.bytes for event in events if event.source == 1) == share * 8 * ranks

    last = views.ring.shown(ranks=ranks, step=2 * (ranks - 1)).readouts
    assert (
        last["step"] == f"{2 * (ranks - 1)} of {2 * (ranks - 1)}"
        and last["complete"] == f"{ranks} of {ranks}"
    )
    chunks, of, shown_share = re.fullmatch(r"(\d+) × S/(\d+) = ([\d.]+) × S", last["sent"]).groups()
    assert Fraction(int(chunks), int(of)) == share and float(shown_share) == pytest.approx(
        float(share), rel=5e-3
    )
    bytes_shown = curve(views.bytes_per_rank.shown(payload=GB), "ring", "ranks", "sent_GB")
    if ranks in bytes_shown:
        assert bytes_shown[ranks] == pytest.approx(float(share))


@pytest.mark.parametrize("ranks", [2, 3, 7, 8])
def test_every_step_of_the_ring_moves_one_chunk_a_rank(ranks):
    before = views.ring.shown(ranks=ranks, step=0)
    assert before.tables["arrows"] == [] and before.readouts["phase"] == "before the first step"
    held = {(row["rank"], row["chunk"]): row["held"] for row in before.tables["cells"]}
    assert set(held.values()) == {1} and len(held) == ranks**2
    for step in range(1, 2 * (ranks - 1) + 1):
        shown = views.ring.shown(ranks=ranks, step=step)
        now = {(row["rank"], row["chunk"]): row["held"] for row in shown.tables["cells"]}
        arrivals = [row for row in shown.tables["cells"] if row["arrived"] != "unchanged"]
        assert sorted(row["rank"] for row in arrivals) == list(range(ranks))
        adding = step < ranks
        assert shown.readouts["phase"] == ("reduce-scatter" if adding else "all-gather")
        for row in arrivals:
            place = row["rank"], row["chunk"]
            assert row["arrived"].endswith(f"by rank {(row['rank'] - 1) % ranks}")
            assert row["arrived"].startswith("added to" if adding else "replaced")
            assert now[place] == (step + 1 if adding else ranks)
        changed = {place for place in now if now[place] != held[place]}
        assert changed == {(row["rank"], row["chunk"]) for row in arrivals}
        complete = max(0, step - ranks + 2)
        assert shown.readouts["complete"] == f"{complete} of {ranks}"
        assert (
            f"has sent {step} chunk{'' if step == 1 else 's'} of S/{ranks} and holds {complete} "
            "complete" in shown.alt_text
        )
        held = now


def test_the_closing_transfer_is_drawn_on_both_sides():
    arrows = views.ring.shown(ranks=4, step=1).tables["arrows"]
    assert len(arrows) == 5  # four transfers, one of them in two parts
    out, back = (
        next(row for row in arrows if row[end] == at)
        for end, at in (("x2", 3 + views.EDGE), ("x", -views.EDGE))
    )
    assert out["y"] == back["y"] and out["x"] > 3 and back["x2"] < 0
    assert all(row["x2"] > row["x"] for row in arrows)


def test_another_ring_would_be_noticed(monkeypatch):
    """The explorer draws the log of the schedule: a schedule with a swapped chunk is drawn as it
    is, and does not end.
    """
    steps = list(make("all_reduce", "ring", 4).steps)
    steps[1] = steps[1]._replace(chunk=steps[1].chunk[::-1].copy())
    broken = Schedule("broken", "all_reduce", 4, 4, steps)
    monkeypatch.setattr(views, "make", lambda *_: broken)
    held = [row["held"] for row in views.ring.shown(ranks=4, step=6).tables["cells"]]
    assert held != [4] * 16


# --- Bytes and time -------------------------------------------------------------------------------


def test_bytes_of_the_busiest_rank():
    shown = views.bytes_per_rank.shown(ranks=1024, payload=GB)
    assert shown.readouts == {"ring": "1.998 GB", "tree": "10 GB", "naive": "1.023 TB"}
    for name, key in (("ring", "ring"), ("naive tree", "tree"), ("naive (rank 0)", "naive")):
        drawn = curve(shown, name, "ranks", "sent_GB")
        for ranks in (2, 8, 64):
            counted = checker.count_bytes_sent(make("all_reduce", key, ranks), GB).max()
            assert drawn[ranks] * GB == pytest.approx(counted, rel=1e-6)


def test_careful_12_a_double_tree_has_few_hops_and_full_bandwidth():
    """Ring against the naive tree only would teach that few hops cost bandwidth: the double tree
    has both.
    """
    shown = views.time_against_ranks.shown(payload=2**32, latency=5e-6, bandwidth=50e9)
    tree, double, ring = (
        curve(shown, name, "ranks", "time_s") for name in ("naive tree", "double tree", "ring")
    )
    bytes_once = 2**32 / 50e9
    assert tree[16_384] > 25 * bytes_once
    assert 2 * bytes_once < double[16_384] < 2.3 * bytes_once
    assert double[16_384] < ring[16_384] / 1.5

    small = views.time_against_ranks.shown(payload=1024, latency=5e-6, bandwidth=50e9)
    double, ring = (curve(small, name, "ranks", "time_s") for name in ("double tree", "ring"))
    assert ring[16_384] > 500 * double[16_384]
    assert double[16_384] < 4.1 * 14 * 5e-6
    assert set(views.ALGORITHMS) >= {"ring", "tree", "double_tree"}, (
        "the naive tree is never shown without the double one"
    )


@pytest.mark.parametrize("key", views.ALGORITHMS)
def test_drawn_times_are_those_of_the_clock(key):
    shown = views.time_against_size.shown(ranks=16, latency=5e-6, bandwidth=50e9)
    drawn = curve(shown, views.ALGORITHMS[key], "payload", "time_s")
    for payload in (2**16, 2**24):
        pieces = (
            {"pieces": closed.best_pieces("all_reduce", key, payload, 16, FLAT)}
            if key == "double_tree"
            else {}
        )
        schedule = make("all_reduce", key, 16, **pieces)
        assert clock.time_s(schedule, FLAT, payload) == pytest.approx(drawn[payload], rel=1e-3)


@pytest.mark.parametrize("ranks", [2, 64, 1024])
def test_the_regimes_meet_where_half_of_the_time_is_latency(ranks):
    balance = balance_bytes("all_reduce", "ring", ranks, FLAT)
    assert balance == pytest.approx(ranks * 5e-6 * 50e9)
    cost = closed.cost("all_reduce", "ring", balance, ranks, FLAT)
    assert cost.latency_s == pytest.approx(cost.transfer_s)
    shown = views.time_against_size.shown(ranks=ranks, latency=5e-6, bandwidth=50e9)
    [shade] = shown.tables["shade"]
    assert shade["to"] == pytest.approx(balance) and shown.tables["edge"] == [{"edge": shade["to"]}]
    for row in shown.tables["asymptotes"]:
        total = curve(shown, "ring", "payload", "time_s")[row["size"]]
        assert total == pytest.approx(row["floor_s"] + row["wire_s"])
        assert (row["floor_s"] > row["wire_s"]) == (row["size"] < balance)


def test_an_edge_beyond_the_chart_is_not_drawn():
    shown = views.time_against_size.shown(ranks=16_384, latency=20e-6, bandwidth=450e9)
    assert shown.readouts["balance"] == "137 GiB" and shown.tables["edge"] == []
    [shade] = shown.tables["shade"]
    assert shade["to"] == views.WIDEST and (shade["left"], shade["right"]) == ("◂ latency", "")


def test_legend_symbols_have_no_dashed_outline():
    for explorer in EXPLORERS[1:]:
        [legend] = encode.explorer_spec(explorer)["vega"]["legends"]
        assert "strokeDash" not in legend and "shape" in legend, explorer.name


def test_a_balance_needs_messages_and_a_fixed_latency():
    with pytest.raises(ValueError, match="ranks must be at least 2, got 1"):
        balance_bytes("all_reduce", "ring", 1, FLAT)
    with pytest.raises(ValueError, match="algorithm must not be pipelined, got 'double_tree'"):
        balance_bytes("all_reduce", "double_tree", 8, FLAT)


def test_the_fastest_is_the_lowest_curve():
    shown = views.time_against_size.shown(ranks=64, latency=5e-6, bandwidth=50e9)
    for size, readout in ((4096, "small"), (GiB, "large")):
        times = {
            name: curve(shown, name, "payload", "time_s")[size]
            for name in views.ALGORITHMS.values()
        }
        first = shown.readouts[readout].split(" or ")[0]
        assert times[first] == pytest.approx(min(times.values()))


# --- All of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("explorer", EXPLORERS, ids=lambda e: e.name)
def test_every_control_changes_a_readout_at_every_setting(explorer):
    assert silent_moves(explorer) == []


def test_no_point_leaves_the_fixed_axes_and_dotted_lines_are_named():
    domains = {"sent_GB": (0.08, 1.3e4), "time_s": (1e-6, 10)}
    for explorer in EXPLORERS[1:]:
        for at in explorer.states():
            tables = explorer.at(at).tables
            for row in tables["curves"]:
                for field, (low, high) in domains.items():
                    assert field not in row or low <= row[field] <= high, (explorer.name, at, row)
            if explorer is views.time_against_size:
                parts = {row["size"]: row for row in tables["asymptotes"]}
                latency, wire = tables["names"]
                assert latency["start"] + latency["end"] == "latency part", at
                assert wire["under"] == "bytes part", at
                assert latency["part_s"] == parts[latency["size"]]["floor_s"], at
                assert wire["part_s"] == parts[wire["size"]]["wire_s"] > views.TIMES[0], at


# --- Measured, and predicted ----------------------------------------------------------------------


def test_the_sweep_gives_the_bus_bandwidth_its_benchmark_printed():
    printed_GBps = {2**20: 67.04, 2**24: 237.21, 2**27: 400.53, 2**30: 466.33, 2**34: 479.90}
    measured = sweep("nccl-8xh100")
    for payload, bus in printed_GBps.items():
        assert closed.bus_bandwidth_Bps(
            "all_reduce", payload, measured.at(payload), 8
        ) / 1e9 == pytest.approx(bus, abs=0.25)
    best = closed.bus_bandwidth_Bps("all_reduce", measured.payload_bytes, measured.time_s, 8).max()
    assert fact("bus-8xh100.nvls").each_way_Bps == pytest.approx(best, rel=1e-4)
    assert measured.time_s.min() == pytest.approx(13e-6)


def test_careful_3_and_4_above_the_wire_yet_no_faster_wire():
    measured = sweep("nccl-8xh100")
    rate_Bps = closed.algorithm_bandwidth_Bps(measured.payload_bytes, measured.time_s).max()
    wire_Bps, ring_Bps = fact("h100-sxm.scaleup").each_way_Bps, fact("bus-8xh100.ring").each_way_Bps
    assert rate_Bps < wire_Bps < closed.bus_bandwidth_Bps("all_reduce", 1.0, 1 / rate_Bps, 8)
    assert 0.80 < ring_Bps / wire_Bps < 0.83
    assert fact("bus-8xh100.nvls").each_way_Bps / ring_Bps == pytest.approx(1.3, abs=0.01)
    picture = plots.measured_bus_bandwidth()
    for said in (
        "Measured",
        "13 µs",
        "480 GB/s at 8 GiB",
        "450 GB/s of the wire",
        "370 GB/s of a ring",
    ):
        assert said in picture.alt_text
    assert "<svg" in picture._repr_html_()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('note = "', 'noted = "', "missing field 'note'"),
        ('kind = "measured"', 'kind = "nominal"', "kind must be 'measured', got 'nominal'"),
        ("checked = 2026-11-29", 'checked = "today"', "checked must be a date"),
        ("8, 16, 32,", "8, 16,", "one time a size"),
        ("8, 16, 32,", "8, 32, 16,", "sizes must grow"),
        ("13.67e-6", "0.0", "times be above 0"),
        ("collective =", 'color = "red"\ncollective =', "unknown field 'color'"),
    ],
)
def test_an_incomplete_sweep_is_refused(tmp_path, old, new, complaint):
    from importlib.resources import files

    text = files("dtlib.facts").joinpath("sweeps.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "sweeps.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FactError, match=re.escape(complaint)):
        read(tmp_path / "sweeps.toml")


def test_a_sweep_of_an_unknown_source_or_size_is_refused(tmp_path):
    with pytest.raises(ValueError, match="payload_bytes must be one of"):
        sweep("nccl-8xh100").at(9)
    with pytest.raises(ValueError, match="sweep must be one of 'nccl-8xh100', .*, got 'nccl'"):
        sweep("nccl")


def test_predictions():
    assert predictions.root_bytes.answer == 7
    assert predictions.ring_bytes.answer == pytest.approx(2 * 16_383 / 16_384)
    assert predictions.tiny_payload.answer == pytest.approx(163.83)
    assert predictions.bus_bandwidth.answer == pytest.approx(466.33, abs=0.01)


def test_hints_are_not_the_answer():
    for name in predictions.__all__:
        prediction = getattr(predictions, name)
        wrong = [value for value, _ in prediction.hints]
        assert wrong and len(set(wrong)) == len(wrong), name
        assert not any(
            math.isclose(value, prediction.answer, rel_tol=2 * prediction.tolerance)
            for value in wrong
        ), name


def test_the_worked_times_of_the_chapter():
    """Ring, naive tree, double tree and halving-doubling for 1 GiB on 16,384 ranks, worked out by
    hand.
    """
    S, B, a = 2**30, 50e9, 5e-6
    by_hand = {
        "ring": 2 * 16_383 * a + 2 * 16_383 / 16_384 * S / B,
        "tree": 28 * (a + S / B),
        "halving_doubling": 28 * a + 2 * 16_383 / 16_384 * S / B,
        "double_tree": min(2 * (2 * m + 25) * (a + S / (2 * m) / B) for m in range(1, 2000)),
    }
    for name, time_s in by_hand.items():
        assert closed.cost(
            "all_reduce", name, S, 16_384, Network.flat(B, a)
        ).total_s == pytest.approx(time_s, rel=1e-9)
