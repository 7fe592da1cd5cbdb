"""Programs and values as bytes, also those whose functions and classes were typed into a notebook.

cloudpickle sends such a class by value, and whoever receives it again under the same name has its
own one overwritten. Here a class has one home in each process: the first copy that arrives, or the
original, stays as it is, and only a new order from the caller renews it (``forget_classes``).
"""

from __future__ import annotations

import io
import pickle
import uuid
import weakref
from collections import ChainMap
from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["dumps", "forget_classes", "loads", "pack", "receive", "send", "unpack"]

Parts = list[bytes | bytearray | memoryview]
_classes: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
_keys: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
_settled: weakref.WeakSet[type] = weakref.WeakSet()  # classes whose attributes are not to change


@cache
def _pickler() -> type[pickle.Pickler]:
    """cloudpickle's, with two changes."""
    import cloudpickle  # here, since importing this package is to need nothing but numpy

    def with_its_file(code: CodeType) -> tuple:
        """The code with the name of its file (a cell is one): tracebacks need it."""
        make, fields = cloudpickle.Pickler.dispatch_table[CodeType](code)
        named = (code.co_filename if field == "<dynamic-code>" else field for field in fields)
        return make, tuple(named)

    class Pickler(cloudpickle.Pickler):
        dispatch_table = ChainMap({CodeType: with_its_file}, cloudpickle.Pickler.dispatch_table)

        def reducer_override(self, value: Any) -> Any:
            """A class that is sent by value takes its key along."""
            reduced = super().reducer_override(value)
            if not isinstance(value, type) or not isinstance(reduced, tuple) or len(reduced) < 6:
                return reduced
            make, arguments, state, *_, set_state = reduced
            key = _keys.setdefault(value, uuid.uuid4().hex)
            _classes[key] = value
            _settled.add(value)
            return _class, (key, make, arguments), (set_state, state), None, None, _settle

    return Pickler


def _class(key: str, make: Callable[..., type], arguments: tuple) -> type:
    """The class with this key: the one that is known here, or a new one without attributes."""
    if key not in _classes:
        made = make(*arguments)
        _classes[key] = made
        _keys[made] = key
    return _classes[key]


def _settle(known: type, state: tuple[Callable[..., Any], Any]) -> None:
    """Give a new class its attributes, once."""
    if known not in _settled:
        _settled.add(known)
        set_state, attributes = state
        set_state(known, attributes)


def forget_classes() -> None:
    """Take the next copy of every class as it comes: the caller sends it, whose class it is."""
    _settled.clear()


def dumps(
    value: Any, buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None
) -> bytes:
    """``pickle.dumps``, for functions and classes too that are not in a module."""
    buffer = io.BytesIO()
    _pickler()(buffer, protocol=5, buffer_callback=buffer_callback).dump(value)
    return buffer.getvalue()


def loads(data: Any) -> Any:
    """The value that ``dumps`` made bytes of."""
    return pickle.loads(data)


def pack(value: Any) -> Parts:
    """``value`` as a pickle and the arrays in it, which are not copied."""
    arrays: list[memoryview] = []
    return [dumps(value, lambda array: arrays.append(array.raw())), *arrays]


def unpack(parts: Parts) -> Any:
    """The value that was packed; its arrays are in the memory of ``parts``."""
    return pickle.loads(parts[0], buffers=parts[1:])


def send(connection: Connection, parts: Parts) -> None:
    """Send what was packed."""
    connection.send([len(part) for part in parts])
    for part in parts:
        connection.send_bytes(part)


def receive(connection: Connection) -> Parts:
    """What ``send`` sent; EOFError if the other end is gone."""
    parts: Parts = [bytearray(size) for size in connection.recv()]
    for part in parts:
        connection.recv_bytes_into(part)
    return parts
