"""Values over a stream socket: each as a pickle and the arrays in it, and before them all their
lengths.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from collections import ChainMap
from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any

__all__ = ["Parts", "dumps", "pack", "receive", "send", "unpack"]

LENGTH = struct.Struct("<Q")


Parts = list[bytes | bytearray | memoryview]


def dumps(
    value: Any, buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None
) -> bytes:
    """``pickle.dumps``, for functions and classes too that are not in a module, such as those of a
    notebook.
    """
    buffer = io.BytesIO()
    _pickler()(buffer, protocol=5, buffer_callback=buffer_callback).dump(value)
    return buffer.getvalue()


def pack(value: Any) -> Parts:
    """``value`` as a pickle and the arrays in it, which are not copied."""
    arrays: list[memoryview] = []
    return [dumps(value, lambda array: arrays.append(array.raw())), *arrays]


def unpack(parts: Parts) -> Any:
    return pickle.loads(parts[0], buffers=parts[1:])


@cache
def _pickler() -> type[pickle.Pickler]:
    """cloudpickle's, but it keeps the file in which a function was written (a cell is one):
    tracebacks need it.
    """
    import cloudpickle  # here, since importing this package is to need nothing but numpy

    def with_its_file(code: CodeType) -> tuple:
        make, fields = cloudpickle.Pickler.dispatch_table[CodeType](code)
        return make, tuple(
            code.co_filename if field == "<dynamic-code>" else field for field in fields
        )

    class Pickler(cloudpickle.Pickler):
        dispatch_table = ChainMap({CodeType: with_its_file}, cloudpickle.Pickler.dispatch_table)

    return Pickler


def send(connection: socket.socket, parts: Parts) -> None:
    connection.sendall(LENGTH.pack(len(parts)) + b"".join(LENGTH.pack(len(part)) for part in parts))
    for part in parts:
        connection.sendall(part)


def receive(connection: socket.socket) -> Parts:
    """The next value, packed; EOFError if the other end is gone."""
    (count,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    lengths = struct.unpack(f"<{count}Q", _exactly(connection, count * LENGTH.size))
    return [_exactly(connection, length) for length in lengths]


def _exactly(connection: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        try:
            got = connection.recv_into(view)
        except ConnectionResetError:
            got = 0
        if not got:
            raise EOFError("the other end is gone")
        view = view[got:]
    return data
