"""Distributed training, step by step: the library behind the course."""

__version__ = "0.1.0"
