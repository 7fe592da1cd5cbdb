"""What a transformer is made of: exact parameter counts, and the FLOPs of a token.

An :class:`Architecture` names the shapes; everything else is multiplication. A weight matrix of n
elements costs 2n FLOPs a token forward (a multiply and an add), attention adds what depends on the
sequence, and the backward pass costs twice the forward one. Embedding look-ups, norms, biases and
softmax are not counted as FLOPs.

    >>> parameters(architecture("Llama-2-70B"))
    68976648192
    >>> active_parameters(architecture("Mixtral-8x7B"))
    12879925248
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from dtlib.arguments import (
    broadcasting,
    choice,
    divisible,
    instance,
    real_number,
    store,
    whole_number,
)
from dtlib.facts import registry
from dtlib.formulas.blocks import Attention, Experts, LatentAttention, check_counts

__all__ = [
    "Architecture",
    "Attention",
    "Experts",
    "LatentAttention",
    "TensorShard",
    "active_parameters",
    "architecture",
    "forward_flops_per_token",
    "parameters",
    "parameters_by_part",
    "six_n_flops",
    "tensor_shard",
    "training_flops_per_token",
]

Part = TypeVar("Part")


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer. ``ffn`` is the width of the dense MLP, ``positions`` the learned
    positions (0: none).

    ``gated`` MLPs have three matrices, others two; ``norm`` is "rms" (a gain) or "layer" (a gain
    and a bias); a ``tied`` head is the embedding used again.
    """

    layers: int
    hidden: int
    vocab: int
    attention: Attention | LatentAttention
    ffn: int = 0
    experts: Experts | None = None
    gated: bool = True
    mlp_bias: bool = False
    norm: str = "rms"
    tied: bool = False
    positions: int = 0

    def __post_init__(self) -> None:
        check_counts(self, zero=("ffn", "positions"))
        store(self, norm=choice("norm", self.norm, ("rms", "layer")))
        instance("attention", self.attention, Attention, LatentAttention)
        if self.experts is not None:
            instance("experts", self.experts, Experts, such_as="Experts(8, 2, 14_336), or None")
            whole_number("dense_layers", self.experts.dense_layers, at_least=0, at_most=self.layers)
        if self.dense_layers:
            whole_number("ffn", self.ffn)

    @property
    def dense_layers(self) -> int:
        """Layers with one dense MLP; the others have experts."""
        return self.experts.dense_layers if self.experts else self.layers

    def mlp_matrices(self, ffn: int) -> int:
        """Elements of the matrices of one MLP of this width."""
        return (3 if self.gated else 2) * self.hidden * ffn

    def expert_matrices(self, *, active: bool) -> int:
        """Elements of the expert matrices of one layer: all, or those a token visits."""
        if self.experts is None:
            return 0
        routed = self.experts.experts_per_token if active else self.experts.experts
        return (routed + self.experts.shared_experts) * self.mlp_matrices(self.experts.expert_ffn)


def _part(kind: type[Part], values: dict[str, Any]) -> Part:
    return kind(
        **{field.name: values[field.name] for field in fields(kind) if field.name in values}
    )


def architecture(name: str) -> Architecture:
    """The architecture of a model of the registry. DeepSeek-V3 is without its
    multi-token-prediction module.

    >>> architecture("Llama-3.1-8B").attention.kv_heads
    8
    """
    values = {key: fact.value for key, fact in registry.model(name).items()}
    attention = _part(LatentAttention if "kv_rank" in values else Attention, values)
    experts = _part(Experts, values) if "experts" in values else None
    return _part(Architecture, {**values, "attention": attention, "experts": experts})


def _checked(arch: Architecture) -> Architecture:
    return instance("arch", arch, Architecture, such_as="architecture('Llama-2-70B')")


def parameters_by_part(arch: Architecture, *, active: bool) -> dict[str, int]:
    """Parameters of each part; with ``active``, those that work on one token (all but the experts
    it skips).

    The biases and inner norms of attention count as attention, the biases of the MLP as MLP; the
    tokens' and the learned positions' embeddings are one part, and a tied head has no parameters of
    its own.
    """
    _checked(arch)
    active = choice("active", active, (True, False))
    moe_layers = arch.layers - arch.dense_layers
    norm = arch.hidden * (1 if arch.norm == "rms" else 2)
    mlp = arch.mlp_matrices(arch.ffn)
    if arch.mlp_bias:
        mlp += arch.hidden + arch.ffn * (2 if arch.gated else 1)
    router = arch.experts.experts * (arch.hidden + arch.experts.router_bias) if arch.experts else 0
    return {
        "embedding": (arch.vocab + arch.positions) * arch.hidden,
        "attention": arch.layers
        * (arch.attention.matrices(arch.hidden) + arch.attention.vectors(arch.hidden)),
        "mlp": arch.dense_layers * mlp,
        "experts": moe_layers * arch.expert_matrices(active=active),
        "router": moe_layers * router,
        "norms": (2 * arch.layers + 1) * norm,
        "head": 0 if arch.tied else arch.vocab * arch.hidden,
    }


def parameters(arch: Architecture) -> int:
    """Parameters of the model, exactly: what memory follows.

    >>> parameters(architecture("GPT-2"))
    124439808
    """
    return sum(parameters_by_part(arch, active=False).values())


def active_parameters(arch: Architecture) -> int:
    """Parameters that work on one token: what FLOPs follow. Equal to :func:`parameters` without
    experts.
    """
    return sum(parameters_by_part(arch, active=True).values())


def forward_flops_per_token(arch: Architecture, seq_len: Any, *, causal: bool) -> Any:
    """FLOPs of the forward pass per token, averaged over a sequence of ``seq_len`` tokens (a count,
    or an array).

    2 FLOPs per element of every matrix a token meets (the head also where it is tied), plus 2
    ``score_width`` for each position attended to: ``seq_len`` of them if attention is counted in
    full, on average (seq_len + 1)/2 with a causal mask. Published figures use either, so ``causal``
    has no default.

    >>> f"{forward_flops_per_token(architecture('Llama-3.1-405B'), 8192, causal=True):.4g}"
    '8.413e+11'
    """
    _checked(arch)
    seq_len = whole_number("seq_len", seq_len, array=True)
    causal = choice("causal", causal, (True, False))
    moe_layers = arch.layers - arch.dense_layers
    matrices = (
        arch.layers * arch.attention.matrices(arch.hidden)
        + arch.dense_layers * arch.mlp_matrices(arch.ffn)
        + moe_layers * arch.expert_matrices(active=True)
        + (moe_layers * arch.experts.experts * arch.hidden if arch.experts else 0)
        + arch.vocab * arch.hidden
    )
    attended = (seq_len + 1) / 2 if causal else seq_len
    return 2.0 * matrices + 2.0 * arch.layers * arch.attention.score_width * attended


def training_flops_per_token(arch: Architecture, seq_len: Any, *, causal: bool) -> Any:
    """FLOPs of forward and backward per token: three times the forward pass. Recompute is not
    counted.
    """
    return 3.0 * forward_flops_per_token(arch, seq_len, causal=causal)


@broadcasting
def six_n_flops(parameters: Any, tokens: Any) -> Any:
    """FLOPs of training on ``tokens`` by the rule 6 N D: 2 forward and 4 backward per parameter and
    token.

    The rule leaves attention scores out and counts the embedding as if it were multiplied. Arrays
    are accepted.

    >>> six_n_flops(405e9, 131_072) / 128
    2488320000000000.0
    """
    return (
        6.0
        * real_number("parameters", parameters, zero=False)
        * real_number("tokens", tokens, zero=False)
    )


@dataclass(frozen=True)
class TensorShard:
    """What one of ``tp`` tensor-parallel ranks holds of each layer."""

    tp: int
    heads: int
    kv_heads: int | None
    ffn: int
    expert_ffn: int


def tensor_shard(arch: Architecture, tp: int) -> TensorShard:
    """The heads and MLP columns of one tensor-parallel rank; an error names both numbers where they
    do not divide.

    With more ranks than KV heads each KV head is held by tp / kv_heads ranks. Latent attention has
    None of them.

    >>> tensor_shard(architecture("Llama-3.1-405B"), 8)
    TensorShard(tp=8, heads=16, kv_heads=1, ffn=6656, expert_ffn=0)
    """
    tp = whole_number("tp", tp)
    heads = divisible("heads", _checked(arch).attention.heads, "tp", tp)
    kv_heads = getattr(arch.attention, "kv_heads", None)
    if kv_heads and tp > kv_heads:
        divisible("tp", tp, "kv_heads", kv_heads)
        kv_heads = 1
    elif kv_heads:
        kv_heads = divisible("kv_heads", kv_heads, "tp", tp)
    ffn = divisible("ffn", arch.ffn, "tp", tp)
    expert_ffn = divisible("expert_ffn", arch.experts.expert_ffn if arch.experts else 0, "tp", tp)
    return TensorShard(tp=tp, heads=heads, kv_heads=kv_heads, ffn=ffn, expert_ffn=expert_ffn)
