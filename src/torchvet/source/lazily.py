"""Values that are found when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as lazy
else:

    class lazy:
        """`functools.cached_property` without the lock that it takes before Python 3.12: a model belongs to one thread,
        and the lock alone takes a twentieth of the time that parsing a small file does."""

        def __init__(self, find: Callable[[Any], Any]) -> None:
            self.find = find
            self.name = find.__name__
            self.__doc__ = find.__doc__

        def __get__(self, owner: Any, kind: type | None = None) -> Any:
            if owner is None:
                return self
            value = owner.__dict__[self.name] = self.find(owner)
            return value


__all__ = ["lazy"]
