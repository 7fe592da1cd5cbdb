"""The lab: real processes measured beside the prediction, in a panel and recorded for a page."""

from __future__ import annotations

import functools
import html
import itertools
import os
import time
from dataclasses import replace

import numpy as np
import pytest

from dtlib.network import Network
from dtlib.ranks import Cluster, measure
from dtlib.simulators.collectives import make
from dtlib.simulators.schedule import Schedule, Transfer
from dtlib.units import KiB, MiB
from dtlib.views import page
from dtlib.views.lab import all_reduce_lab, description, hierarchy_lab
from dtlib.views.widget import widget

SLOW = Network.flat(bandwidth_Bps=10e6, latency_s=2e-3)


def ring(ranks):
    for step in range(ranks - 1):
        yield [Transfer(r, (r + 1) % ranks, (r - step) % ranks, True) for r in range(ranks)]
    for step in range(ranks - 1):
        yield [Transfer(r, (r + 1) % ranks, (r + 1 - step) % ranks) for r in range(ranks)]


def finished(panel):
    panel.start.click()
    panel.running.join(60)
    assert not panel.running.is_alive() and panel.kill.disabled and not panel.start.disabled
    return panel


@pytest.mark.parametrize("algorithm", ["ring", "tree", "halving_doubling"])
def test_bytes_are_exact_and_time_is_close_to_the_clock(algorithm):
    with Cluster(4) as cluster:
        *_, last = measure.measurements(
            cluster, 256 * KiB, make("all_reduce", algorithm, 4), network=SLOW, rounds=3
        )
    assert last.sent_bytes == last.predicted_bytes > 0
    # Never faster than the network allows; how much slower depends on how busy this machine is.
    assert 0.98 < last.time_s / last.predicted_s < 2


def test_a_sum_that_wraps_around_a_byte_is_still_checked():
    with Cluster(24) as cluster:
        (one,) = measure.measurements(cluster, KiB, make("all_reduce", "ring", 24), rounds=1)
    assert one.sent_bytes == one.predicted_bytes


def test_without_a_network_no_time_is_predicted_and_every_round_is_reported():
    with Cluster(3) as cluster:
        seen = list(measure.measurements(cluster, 0, make("all_reduce", "ring", 3), rounds=4))
    assert (
        len(seen) == 4 and {one.predicted_s for one in seen} == {None} and seen[-1].sent_bytes == 0
    )


@pytest.mark.parametrize(
    "schedule, why",
    [
        (make("all_reduce", "ring", 3), "on 4 ranks"),
        (make("broadcast", "tree", 4), "must be an all_reduce"),
        (Schedule("half", "all_reduce", 4, 4, list(ring(4))[:3]), "must be an all_reduce"),
    ],
)
def test_what_is_no_all_reduce_is_refused_before_any_work(schedule, why):
    with Cluster(4) as cluster, pytest.raises(ValueError, match=why):
        next(measure.measurements(cluster, KiB, schedule))


def test_the_readers_own_ring_runs_and_is_measured():
    panel = finished(widget(all_reduce_lab(ring)))
    assert panel.algorithm.value == "your own" and panel.progress.value == panel.progress.max
    (line,) = panel.lines
    assert (
        line[:5] == ("ring", "4", "1 MiB", "1,572,864", "1,572,864") and "Done" in panel.says.value
    )
    assert "1,572,864" in panel.table.value


@pytest.mark.parametrize(
    "own, why",
    [
        (
            lambda ranks: (yield ...),
            "is not written yet: write it in its exercise, or choose another algorithm",
        ),
        (lambda ranks: ..., "is not written yet"),
        (lambda ranks: (yield 3), "makes no schedule yet"),
        (lambda ranks: [np.array([1, 2])], "makes no schedule yet"),
        (lambda ranks: [[]] * 30_000, "within 10,000 steps"),
        (lambda ranks: None, "must be a list of steps"),
        (lambda ranks: list(ring(ranks))[1:], "is no all-reduce yet"),
        (lambda ranks: 1 / 0, "ZeroDivisionError"),
        (lambda ranks: os.stat("/no/such/file"), "FileNotFoundError"),
        (lambda ranks: exit(), "SystemExit"),
        (lambda ranks: itertools.repeat([]), "does every loop come to its end"),
        (
            lambda ranks: [1 for _ in iter(int, 1)],
            "Does every loop of your function come to its end",
        ),
    ],
)
def test_a_schedule_that_is_wrong_is_said_to_be_and_the_panel_goes_on(own, why):
    panel = finished(widget(all_reduce_lab(own)))
    assert why in html.unescape(panel.says.value) and panel.lines == []
    panel.algorithm.value = "naive"
    assert finished(panel).lines[0][0] == "naive"


def test_anything_that_can_be_called_is_a_function():
    assert finished(widget(all_reduce_lab(functools.partial(ring)))).lines[0][0] == "your own"


def test_every_choice_of_the_panel_is_shown_and_runs():
    panel = widget(all_reduce_lab)
    for box in (panel.algorithm, panel.ranks, panel.payload, panel.network):
        assert None not in [
            value for _, value in box.options
        ]  # which a Dropdown takes for no choice at all
    panel.payload.value, panel.network.value = KiB, len(all_reduce_lab.networks) - 1
    assert panel.network.label == "this machine, as fast as it goes"
    assert finished(panel).lines[0][-2:] == ("not modeled", "–")


def test_a_schedule_of_ones_own_on_two_tiers():
    panel = widget(
        hierarchy_lab(lambda ranks: make("all_reduce", "hierarchical", ranks, node_size=2).steps)
    )
    panel.payload.value = 64 * KiB
    own = finished(panel).lines[0]
    panel.algorithm.value = "ring"
    ring = finished(panel).lines[1]
    assert own[0] == "your own" and own[3] == own[4] == ring[3] == "98,304"
    assert float(own[6].split()[0]) < float(ring[6].split()[0])  # by the clock, in ms both
    assert (
        description(hierarchy_lab.networks[0])
        == "described: inside 180 MB/s each way, 200 µs; across 10 MB/s each way, 1 ms"
    )


def test_a_rank_can_be_killed_in_the_middle_and_the_next_run_works():
    panel = widget(all_reduce_lab)
    panel.payload.value, panel.algorithm.value = (
        16 * MiB,
        "naive",
    )  # about 4 s a round on the described network
    panel.start.click()
    deadline = time.monotonic() + 20
    while "Started" not in panel.says.value:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.5)
    panel.kill.click()
    panel.running.join(10)
    assert (
        not panel.running.is_alive() and "was killed by SIGKILL (exit code -9)" in panel.says.value
    )
    panel.payload.value = KiB
    assert "Done" in finished(panel).says.value


def test_the_page_shows_a_recorded_run_and_no_buttons():
    lab = replace(all_reduce_lab, recorded=(("ring", 2, KiB),))
    text = page.html(lab)
    assert "1,024" in text and "Recorded when this page was built" in text and "make lab" in text
    assert "<button" not in text and "<input" not in text


def test_where_there_are_no_processes_the_schedule_runs_in_one_and_says_so(monkeypatch):
    monkeypatch.setattr("sys.platform", "emscripten")
    panel = finished(widget(all_reduce_lab(ring)))
    assert (
        "Ran on arrays in one process" in panel.says.value and "not emscripten" in panel.says.value
    )
    assert panel.lines[0][:5] == ("ring", "4", "1 MiB", "1,572,864", "1,572,864")


def test_the_lab_takes_a_function_and_nothing_else():
    with pytest.raises(TypeError, match="own must be a function"):
        all_reduce_lab("ring")
