"""Text that a terminal of any encoding can print."""

from __future__ import annotations

import sys

__all__ = ["printable"]


def printable(text: str) -> str:
    """``text``, with what standard output cannot encode (a micro sign in ASCII) as its escape.

    >>> printable("5 us a hop")
    '5 us a hop'
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
