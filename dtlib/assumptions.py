"""Figures that stand for no measurement: illustrations, which the text names as such.

The latencies of one message in the examples, inside a node and across nodes, are of the right
order of magnitude for a cluster of GPUs. Real ones depend on the software as much as on the links.
"""

__all__ = ["ACROSS_LATENCY_S", "INSIDE_LATENCY_S"]

INSIDE_LATENCY_S = 1e-6
ACROSS_LATENCY_S = 5e-6
