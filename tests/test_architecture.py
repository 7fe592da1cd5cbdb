"""Parameter counts against published ones, FLOPs against matrices multiplied one by one,
utilization, divisibility.
"""

from __future__ import annotations

import csv
from dataclasses import FrozenInstanceError, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dtlib.facts import registry
from dtlib.facts.fact import ConventionError
from dtlib.formulas.architecture import (
    Architecture,
    Attention,
    Experts,
    LatentAttention,
    active_parameters,
    architecture,
    forward_flops_per_token,
    parameters,
    parameters_by_part,
    six_n_flops,
    tensor_shard,
    training_flops_per_token,
)
from dtlib.formulas.utilization import mfu

ROWS = (Path(__file__).parent / "data" / "ledger.csv").read_text(encoding="utf-8").splitlines()
LEDGER = {row["id"]: row for row in csv.DictReader(ROWS)}

# Totals printed with the checkpoints; typed here once more, so that a slip in models.toml does not
# pass.
EXACT = {
    "GPT-2": 124_439_808,
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Qwen2.5-72B": 72_706_203_648,
    "Mixtral-8x7B": 46_702_792_704,
    "DeepSeek-V3": 671_026_419_200,
}
SMALL = Architecture(
    layers=2, hidden=8, vocab=10, attention=Attention(heads=4, kv_heads=2, head_dim=2), ffn=16
)


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_exactly_the_published_count(name):
    assert parameters(architecture(name)) == EXACT[name] == registry.model(name)["parameters"].value


def test_rounded_published_counts():
    assert round(parameters(architecture("GPT-3-175B")) / 1e9) == 175
    assert round(parameters(architecture("DeepSeek-V3")) / 1e9) == 671
    assert abs(active_parameters(architecture("DeepSeek-V3")) - 37e9) < 1e9
    assert round(active_parameters(architecture("Mixtral-8x7B")) / 1e9, 1) == 12.9
    assert set(EXACT) | {"GPT-3-175B"} == set(registry.models())


@pytest.mark.parametrize("name", registry.models())
def test_parts_add_up_and_active_is_total_without_experts(name):
    arch = architecture(name)
    assert sum(parameters_by_part(arch, active=False).values()) == parameters(arch)
    assert (active_parameters(arch) == parameters(arch)) == (arch.experts is None)


def tensors(arch: Architecture):
    """Every weight of an architecture with ordinary attention, one by one: (matrix?, elements, used
    by a token?).
    """
    attention, hidden = arch.attention, arch.hidden
    width, kv_width = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    yield False, arch.vocab * hidden, True
    yield True, 0 if arch.tied else arch.vocab * hidden, True
    yield False, hidden * (1 if arch.norm == "rms" else 2), True
    for layer in range(arch.layers):
        yield from ((False, hidden * (1 if arch.norm == "rms" else 2), True) for _ in "12")
        yield from ((True, hidden * each, True) for each in (width, kv_width, kv_width, width))
        yield from (
            (False, each * attention.qkv_bias, True) for each in (width, kv_width, kv_width)
        )
        yield False, hidden * attention.output_bias, True
        copies, ffn = [True], arch.ffn
        if arch.experts and layer >= arch.experts.dense_layers:
            moe, ffn = arch.experts, arch.experts.expert_ffn
            copies = [index < moe.experts_per_token for index in range(moe.experts)] + [
                True
            ] * moe.shared_experts
            yield True, hidden * moe.experts, True
        yield from (
            (True, hidden * ffn, used) for used in copies for _ in range(3 if arch.gated else 2)
        )
        if arch.mlp_bias and copies == [True]:  # a dense MLP: gate and up, or one matrix, then down
            yield from (
                (False, each, True)
                for each in ([ffn, ffn, hidden] if arch.gated else [ffn, hidden])
            )


VARIANTS = [
    replace(
        SMALL,
        gated=gated,
        tied=tied,
        norm=norm,
        experts=experts,
        mlp_bias=bias,
        attention=Attention(heads=4, kv_heads=kv, head_dim=3, qkv_bias=bias, output_bias=bias),
    )
    for gated, tied, norm, kv, bias, experts in product(
        (True, False),
        (True, False),
        ("rms", "layer"),
        (1, 4),
        (True, False),
        (
            None,
            Experts(experts=5, experts_per_token=2, expert_ffn=6, shared_experts=1, dense_layers=1),
        ),
    )
]


def test_counts_equal_the_tensors_one_by_one():
    assert len(VARIANTS) == 64
    for arch in VARIANTS:
        check_against_tensors(arch)


def check_against_tensors(arch):
    every = list(tensors(arch))
    assert parameters(arch) == sum(elements for _, elements, _ in every)
    assert active_parameters(arch) == sum(elements for _, elements, used in every if used)
    multiplied = sum(elements for matrix, elements, used in every if matrix and used)
    head = arch.vocab * arch.hidden if arch.tied else 0
    seq_len, width = 6, arch.attention.heads * arch.attention.head_dim
    for causal in (True, False):
        pairs = sum(1 for i in range(seq_len) for j in range(seq_len) if j <= i or not causal)
        flops = seq_len * 2 * (multiplied + head) + arch.layers * pairs * 2 * (width + width)
        assert forward_flops_per_token(arch, seq_len, causal=causal) * seq_len == pytest.approx(
            flops
        )
        assert training_flops_per_token(arch, seq_len, causal=causal) == pytest.approx(
            3 * flops / seq_len
        )


def test_a_tied_head_counts_once_and_still_costs_flops():
    tied = replace(SMALL, tied=True)
    assert parameters(SMALL) - parameters(tied) == 80
    assert forward_flops_per_token(tied, 4, causal=True) == forward_flops_per_token(
        SMALL, 4, causal=True
    )


def test_memory_of_experts_follows_all_and_flops_the_active_ones():
    few = Experts(experts=8, experts_per_token=2, expert_ffn=16)
    more = replace(SMALL, experts=replace(few, experts=16))
    base = replace(SMALL, experts=few)
    router = 8 * 8 * 2
    assert parameters(more) - parameters(base) == 8 * 3 * 8 * 16 * 2 + router
    extra = forward_flops_per_token(more, 4, causal=True) - forward_flops_per_token(
        base, 4, causal=True
    )
    assert extra == 2 * router


@pytest.mark.parametrize(
    ("hidden", "heads", "query", "key_value", "content", "rope", "value"),
    [(7168, 128, 1536, 512, 128, 64, 128), (11, 3, 7, 13, 5, 7, 3)],  # DeepSeek-V3; odd numbers
)
def test_latent_attention_tensor_by_tensor(hidden, heads, query, key_value, content, rope, value):
    latent = LatentAttention(heads, query, key_value, content, rope, value)
    shapes = [
        (query, hidden),
        (heads * (content + rope), query),
        (key_value + rope, hidden),
        (heads * (content + value), key_value),
        (hidden, heads * value),
    ]
    assert latent.matrices(hidden) == sum(rows * columns for rows, columns in shapes)
    assert latent.vectors(hidden) == query + key_value
    assert latent.score_width == heads * (content + rope) + heads * value


def test_causal_attention_must_be_named_and_halves_the_scores():
    with pytest.raises(TypeError, match="causal"):
        forward_flops_per_token(SMALL, 8)
    arch = architecture("Llama-3.1-405B")
    short = forward_flops_per_token(arch, 1, causal=True)
    full, causal = (forward_flops_per_token(arch, 8192, causal=c) for c in (False, True))
    per_position = 2 * 126 * 2 * 16384
    assert full - short == pytest.approx(8191 * per_position)
    assert causal - short == pytest.approx(8191 / 2 * per_position)


def test_flops_of_an_array_of_sequence_lengths():
    lengths = np.array([1, 128, 8192])
    curve = training_flops_per_token(SMALL, lengths, causal=False)
    assert curve.tolist() == [
        training_flops_per_token(SMALL, int(n), causal=False) for n in lengths
    ]


def test_six_n_is_close_to_the_exact_count_and_reproduces_the_ledger():
    assert six_n_flops(405e9, 131_072) / 128 == float(LEDGER["L22"]["value"])
    arch = architecture("Llama-3.1-405B")
    ratio = training_flops_per_token(arch, 8192, causal=True) / six_n_flops(parameters(arch), 1)
    assert 1.03 < ratio < 1.04
    assert six_n_flops(np.array([1e9, 2e9]), 10).tolist() == [6e10, 12e10]


# Utilization


def test_mfu_takes_the_dense_peak():
    assert round(mfu(420e12, 989.5e12), 4) == 0.4245
    run, chip = registry.training_run("Llama-3-405B"), registry.accelerator("H100-SXM")
    expected = pytest.approx(float(LEDGER["L32"]["value"]), abs=1e-3)
    assert mfu(run["achieved"], chip.facts["peak_bf16"]) == expected
    assert mfu(400e12, chip.peak_bf16_FLOPs) == expected


def test_mfu_refuses_a_sparse_peak():
    with pytest.raises(ConventionError, match=r"peak_bf16_printed = 1\.979e\+15 FLOP/s .*sparse"):
        mfu(420e12, registry.fact("h100-sxm.peak_bf16_printed"))
    with pytest.raises(ConventionError, match="not a dense rate"):
        mfu(420e12, registry.fact("h100-sxm.memory"))


def test_mfu_above_one_is_refused():
    with pytest.raises(
        ValueError, match=r"peak_FLOPs must be at least achieved_FLOPs, got 1.0 for 2.0"
    ):
        mfu(2.0, 1.0)
    assert mfu(np.array([100e12, 494.5e12, 989e12]), 989e12)[1:].tolist() == [0.5, 1]


# Divisibility


def test_52_heads_on_8_ranks_names_both_numbers():
    arch = replace(SMALL, attention=Attention(heads=52, kv_heads=52, head_dim=2), ffn=20)
    with pytest.raises(ValueError, match="heads=52 is not divisible by tp=8"):
        tensor_shard(arch, 8)


def test_tensor_shards():
    llama = architecture("Llama-3.1-405B")
    shard = tensor_shard(llama, 8)
    assert (shard.heads * 8, shard.kv_heads * 8, shard.ffn * 8) == (128, 8, 53248)
    assert tensor_shard(llama, 16).kv_heads == 1
    assert tensor_shard(architecture("DeepSeek-V3"), 4).kv_heads is None
    assert tensor_shard(architecture("DeepSeek-V3"), 4).expert_ffn == 512
    assert tensor_shard(SMALL, 1).heads == 4
    with pytest.raises(ValueError, match="ffn=18 is not divisible by tp=4"):
        tensor_shard(replace(SMALL, ffn=18), 4)
    with pytest.raises(ValueError, match="tp=4 is not divisible by kv_heads=3"):
        tensor_shard(replace(SMALL, attention=Attention(heads=12, kv_heads=3, head_dim=2)), 4)
    with pytest.raises(ValueError, match="expert_ffn=6 is not divisible by tp=4"):
        tensor_shard(
            replace(SMALL, experts=Experts(experts=2, experts_per_token=1, expert_ffn=6)), 4
        )


# Bad input

CALLS = {
    "layers": lambda bad: replace(SMALL, layers=bad),
    "hidden": lambda bad: replace(SMALL, hidden=bad),
    "vocab": lambda bad: replace(SMALL, vocab=bad),
    "ffn": lambda bad: replace(SMALL, ffn=bad),
    "heads": lambda bad: Attention(heads=bad, kv_heads=1, head_dim=1),
    "kv_heads": lambda bad: Attention(heads=1, kv_heads=bad, head_dim=1),
    "head_dim": lambda bad: Attention(heads=1, kv_heads=1, head_dim=bad),
    "query_rank": lambda bad: LatentAttention(1, bad, 1, 1, 1, 1),
    "value_dim": lambda bad: LatentAttention(1, 1, 1, 1, 1, bad),
    "experts": lambda bad: Experts(experts=bad, experts_per_token=1, expert_ffn=1),
    "experts_per_token": lambda bad: Experts(experts=1, experts_per_token=bad, expert_ffn=1),
    "expert_ffn": lambda bad: Experts(experts=1, experts_per_token=1, expert_ffn=bad),
    "seq_len": lambda bad: forward_flops_per_token(SMALL, bad, causal=True),
    "seq_len in training": lambda bad: training_flops_per_token(SMALL, bad, causal=True),
    "tp": lambda bad: tensor_shard(SMALL, bad),
    "arch": parameters,
    "arch, active": active_parameters,
    "arch by part": lambda bad: parameters_by_part(bad, active=True),
    "arch of a shard": lambda bad: tensor_shard(bad, 1),
    "arch forward": lambda bad: forward_flops_per_token(bad, 1, causal=True),
    "arch in training": lambda bad: training_flops_per_token(bad, 1, causal=True),
    "parameters": lambda bad: six_n_flops(bad, 1),
    "tokens": lambda bad: six_n_flops(1, bad),
    "achieved_FLOPs": lambda bad: mfu(bad, 1e12),
    "peak_FLOPs": lambda bad: mfu(1e12, bad),
}
QUANTITIES = {"parameters", "tokens", "achieved_FLOPs", "peak_FLOPs"}


@pytest.mark.parametrize("name", CALLS)
def test_bad_input_names_the_parameter_and_the_value(name):
    parameter = name.replace(",", "").split()[0]
    for bad in (0, -1, 2.5, float("nan"), float("inf"), "8", True, None, np.timedelta64(8, "s")):
        if not (name in QUANTITIES and bad == 2.5):
            with pytest.raises((TypeError, ValueError), match=f"^{parameter} must") as error:
                CALLS[name](bad)
            assert f"got {bad!r}" in str(error.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: architecture("Llama-4"), "model must be one of .*'Llama-2-70B'.*got 'Llama-4'"),
        (
            lambda: Attention(heads=52, kv_heads=8, head_dim=128),
            "heads=52 is not divisible by kv_heads=8",
        ),
        (
            lambda: Experts(experts=8, experts_per_token=9, expert_ffn=1),
            "experts_per_token must be at most 8, got 9",
        ),
        (
            lambda: replace(SMALL, experts=Experts(8, 2, 1, dense_layers=3)),
            "dense_layers must be at most 2, got 3",
        ),
        (lambda: replace(SMALL, norm="batch"), "norm must be one of 'rms', 'layer', got 'batch'"),
        (lambda: replace(SMALL, gated=1), "gated must be one of True, False, got 1"),
        (lambda: replace(SMALL, positions=-1), "positions must be at least 0, got -1"),
        (
            lambda: replace(SMALL, attention=4),
            "attention must be an Attention or a LatentAttention, got 4",
        ),
        (lambda: replace(SMALL, experts=8), "experts must be an Experts, .*or None, got 8"),
        (
            lambda: forward_flops_per_token(SMALL, 8, causal=1),
            "causal must be one of True, False, got 1",
        ),
        (
            lambda: parameters_by_part(SMALL, active="yes"),
            "active must be one of True, False, got 'yes'",
        ),
    ],
)
def test_architectures_that_cannot_be_are_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_what_is_left_out_is_absent():
    plain = {"qkv_bias": False, "output_bias": False}
    assert Attention(4, 2, 8) == Attention(4, 2, 8, **plain)
    none = {"shared_experts": 0, "dense_layers": 0, "router_bias": False}
    assert Experts(8, 2, 16) == Experts(8, 2, 16, **none)
    usual = {"gated": True, "mlp_bias": False, "norm": "rms", "tied": False, "positions": 0}
    few = {"layers": 2, "hidden": 8, "vocab": 10, "attention": Attention(4, 2, 8)}
    experts = Experts(8, 2, 16)
    assert SMALL.expert_matrices(active=True) == SMALL.expert_matrices(active=False) == 0
    assert Architecture(**few, experts=experts) == Architecture(
        **few, **usual, experts=experts, ffn=0
    )
    latent = LatentAttention(3, 7, 13, 5, 7, 3)
    for part in (Attention(4, 2, 8), latent, experts, SMALL, tensor_shard(SMALL, 1)):
        with pytest.raises(FrozenInstanceError):
            part.heads = 3


def test_flags_of_numpy_are_flags_and_are_kept_as_pythons():
    arch = replace(SMALL, gated=np.False_, tied=np.True_, layers=np.int8(2), norm=np.str_("rms"))
    assert arch == replace(SMALL, gated=False, tied=True)
    assert (type(arch.gated), type(arch.layers), type(arch.norm)) == (bool, int, str)
    yes, no = np.True_, np.False_
    assert parameters_by_part(arch, active=yes) == parameters_by_part(arch, active=True)
    for flag in (yes, no):
        assert forward_flops_per_token(arch, 8, causal=flag) == forward_flops_per_token(
            arch, 8, causal=bool(flag)
        )


def test_a_gated_mlp_has_two_biases_as_wide_as_itself():
    for gated, biases in ((True, 16 + 16 + 8), (False, 16 + 8)):
        plain = replace(SMALL, gated=gated)
        assert (
            parameters(replace(plain, mlp_bias=True)) - parameters(plain) == SMALL.layers * biases
        )


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: six_n_flops(1e308, 1), "^parameters must be finite"),
        (
            lambda: six_n_flops(np.ones(3), np.ones(2)),
            "the shapes of parameters .3,. and tokens .2,. do not broadcast",
        ),
        (lambda: mfu(4e14, 2.5), r"^peak_FLOPs must be at least achieved_FLOPs, got 2\.5 for 4"),
        (
            lambda: forward_flops_per_token(SMALL, np.array([2**63 - 1]), causal=True),
            "^seq_len must be at most",
        ),
    ],
)
def test_what_does_not_fit_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()
