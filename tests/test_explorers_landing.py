"""The landing page's explorer against the ledger's worked example."""

import gzip
import json
import re

import pytest

from dtlib.views import encode
from dtlib.views.explorers import landing
from dtlib.views.explorers.landing import the_wire

SCALE = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "": 1}


@pytest.fixture
def figure(ledger):
    return lambda row: float(ledger[row]["value"])


def amount(text):
    """The number that a readout prints, in base units."""
    number, prefix, unit = re.fullmatch(r"([\d.,]+) ?([kMGT]?)(B|s|%)?", text).groups()
    return float(number.replace(",", "")) * SCALE[prefix] * (0.01 if unit == "%" else 1)


def bars(**values):
    return {bar["part"]: bar["seconds"] for bar in the_wire.shown(**values).tables["bars"]}


def test_ledger_L18_to_L25_one_gpu_a_copy(figure):
    shown = the_wire.shown(shared=1, bandwidth_Bps=50e9).readouts
    assert amount(shown["payload"]) == figure("L18")
    assert amount(shown["sent"]) == pytest.approx(
        figure("L19"), rel=1e-3
    )  # 2(K-1)/K for K = 16384 is 2 to four digits
    assert amount(shown["wire"]) == pytest.approx(figure("L20"), rel=1e-3)
    assert bars(shared=1)["Network"] == pytest.approx(
        2 * 16_383 / 16_384 * 8.1e11 / 50e9, rel=1e-12
    )
    assert bars(shared=1)["Compute"] == pytest.approx(figure("L23"), rel=1e-12)
    assert amount(shown["waiting"]) == pytest.approx(figure("L24"), abs=1e-3)
    assert 1 - amount(shown["waiting"]) == pytest.approx(figure("L25"), abs=1e-3)
    assert shown["copies"] == "16,384"


def test_ledger_L26_to_L31_the_published_plan(figure):
    shown, at = the_wire.shown(shared=128, bandwidth_Bps=50e9).readouts, bars(shared=128)
    assert figure("L26") == landing.PARAMETERS / 128
    assert amount(shown["payload"]) == pytest.approx(figure("L27"), rel=1e-3)
    assert amount(shown["sent"]) == pytest.approx(figure("L28"), rel=5e-3)
    assert at["Network"] == pytest.approx(figure("L29"), rel=1e-5)
    assert at["Network"] / at["Compute"] == pytest.approx(figure("L30"), rel=1e-4)
    assert figure("L20") / at["Network"] == pytest.approx(figure("L31"), rel=1e-4)
    assert bars(shared=1)["Network"] / at["Network"] == pytest.approx(129, rel=1e-12)  # 16383 / 127
    assert shown["copies"] == "128"
    assert amount(shown["waiting"]) == pytest.approx(
        0.0388, abs=5e-4
    )  # of the whole step; L30 is over computing


def test_fp32_gradients_double_the_bytes():
    for at in the_wire.states():
        shown = the_wire.at(at).readouts
        assert amount(shown["fp32"]) == pytest.approx(2 * amount(shown["wire"]), rel=0.01)


def test_bandwidth_is_each_way(figure):
    """The NVLink of an H100 prints 900 GB/s for both directions; a ring sends on one of them."""
    assert bars(bandwidth_Bps=450e9)["Network"] == pytest.approx(figure("L20") / 9, rel=1e-3)


def test_a_ring_that_forgets_one_of_its_halves_is_caught(monkeypatch, figure):
    whole = landing.cost
    monkeypatch.setattr(
        landing, "cost", lambda *args, **more: whole("reduce_scatter", *args[1:], **more)
    )
    with pytest.raises(AssertionError):
        test_ledger_L18_to_L25_one_gpu_a_copy(figure)


def test_no_control_is_dead_and_every_bar_fits():
    readouts = {at: the_wire.at(at).readouts for at in the_wire.states()}
    assert len(readouts) == 32
    for (shared, bandwidth), shown in readouts.items():
        for moved in ((shared + 1, bandwidth), (shared, bandwidth + 1)):
            assert readouts.get(moved, {}).get("wire") != shown["wire"]
    assert max(bar["seconds"] for at in readouts for bar in the_wire.at(at).tables["bars"]) < 70


def test_the_sentence_holds_the_numbers():
    for at in the_wire.states():
        shown = the_wire.at(at)
        assert all(shown.readouts[name] in shown.alt_text for name in ("wire", "sent", "waiting"))


def test_light():
    assert len(gzip.compress(json.dumps(encode.baked(the_wire)).encode())) < 150 * 1024
    assert encode.static_svg(the_wire).startswith("<svg")


@pytest.mark.parametrize("bad", [0, 3, True, "8", 2.0, None])
def test_a_value_off_the_scale_is_named(bad):
    with pytest.raises(ValueError, match="shared"):
        the_wire.shown(shared=bad)
