"""The exercises of *One machine*: solutions pass, and each naive idea meets the hint that is about
it.
"""

from __future__ import annotations

import math

import pytest

from dtlib.teaching.exercises import one_machine as exercises
from tests import solutions_one_machine as solutions

ANSWERS = {
    "check_state_70b": solutions.state_70b_B,
    "check_stage_2_mixtral": solutions.mixtral_B,
    "check_bytes_per_parameter": solutions.paper_bytes,
    "check_sharded_bytes": solutions.sharded_bytes,
    "check_count_parameters": solutions.count_parameters,
}
each = pytest.mark.parametrize("name", exercises.__all__)


@each
def test_the_solution_passes_and_the_stub_is_not_attempted(name):
    assert getattr(exercises, name)(ANSWERS[name]).passed
    assert getattr(exercises, name)(...).status == "not attempted"


def test_the_stubs_of_the_notebook_are_not_attempted():
    def sharded_bytes(parameters: int, ranks: int, stage: int) -> float:
        """As in the chapter."""
        return ...

    def count_parameters(config: dict) -> int:
        """As in the chapter."""
        return ...

    assert exercises.check_sharded_bytes(sharded_bytes).status == "not attempted"
    assert exercises.check_count_parameters(count_parameters).status == "not attempted"


P = 46_702_792_704
NUMBERS = [
    ("check_state_70b", 2 * 70_553_706_496, "weights alone"),
    ("check_state_70b", 4 * 70_553_706_496, "optimizer is missing"),
    ("check_state_70b", 12 * 70_553_706_496, "Four bytes"),
    ("check_state_70b", 14 * 70_553_706_496, "both are there"),
    ("check_state_70b", 18 * 70_553_706_496, "BF16 is asked"),
    ("check_state_70b", 16 * 70.553706496, "power of ten"),
    ("check_state_70b", 16 * 70_553_706_496 / 2**30, "binary prefix"),
    ("check_stage_2_mixtral", 12_879_925_248 * 2.25, "Which experts"),
    ("check_stage_2_mixtral", 56e9 * 2.25, "the name"),
    ("check_stage_2_mixtral", P * (2 + 14 / 64), "FP32 is asked"),
    ("check_stage_2_mixtral", P * 18 / 64, "leave whole"),
    ("check_stage_2_mixtral", P * (6 + 12 / 64), "stage 1"),
    ("check_stage_2_mixtral", P * 18, "divides nothing"),
    ("check_state_70b", 1.1e12, "three significant digits"),
    ("check_state_70b", -1.13e12, "sign"),
    ("check_state_70b", -5, "negative"),
    ("check_stage_2_mixtral", P * (2 + 4 / 64 + 12), "optimizer state whole"),
    ("check_stage_2_mixtral", P * (4 + 16 / 64), "weights of FP32"),
    ("check_stage_2_mixtral", P * (4 + 14 / 64), "swaps the two"),
    ("check_bytes_per_parameter", 17.5, "Not this value"),
    ("check_bytes_per_parameter", 31.64e9 * 280 / 530e9, "reads GiB as GB"),
    ("check_bytes_per_parameter", 31.64 * 2**30 * 8 / 530e9, "one pipeline stage"),
    ("check_bytes_per_parameter", 31.64 * 2**30 / 530e9, "what one GPU holds"),
]


@pytest.mark.parametrize(("name", "wrong", "about"), NUMBERS)
def test_wrong_numbers_get_their_own_hint(name, wrong, about):
    verdict = getattr(exercises, name)(wrong)
    assert verdict.status == "hint" and about in verdict.message


def test_eighteen_bytes_pass_as_what_the_paper_says():
    assert exercises.check_bytes_per_parameter(18).passed
    assert not exercises.check_bytes_per_parameter(16).passed


SHARDED = [
    (lambda p, n, stage: 16 * p / n, "whatever the stage"),
    (lambda p, n, stage: 16 * p / (n if stage else 1), "from the first stage on"),
    (
        lambda p, n, stage: [4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n, 16 * p / n][stage],
        "One stage too far",
    ),
    (lambda p, n, stage: 16 * p, "at any stage"),
    (
        lambda p, n, stage: [16 * p, 4 * p + 12 * p / n, 14 * p + 2 * p / n, 14 * p + 2 * p / n][
            stage
        ],
        "before it",
    ),
    (
        lambda p, n, stage: (
            solutions.sharded_bytes(p, n, stage) + (4 * p * (1 - 1 / n) if stage else 0)
        ),
        "master weights",
    ),
    (lambda p, n, stage: solutions.sharded_bytes(p, n, stage) * n, "sum over all ranks"),
    (
        lambda p, n, stage: solutions.sharded_bytes(p, n, stage) + 2 * p / (n if stage >= 2 else 1),
        "BF16 is asked",
    ),
    (lambda p, n, stage: solutions.sharded_bytes(p, n, stage) / 2**30, "binary prefix"),
    (lambda p, n, stage: solutions.sharded_bytes(p, n, stage) / 1e9, "power of ten"),
    (
        lambda p, n, stage: p * [16, 4 + 12 // n, 2 + 14 // n, 16 // n][stage],
        "optimizer state is gone",
    ),
    (lambda p, n, stage: print(p), "return"),
    (lambda p, n: p, "3 inputs"),
]


@pytest.mark.parametrize(("wrong", "about"), SHARDED)
def test_wrong_sharded_bytes_get_their_own_hint(wrong, about):
    verdict = exercises.check_sharded_bytes(wrong)
    assert verdict.status == "hint" and about in verdict.message


@pytest.mark.parametrize("whole", [int, round, math.ceil])
def test_bytes_may_be_whole(whole):
    assert exercises.check_sharded_bytes(
        lambda p, n, stage: whole(solutions.sharded_bytes(p, n, stage))
    ).passed
    assert exercises.check_sharded_bytes(
        lambda p, n, stage: sum(
            size // (n if stage >= first else 1)
            for first, size in ((3, 2 * p), (2, 2 * p), (1, 12 * p))
        )
    ).passed


def counting(
    *, kv_heads="kv_heads", matrices=3, embeddings=None, layer_norms=2, last_norm=1, output=1
):
    """A count with one thing done wrong."""

    def count(config):
        hidden, width = config["hidden"], config["hidden"] // config["heads"]
        attention = (1 + output) * hidden**2 + 2 * hidden * config[kv_heads] * width
        layer = attention + matrices * hidden * config["ffn"] + layer_norms * hidden
        copies = embeddings or (1 if config["tied"] else 2)
        return config["layers"] * layer + copies * config["vocab"] * hidden + last_norm * hidden

    return count


COUNTS = [
    (counting(kv_heads="heads"), "as wide as queries"),
    (counting(matrices=2), "two matrices"),
    (counting(embeddings=1), "and one is counted"),
    (counting(embeddings=2), "tied here"),
    (counting(layer_norms=0, last_norm=0), "norms are missing"),
    (counting(layer_norms=1), "two norms"),
    (counting(last_norm=0), "One norm is missing"),
    (counting(output=0), "four matrices"),
    (lambda config: float("nan"), "nan"),
    (
        lambda config: config.update(tied=False) or solutions.count_parameters(config),
        "changed its input",
    ),
]


@pytest.mark.parametrize(("wrong", "about"), COUNTS)
def test_wrong_counts_get_their_own_hint(wrong, about):
    verdict = exercises.check_count_parameters(wrong)
    assert verdict.status == "hint" and about in verdict.message


def test_the_solution_meets_the_published_counts():
    llama_2 = {
        "layers": 80,
        "hidden": 8192,
        "vocab": 32000,
        "ffn": 28672,
        "heads": 64,
        "kv_heads": 8,
        "tied": False,
    }
    llama_3 = {
        "layers": 126,
        "hidden": 16384,
        "vocab": 128256,
        "ffn": 53248,
        "heads": 128,
        "kv_heads": 8,
        "tied": False,
    }
    assert solutions.count_parameters(llama_2) == 68_976_648_192
    assert solutions.count_parameters(llama_3) == 405_853_388_800
