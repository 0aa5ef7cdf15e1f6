"""NumPy's arrays as holders: of a tensor's storage that they view, of another array's memory, of their own.

The collector does not go through arrays. Imports no NumPy: a program without it has none.
"""

from __future__ import annotations

import sys
import types
from typing import Any

_MOST_OBJECTS = 1 << 16
"""Items of an array of objects that are gone through."""


def is_array(cls: type) -> bool:
    """Whether objects of a type are NumPy's arrays."""
    array = _array_type()
    return array is not None and issubclass(cls, array)


def plain(array: Any) -> Any:
    """The same memory as an array of NumPy's own type: a subclass may compute what it is asked for."""
    cls = _array_type()
    return array if cls is None or type(array) is cls else cls.view(array, cls)


def children(array: Any) -> list[Any]:
    """What an array holds: the object whose memory it shows, and its items where these are objects."""
    cls = _array_type()
    if cls is None:
        return []
    # Attributes are read by ndarray's own descriptors: a subclass may compute them.
    base = cls.base.__get__(array)
    found = [] if base is None else [base]
    if base is None and cls.dtype.__get__(array).hasobject and cls.size.__get__(array) <= _MOST_OBJECTS:
        # Structured dtypes with objects inside are left alone: `tolist` would make new tuples of them.
        found += cls.ravel(array).tolist() if cls.dtype.__get__(array).kind == "O" else []
    # Only subclasses have a `__dict__`.
    extra = getattr(type(array), "__dictoffset__", 0) and object.__getattribute__(array, "__dict__")
    return [*found, extra] if extra else found


def memory(array: Any) -> tuple[Any, int, int]:
    """The array whose own memory an array shows, the bytes of that, and those shown; 0 bytes where the memory is not
    NumPy's: a tensor's, a file's, a bytes object's."""
    cls = _array_type()
    shown = int(cls.nbytes.__get__(array)) if cls is not None else 0
    whole = array
    # A view of a view names the last owner, or a chain of views.
    while cls is not None and (base := cls.base.__get__(whole)) is not None:
        # A tensor, a memory map, bytes: whoever has it counts it.
        if not issubclass(type(base), cls):
            return whole, 0, shown
        whole = base
    own = cls is not None and bool(cls.flags.__get__(whole).owndata)
    return whole, int(cls.nbytes.__get__(whole)) if own else 0, shown


def _array_type() -> Any:
    # Might be a program's own object of that name: hence the two checks below.
    numpy = sys.modules.get("numpy")
    found = vars(numpy).get("ndarray") if isinstance(numpy, types.ModuleType) else None
    return found if isinstance(found, type) else None
