"""The building blocks of a transformer layer: kinds of attention, and the experts of a mixture.

Each knows the elements of its matrices, which cost FLOPs, and of its vectors (biases, inner norms),
which do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from dtlib.arguments import choice, divisible, store, whole_number

__all__ = ["Attention", "Experts", "LatentAttention", "check_counts"]


def check_counts(part: Any, *, zero: tuple[str, ...] = ()) -> None:
    """Check the fields of a dataclass by their annotation: an ``int`` is at least 1 (or 0 if named
    in ``zero``).
    """
    for field in fields(part):
        name, value = field.name, getattr(part, field.name)
        if field.type == "int":
            store(part, **{name: whole_number(name, value, at_least=0 if name in zero else 1)})
        elif field.type == "bool":
            store(part, **{name: choice(name, value, (True, False))})


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention: keys and values are ``kv_heads`` wide. ``kv_heads == heads`` is
    multi-head attention.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False

    def __post_init__(self) -> None:
        check_counts(self)
        divisible("heads", self.heads, "kv_heads", self.kv_heads)

    def matrices(self, hidden: int) -> int:
        """Elements of Q, K, V and the output projection."""
        return hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    def vectors(self, hidden: int) -> int:
        """Elements of the biases."""
        qkv = self.qkv_bias * self.head_dim * (self.heads + 2 * self.kv_heads)
        return qkv + self.output_bias * hidden

    @property
    def score_width(self) -> int:
        """Multiply-adds of a token per position it attends to: its query against a key, its weight
        on a value.
        """
        return 2 * self.heads * self.head_dim


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): queries, keys and values pass through low-rank
    bottlenecks.

    A query or key head has ``content_dim`` entries of its own and ``rope_dim`` rotated ones; the
    rotated part of the key is shared by all heads. Each bottleneck has an RMS norm of its own.
    """

    heads: int
    query_rank: int
    kv_rank: int
    content_dim: int
    rope_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        check_counts(self)

    def matrices(self, hidden: int) -> int:
        """Elements of the down and up projections and the output projection."""
        query = self.query_rank * (hidden + self.heads * (self.content_dim + self.rope_dim))
        key_value_down = hidden * (self.kv_rank + self.rope_dim)
        key_value_up = self.kv_rank * self.heads * (self.content_dim + self.value_dim)
        return query + key_value_down + key_value_up + self.heads * self.value_dim * hidden

    def vectors(self, hidden: int) -> int:
        """Elements of the norms of the two bottlenecks."""
        return self.query_rank + self.kv_rank

    @property
    def score_width(self) -> int:
        """Multiply-adds of a token per position it attends to, keys and values expanded as in
        training.
        """
        return self.heads * (self.content_dim + self.rope_dim + self.value_dim)


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in every layer but the first ``dense_layers``.

    A token visits ``experts_per_token`` of the ``experts`` and all of the ``shared_experts``.
    """

    experts: int
    experts_per_token: int
    expert_ffn: int
    shared_experts: int = 0
    dense_layers: int = 0
    router_bias: bool = False

    def __post_init__(self) -> None:
        check_counts(self, zero=("shared_experts", "dense_layers"))
        whole_number("experts_per_token", self.experts_per_token, at_most=self.experts)
