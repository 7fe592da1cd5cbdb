"""What holds every fact of the registry, as functions of the facts: each computes with some of them
and compares with what a source prints.

A check is of one of three kinds. A *relation* ties facts to each other and to a result that was
published apart from them (419 interruptions in 54 days are one in 3.0931 hours). A *table* is a
published table, copied into ``data`` as a whole. A *transcription*, the weakest, is a figure typed
here once more from its source, where nothing else is known to hold it.

A check reads a fact through :class:`Facts`, which states the unit, direction and convention it
expects; ``test_every_fact_bites.py`` changes the facts one by one.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dtlib.facts.fact import Fact
from dtlib.facts.sweeps import Sweep

DATA = Path(__file__).parent / "data"


def table(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


LEDGER = {row["id"]: row for row in table("ledger.csv")}
HARDWARE = {row["accelerator"]: row for row in table("hardware.csv")}
CAUSES = [row for row in table("llama3_interruptions.csv") if row["category"]]
CAUSES = [row for row in CAUSES if row["count_54_days"]]  # without the sum and a note
RELIABILITY = table("reliability.csv")
STEPS = {row["id"]: row for row in table("train_steps.csv")}
NCCL = table("nccl_tests.csv")
BIGSCIENCE = table("bigscience.csv")


class Facts:
    """The facts, read with the unit, direction and convention stated; ``read`` says which were."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self._facts = facts
        self.read: set[str] = set()

    def _fact(self, key: str) -> Fact:
        self.read.add(key)
        return self._facts[key]

    def number(self, key: str, unit: str = "1") -> float:
        return self._fact(key).number(unit)

    def each_way(self, key: str) -> float:
        return self._fact(key).each_way_Bps

    def dense(self, key: str) -> float:
        return self._fact(key).dense_FLOPs

    def printed(self, key: str) -> float:
        """A figure in the other convention: the sum of both directions, or with sparsity."""
        fact = self._fact(key)
        assert (fact.unit, fact.direction, fact.convention) in (
            ("B/s", "sum of both", "none"),
            ("FLOP/s", "none", "sparse"),
        ), f"{fact} is not a doubled figure"
        return float(fact.value)

    def architecture(self, model: str) -> dict[str, float | bool | str]:
        """The fields of a model's architecture; its parameter counts are left out."""
        keys = [key for key in self._facts if key.startswith(f"{model}.")]
        fields = {}
        for key in keys:
            name = key.removeprefix(f"{model}.")
            if name not in ("parameters", "parameters_rounded", "active_rounded"):
                assert self._fact(key).unit == "1", f"{key} has no unit"
                fields[name] = self._facts[key].value
        return fields


@dataclass(frozen=True)
class Check:
    """One function of the facts that raises where they do not agree with ``source``."""

    name: str
    kind: str
    source: str
    run: Callable[[Facts], None]


CHECKS: list[Check] = []


def check(kind: str, source: str, **arguments: object) -> Callable[[Callable], Callable]:
    """Adds the function to ``CHECKS``; a further decorator adds it with other arguments."""

    def add(function: Callable) -> Callable:
        name = "-".join([function.__name__, *map(str, arguments.values())])
        CHECKS.append(Check(name, kind, source, lambda facts: function(facts, **arguments)))
        return function

    return add


def same(got: float, published: float | str, within: float = 1e-12) -> None:
    agree = math.isclose(got, float(published), rel_tol=within, abs_tol=within)
    assert agree, f"{got!r}, published {published}"


def rounded(got: float, digits: int, published: float) -> None:
    """``got`` is ``published`` when printed with so many digits."""
    same(float(f"{got:.{digits - 1}e}"), published)


def ledger(row: str, got: float) -> None:
    """``got`` is the value of this row of the ledger, within the row's own tolerance."""
    tolerance = LEDGER[row]["tolerance"]
    same(got, LEDGER[row]["value"], float(tolerance) if tolerance[0].isdigit() else 1e-12)


def reported(item: str, scale: str) -> dict[str, str]:
    (row,) = (r for r in RELIABILITY if r["item"] == item and r["scale"] == scale)
    return row


# The Llama 3 run


@check("relation", "ledger L34, and the counts of Table 5")
def interruptions(facts: Facts) -> None:
    every = facts.number("llama-3-405b.interruptions")
    planned = facts.number("llama-3-405b.interruptions_planned")
    unexpected = facts.number("llama-3-405b.interruptions_unexpected")
    assert every - planned == unexpected == sum(int(row["count_54_days"]) for row in CAUSES)
    ledger("L34", unexpected)
    total = reported("total interruptions", "16,384 H100")
    assert (every, f"{planned:g} planned + {unexpected:g} unexpected") == (
        float(total["value"]),
        total["notes"],
    )


@check("relation", "ledger L33 and L35 to L38; 3.79 failures per 1000 node-days")
def time_between_interruptions(facts: Facts) -> None:
    days = facts.number("llama-3-405b.snapshot", "days")
    unexpected = facts.number("llama-3-405b.interruptions_unexpected")
    gpus = facts.number("llama-3-405b.gpus", "GPUs")
    hours = days * 24 / unexpected
    ledger("L33", days * 24)
    ledger("L35", hours)
    ledger("L36", gpus * hours)
    ledger("L37", gpus * hours / 8766)
    larger = facts.number("colossus.gpus", "GPUs")
    assert LEDGER["L38"]["claim"] == f"interval on {larger:.0f} GPUs"
    ledger("L38", gpus * hours / larger * 60)
    nodes = gpus / facts.number("llama-3-405b.gpus_per_node", "GPUs")
    rate = re.search(
        r"= ([\d.]+) failures per 1000 node-days \((\d+) nodes\)",
        reported("unexpected interruptions", "16,384 H100")["notes"],
    )
    rounded(1000 * unexpected / days / nodes, 3, float(rate[1]))
    assert nodes == int(rate[2])


@check("relation", "ledger L39 and L41; Table 5, whose GPU rows print 58.7% together")
def shares_of_interruptions(facts: Facts) -> None:
    memory = facts.number("llama-3-405b.interruptions_hbm3")
    ledger("L39", memory / facts.number("llama-3-405b.interruptions_unexpected"))
    assert [memory] == [int(r["count_54_days"]) for r in CAUSES if "HBM3" in r["component"]]
    printed = sum(float(r["percent_printed"]) for r in CAUSES if r["category"] == "GPU")
    ledger("L41", facts.number("llama-3-405b.gpu_share_printed"))
    same(100 * facts.number("llama-3-405b.gpu_share_printed"), printed)


@check("table", "ledger L40 and L43; reliability.csv")
def shares_as_printed(facts: Facts) -> None:
    hardware = facts.number("llama-3-405b.hardware_share_printed")
    effective = facts.number("llama-3-405b.effective_time")
    ledger("L40", hardware)
    ledger("L43", effective)
    same(100 * hardware, reported("hardware share of unexpected", "16,384 H100")["value"])
    assert f">{100 * effective:g}" == reported("effective training time", "16,384 H100")["value"]


@check("relation", "ledger L05, L18 to L32")
def worked_example(facts: Facts) -> None:
    parameters = facts.number("llama-3.1-405b.parameters_rounded", "parameters")
    gpus = facts.number("llama-3-405b.gpus", "GPUs")
    tp, pp, dp = (facts.number(f"llama-3-405b.{degree}") for degree in ("tp", "pp", "dp"))
    tokens = facts.number("llama-3-405b.batch_tokens", "tokens")
    achieved = facts.dense("llama-3-405b.achieved")
    nic = facts.each_way("h100-sxm.nic")
    gradient = facts.number("state.gradient_bf16", "B/parameter") * parameters
    assert tp * pp * dp == gpus
    ledger("L05", gpus - 1)
    ledger("L18", gradient)
    ledger("L20", 2 * gradient / nic)
    ledger("L21", tokens / dp)
    assert (
        f"16 sequences of {facts.number('llama-3-405b.seq_len', 'tokens'):g}"
        == (LEDGER["L21"]["note"])
    )
    ledger("L22", 6 * parameters * tokens / dp / (tp * pp))
    ledger("L23", 6 * parameters * tokens / dp / (tp * pp) / achieved)
    ledger("L26", parameters / (tp * pp))
    ledger("L28", 2 * (dp - 1) / dp * gradient / (tp * pp))
    ledger("L29", 2 * (dp - 1) / dp * gradient / (tp * pp) / nic)
    ledger("L32", achieved / facts.dense("h100-sxm.peak_bf16"))
    assert (
        f"the paper prints {100 * facts.number('llama-3-405b.mfu_printed'):g}%"
        == (LEDGER["L32"]["note"])
    )


@check("table", "train_steps.csv: Table 4 of the Llama 3 paper, the rows of 8,192 tokens")
def parallelism_of_llama_3(facts: Facts) -> None:
    row = STEPS["llama3-t4-1"]
    for degree in ("tp", "pp"):
        same(facts.number(f"llama-3-405b.{degree}"), row[degree])
    seq_len = facts.number("llama-3-405b.seq_len", "tokens")
    same(seq_len, row["seq_len"])
    same(facts.number("llama-3-405b.batch_tokens", "tokens"), seq_len * int(row["global_batch"]))


@check("relation", "6 N D over the 15.6e12 tokens of the Llama 3 paper, section 3.2")
def flops_of_llama_3(facts: Facts) -> None:
    parameters = facts.number("llama-3.1-405b.parameters_rounded", "parameters")
    rounded(6 * parameters * 15.6e12, 2, facts.number("llama-3-405b.training_flops", "FLOP"))


@check("relation", "Llama 3.1 model card: 1.46M (8B), 7.0M (70B), 39.3M GPU-hours in all")
def gpu_hours_of_llama_3(facts: Facts) -> None:
    rounded(1.46e6 + 7.0e6 + facts.number("llama-3-405b.gpu_hours", "GPU-h"), 3, 39.3e6)


# Accelerators and links


@check("table", "hardware.csv", chip="a100-sxm-80gb", row="A100-SXM-80GB")
@check("table", "hardware.csv", chip="h100-sxm", row="H100-SXM-80GB")
@check("table", "hardware.csv", chip="h200-sxm", row="H200-SXM-141GB")
@check("table", "hardware.csv", chip="b200-sxm", row="B200-SXM")
@check("table", "hardware.csv", chip="gb200-nvl72", row="GB200-NVL72 (per GPU)")
@check("table", "hardware.csv", chip="mi300x", row="MI300X")
def accelerator(facts: Facts, chip: str, row: str) -> None:
    published = {name: text for name, text in HARDWARE[row].items()}
    same(facts.number(f"{chip}.memory", "B"), float(published["hbm_gb"]) * 1e9)
    same(facts.number(f"{chip}.hbm", "B/s"), float(published["hbm_tb_s"]) * 1e12)
    same(facts.dense(f"{chip}.peak_bf16"), float(published["bf16_dense_tflops"]) * 1e12)
    matmul = float(published["max_achievable_matmul_bf16_tflops"])
    same(facts.dense(f"{chip}.matmul_bf16"), matmul * 1e12)
    one_way = float(published["scaleup_gb_s_per_direction"])
    same(facts.each_way(f"{chip}.scaleup"), one_way * 1e9)
    both_ways = float(published["scaleup_gb_s_bidirectional"])
    same(facts.printed(f"{chip}.scaleup_printed"), both_ways * 1e9)
    same(facts.number(f"{chip}.scaleup_domain", "GPUs"), published["scaleup_domain"])
    nic = facts.each_way(f"{chip}.nic")
    same(nic, float(published["nic_gb_s_per_direction"]) * 1e9)
    same(nic, float(published["nic_gbit_s_per_gpu_typical"]) * 1e9 / 8)


@check("relation", "links x rate of one link each way", chip="a100-sxm-80gb", links=12, each=25e9)
@check("relation", "links x rate of one link each way", chip="h100-sxm", links=18, each=25e9)
@check("relation", "links x rate of one link each way", chip="h200-sxm", links=18, each=25e9)
@check("relation", "links x rate of one link each way", chip="b200-sxm", links=18, each=50e9)
@check("relation", "links x rate of one link each way", chip="gb200-nvl72", links=18, each=50e9)
@check("relation", "links x rate of one link each way", chip="mi300x", links=7, each=64e9)
def links(facts: Facts, chip: str, links: int, each: float) -> None:
    same(facts.each_way(f"{chip}.scaleup"), links * each)
    same(facts.printed(f"{chip}.scaleup_printed"), 2 * links * each)


@check("relation", "2:4 sparsity doubles the rate; tables cut 989.5 to 989", chip="a100-sxm-80gb")
@check("relation", "2:4 sparsity doubles the rate; tables cut 989.5 to 989", chip="h100-sxm")
@check("relation", "2:4 sparsity doubles the rate; tables cut 989.5 to 989", chip="h200-sxm")
def sparse_peak(facts: Facts, chip: str) -> None:
    printed = facts.printed(f"{chip}.peak_bf16_printed") / 1e12
    same(facts.dense(f"{chip}.peak_bf16") / 1e12, int(printed / 2))
    assert printed == int(printed)


@check("table", "hardware.csv: FP8 runs at twice BF16, which is what sparsity gives BF16")
def sparse_peak_of_an_h100(facts: Facts) -> None:
    for chip, row in (("h100-sxm", "H100-SXM-80GB"), ("h200-sxm", "H200-SXM-141GB")):
        peak = facts.printed(f"{chip}.peak_bf16_printed")
        same(peak, float(HARDWARE[row]["fp8_dense_tflops"]) * 1e12)


@check("relation", "ledger L02, L03, L08 to L11, L13 and L44")
def links_of_the_ledger(facts: Facts) -> None:
    scaleup, nic = facts.each_way("h100-sxm.scaleup"), facts.each_way("h100-sxm.nic")
    printed = facts.printed("h100-sxm.scaleup_printed")
    state = 16 * facts.number("llama-3.1-405b.parameters_rounded", "parameters")
    ledger("L02", state)
    ledger("L03", math.ceil(state / facts.number("h100-sxm.memory", "B")))
    ledger("L08", printed)
    ledger("L09", nic)
    ledger("L10", printed / nic)
    ledger("L11", scaleup / nic)
    ledger("L13", facts.number("gb200-nvl72.scaleup_domain", "GPUs"))
    assert LEDGER["L13"]["inputs"] == "72 GPUs at 1.8e12 B/s two-way"
    same(facts.printed("gb200-nvl72.scaleup_printed"), 1.8e12)
    ledger("L44", facts.number("h100-sxm.hbm", "B/s") / nic)


@check("relation", "nvidia-smi prints 81559MiB (NCCL issue 1264)")
def memory_as_reported(facts: Facts) -> None:
    same(facts.number("h100-sxm.memory_reported", "B"), 81_559 * 2**20)


@check("transcription", "Cloud TPU v5p page: 459 TFLOPs, 95 GB, 2765 GBps, 1200 GBps, 50 Gbps")
def tpu_v5p(facts: Facts) -> None:
    same(facts.dense("tpu-v5p.peak_bf16"), 459e12)
    same(facts.number("tpu-v5p.memory", "B"), 95e9)
    same(facts.number("tpu-v5p.hbm", "B/s"), 2765e9)
    same(facts.printed("tpu-v5p.scaleup_printed"), 1200e9)
    same(facts.each_way("tpu-v5p.nic"), 50e9 / 8)


@check("relation", "a pod is 16 x 20 x 28 chips; older pages print 4800 Gbps each way")
def pod_of_tpu_v5p(facts: Facts) -> None:
    torus = math.prod(map(int, HARDWARE["TPU v5p"]["scaleup_domain"].split("x")))
    same(facts.number("tpu-v5p.scaleup_domain", "chips"), torus)
    same(facts.each_way("tpu-v5p.scaleup"), 4800e9 / 8)
    same(facts.printed("tpu-v5p.scaleup_printed"), 2 * 4800e9 / 8)


@check("transcription", "nccl-tests issue 212: 'an effective NVLink bandwidth of 370GB/s'")
def ring_within_a_node(facts: Facts) -> None:
    same(facts.each_way("bus-8xh100.ring"), 370e9)


@check("table", "nccl_tests.csv: the highest bus bandwidth of the sweep")
def bus_bandwidth_of_the_switches(facts: Facts) -> None:
    best = max(float(row["busbw_gb_s"]) for row in NCCL if row["sweep"] == "nccl-8xh100")
    same(facts.each_way("bus-8xh100.nvls"), best * 1e9)


@check("relation", "an a3-megagpu-8g machine has 1,600 Gbps for its eight GPUs")
def card_of_an_a3_mega(facts: Facts) -> None:
    same(8 * 8 * facts.each_way("a3-mega.nic"), 1600e9)


# Training state


@check("relation", "ZeRO, Figure 1: 120, 31.4, 16.6 and 1.9 GB a rank for 7.5e9 on 64")
def figure_1_of_zero(facts: Facts) -> None:
    model = facts.number("zero-example.parameters", "parameters") / 1e9
    weight, gradient, master, moments = (
        facts.number(f"state.{part}", "B/parameter")
        for part in ("weight_bf16", "gradient_bf16", "master_fp32", "moments_adam")
    )
    optimizer = master + moments
    same(model * (weight + gradient + optimizer), 120)
    rounded(model * (weight + gradient + optimizer / 64), 3, 31.4)
    rounded(model * (weight + (gradient + optimizer) / 64), 3, 16.6)
    rounded(model * (weight + gradient + optimizer) / 64, 2, 1.9)


@check("relation", "ledger L01")
def bytes_per_parameter(facts: Facts) -> None:
    parts = ("master_fp32", "moments_adam", "weight_bf16", "gradient_bf16")
    each = [facts.number(f"state.{part}", "B/parameter") for part in parts]
    assert each == [float(n) for n in re.findall(r" (\d+)(?= \+|$)", LEDGER["L01"]["inputs"])]
    ledger("L01", sum(each))


@check("relation", "Korthikanti et al.: 31.640625 GiB a GPU, 18 bytes x 12 hidden^2 a layer / tp")
def state_of_mt_nlg(facts: Facts) -> None:
    row = STEPS["korth-t5-3-sel"]
    layers, hidden, vocab = (int(row[name]) for name in ("layers", "hidden", "vocab"))
    tp, pp = facts.number("mt-nlg-530b.tp"), facts.number("mt-nlg-530b.pp")
    state = sum(
        facts.number(f"state.{part}", "B/parameter")
        for part in ("weight_bf16", "gradient_fp32", "master_fp32", "moments_adam")
    )
    held = facts.number("mt-nlg-530b.state_memory", "B")
    same(held, 31.640625 * 2**30)
    same(held, state * 12 * hidden**2 * layers / pp / tp)
    parameters = facts.number("mt-nlg-530b.parameters_rounded", "parameters")
    rounded(12 * layers * hidden**2 + vocab * hidden, 3, parameters)


# Runs of BigScience, and OPT


@check("relation", "bigscience.csv: hardware FLOPs of an iteration, 96 B s l H^2 (...)")
def flops_of_bigscience(facts: Facts) -> None:
    for row in BIGSCIENCE:
        run, ours = row["run"], row["run"] == "bigscience-181b"
        layers, hidden, vocab = (
            facts.number(f"{run}.{name}") if ours else int(row[name])
            for name in ("layers", "hidden", "vocab")
        )
        seq_len, sequences = int(row["seq_len"]), int(row["global_batch"])
        ends = 1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden)
        flops = 96 * sequences * seq_len * layers * hidden**2 * ends
        rate = flops / facts.number(f"{run}.gpus", "GPUs") / float(row["time_s"])
        same(rate, float(row["hardware_tflops"]) * 1e12, 1e-4)
    good, slow = (row for row in BIGSCIENCE if row["run"] == "bloom-176b")
    for name, row in (("achieved", good), ("achieved_slow_gpu", slow)):
        same(facts.dense(f"bloom-176b.{name}"), float(row["hardware_tflops"]) * 1e12)


@check("relation", "chronicles.md, 2022-04-28: 303.6 s and around 296.5 s")
def slow_node_of_bloom(facts: Facts) -> None:
    rounded(303.6 / 296.5, 4, facts.number("bloom-176b.slow_node_time"))


@check("table", "bigscience.csv: 48 node contenders of the prequel")
def trial_of_bigscience(facts: Facts) -> None:
    rows = [row for row in BIGSCIENCE if row["run"] == "bigscience-181b"]
    for row in rows:
        for name in ("layers", "hidden", "tp", "pp", "dp", "zero_stage"):
            same(facts.number(f"bigscience-181b.{name}"), row[name])
        assert f"{facts.number('bigscience-181b.vocab') / 1000:g}k" == row["vocab"]
        peak = facts.number(f"bigscience-181b.peak_memory_{row['micro_batch']}", "B")
        same(peak, float(row["memory_gb"]) * 1e9)
    tp, pp, dp = (facts.number(f"bigscience-181b.{degree}") for degree in ("tp", "pp", "dp"))
    assert tp * pp * dp == facts.number("bigscience-181b.gpus", "GPUs")


@check("table", "ledger L42; reliability.csv: OPT, section 2.5")
def restarts_of_opt(facts: Facts) -> None:
    row = reported("manual restarts", "992 A100")
    restarts = facts.number("opt-175b.restarts_manual")
    ledger("L42", restarts)
    assert f"{restarts:g}+" == row["value"]
    assert f"{facts.number('opt-175b.gpus', 'GPUs'):g} A100" == row["scale"]
    assert f"per ~{facts.number('opt-175b.duration', 'months'):g} months" == row["unit"]
    hosts = facts.number("opt-175b.hosts_cycled")
    assert row["notes"].startswith(f"{hosts:g}+ hosts cycled")


# Models


def counted(m: Mapping[str, float | bool | str], *, active: bool = False) -> float:
    """Parameters of an architecture, matrix by matrix."""
    hidden, layers, heads = m["hidden"], m["layers"], m["heads"]
    norm = hidden * {"rms": 1, "layer": 2}[m["norm"]]
    into, ffn = (2 if m["gated"] else 1), m.get("ffn", 0)
    if "kv_rank" in m:
        query = m["query_rank"] * (hidden + 1 + heads * (m["content_dim"] + m["rope_dim"]))
        key_value = m["kv_rank"] * (hidden + 1 + heads * (m["content_dim"] + m["value_dim"]))
        attention = query + key_value + hidden * (m["rope_dim"] + heads * m["value_dim"])
    else:
        wide, narrow = heads * m["head_dim"], m["kv_heads"] * m["head_dim"]
        attention = 2 * hidden * (wide + narrow)
        attention += m.get("qkv_bias", False) * (wide + 2 * narrow)
        attention += m.get("output_bias", False) * hidden
    dense = (into + 1) * hidden * ffn + m.get("mlp_bias", False) * (into * ffn + hidden)
    dense_layers, sparse = m.get("dense_layers", layers), 0
    if "experts" in m:
        visited = (m["experts_per_token"] if active else m["experts"]) + m["shared_experts"]
        sparse = visited * (into + 1) * hidden * m["expert_ffn"]
        sparse += m["experts"] * (hidden + m.get("router_bias", False))
    tables = m["vocab"] * (1 if m["tied"] else 2) + m.get("positions", 0)
    return (
        tables * hidden
        + norm
        + layers * (attention + 2 * norm)
        + dense_layers * dense
        + (layers - dense_layers) * sparse
    )


@check("relation", "the count follows from the architecture", model="gpt-2")
@check("relation", "the count follows from the architecture", model="llama-2-7b")
@check("relation", "the count follows from the architecture", model="llama-2-70b")
@check("relation", "the count follows from the architecture", model="llama-3.1-8b")
@check("relation", "the count follows from the architecture", model="llama-3.1-70b")
@check("relation", "the count follows from the architecture", model="llama-3.1-405b")
@check("relation", "the count follows from the architecture", model="qwen2.5-72b")
@check("relation", "the count follows from the architecture", model="mixtral-8x7b")
@check("relation", "the count follows from the architecture", model="deepseek-v3")
def parameters(facts: Facts, model: str) -> None:
    published = facts.number(f"{model}.parameters", "parameters")
    assert counted(facts.architecture(model)) == published


@check("relation", "GPT-3, section 2.1: GPT-2's architecture; Table 2.1: 175.0B parameters")
def gpt_3(facts: Facts) -> None:
    gpt3, gpt2 = facts.architecture("gpt-3-175b"), facts.architecture("gpt-2")
    sizes = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "positions")
    assert {n: v for n, v in gpt3.items() if n not in sizes} == (
        {n: v for n, v in gpt2.items() if n not in sizes}
    )
    assert gpt3["heads"] == gpt3["kv_heads"] == gpt3["hidden"] / gpt3["head_dim"]
    assert gpt3["ffn"] == 4 * gpt3["hidden"]
    assert gpt3["positions"] == 2 * gpt2["positions"]
    published = facts.number("gpt-3-175b.parameters_rounded", "parameters")
    rounded(counted(gpt3), 3, published)


@check("table", "train_steps.csv", model="gpt-3-175b", row="korth-t5-2-sel")
@check("table", "train_steps.csv", model="llama-3.1-8b", row="dgxc-l8-2504-8")
@check("table", "train_steps.csv", model="llama-3.1-70b", row="dgxc-l70-2502-64")
@check("table", "train_steps.csv", model="llama-3.1-405b", row="llama3-t4-1")
def architecture(facts: Facts, model: str, row: str) -> None:
    ours, published = facts.architecture(model), STEPS[row]
    for name in ("layers", "hidden", "ffn", "heads", "kv_heads"):
        assert ours[name] == int(published[name])
    assert ours["gated"] is (published["gated_mlp"] == "1")
    if model != "gpt-3-175b":  # its vocabulary is padded there
        assert ours["vocab"] == int(published["vocab"])


@check("relation", "12.9e9 active parameters of Mixtral, 37e9 and 671e9 of DeepSeek-V3")
def rounded_counts(facts: Facts) -> None:
    mixtral, deepseek = (facts.architecture(model) for model in ("mixtral-8x7b", "deepseek-v3"))
    active = facts.number("mixtral-8x7b.active_rounded", "parameters")
    rounded(counted(mixtral, active=True), 3, active)
    whole = facts.number("deepseek-v3.parameters_rounded", "parameters")
    rounded(counted(deepseek), 3, whole)
    active = facts.number("deepseek-v3.active_rounded", "parameters")
    assert active % 1e9 == 0 and abs(counted(deepseek, active=True) - active) < 1e9


# Sweeps


def sweep_rows(sweep: Sweep) -> None:
    """Every row is the one that the log prints, and gives the rates that it prints."""
    rows = [row for row in NCCL if row["sweep"] == sweep.key]
    assert sweep.collective == "all_reduce"
    assert len(rows) == len(sweep.payload_bytes) == len(sweep.time_s)
    for place, row in enumerate(rows):
        size, time = float(sweep.payload_bytes[place]), float(sweep.time_s[place])
        assert size == 8 * 2**place == int(row["bytes"])
        same(time * 1e6, row["time_us"], 1e-9)
        for factor, printed in ((1, "algbw_gb_s"), (2 * (1 - 1 / sweep.ranks), "busbw_gb_s")):
            rate, step = factor * size / time / 1e9, 0.5 * 0.01
            # The log rounds the rate to a hundredth, and the time to its last digit.
            assert abs(rate - float(row[printed])) < step * 1.01 + 6e-4 * rate, (row, rate)
