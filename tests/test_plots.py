"""The same drawing of a simulated log and of a real run's trace."""

import numpy as np
import pytest

from dtlib.facts.sweeps import sweep
from dtlib.ranks import run
from dtlib.simulators.collectives import make
from dtlib.simulators.execute import execute
from dtlib.views.plots import measured_exit, space_time


def arrows(picture):
    """Each arrow's ends, as (source, destination), in the order drawn."""
    return [(int(text.xyann[1]), int(text.xy[1])) for text in picture.figure.axes[0].texts]


def test_a_simulated_and_a_real_ring_are_drawn_alike():
    simulated = execute(make("all_reduce", "ring", 3), [np.arange(6) for _ in range(3)])
    real = run(lambda comm: comm.all_reduce(list(range(6)), algorithm="ring"), ranks=3)
    drawn, felt = space_time(simulated.events), space_time(real.trace)
    assert sorted(arrows(drawn)) == sorted(arrows(felt)) == sorted(4 * [(0, 1), (1, 2), (2, 0)])
    assert (
        "12 transfers among 3 ranks in 4 steps: 6 add what they bring (solid), 6 replace"
        in drawn.alt_text
    )
    assert felt.alt_text.startswith("12 transfers among 3 ranks in ") and "6 add" in felt.alt_text
    assert (
        drawn.figure.axes[0].get_xlabel() == "Steps done"
        and felt.figure.axes[0].get_xlabel() == "Time (ms)"
    )


def test_leaving_the_node_as_measured():
    two, one = sweep("nccl-16xh100-two-nodes"), sweep("nccl-8xh100")
    picture = measured_exit()
    curve = picture.figure.axes[0].lines[-1]
    for size, ratio in zip(*curve.get_data(), strict=True):
        assert ratio == two.at(int(size)) / one.at(int(size))
    assert (
        "Up to 16 MiB it takes 5 to 9 times as long" in picture.alt_text
        and "1.7 times at 1 GiB, 1.5 at 8 GiB" in picture.alt_text
    )
    (band,) = (
        text.get_text() for text in picture.figure.axes[0].texts if "bytes alone" in text.get_text()
    )
    assert band == "bytes alone: 1.3 (overlapped) to 2.3 (in turn)"


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="events must hold a transfer or more, got"):
        space_time([])
